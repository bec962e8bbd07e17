// The connection to the system bus, against a stand-in that speaks the bus's part: answers, refusals, silence and damage.

import { afterEach, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { messageOf } from "../../../src/base/errors.ts";
import { BusError, openBus } from "../../../src/platform/systemd/dbus.ts";
import { decodeMessage, encodeCall, encodeMessage } from "../../../src/platform/systemd/dbus-wire.ts";
import { makeRandom } from "../../support/random.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const call = {
  destination: "org.example",
  path: "/org/example",
  interface: "org.example.Manager",
  member: "Do",
};

/** An answer to the call with this serial: a reply (2), or an error (3). */
function answerTo(serial: number, type: 2 | 3, signature: string, body: readonly unknown[]): Buffer {
  const fields: [number, string, unknown][] = [[5, "u", serial]];
  if (type === 3) fields.push([4, "s", "org.example.NoSuchLink"]);
  return encodeMessage({ type, serial: 99, fields }, signature, body);
}

describe("messages", () => {
  test("have the layout of the specification", () => {
    const message = encodeCall(
      {
        ...call,
        signature: "ia(sb)",
        body: [
          -2,
          [
            ["a", true],
            ["bc", false],
          ],
        ],
      },
      7,
    );
    expect(message.subarray(0, 4)).toEqual(Buffer.from([0x6c, 1, 2, 1]));
    expect(message.readUInt32LE(8)).toBe(7);
    const found = decodeMessage(Buffer.concat([message, Buffer.from("more")]));
    expect(found?.length).toBe(message.length);
    expect(found?.message).toMatchObject({ type: 1, serial: 7, member: "Do" });
    expect(found?.message.body).toEqual([
      -2,
      [
        ["a", true],
        ["bc", false],
      ],
    ]);
    expect(decodeMessage(message.subarray(0, -1))).toBeUndefined();
  });

  test("that are damaged throw or wait, and never hang", () => {
    const next = makeRandom(5);
    const random = (below: number) => Math.floor(next() * below);
    const signature = "a(iayqs)va{sv}";
    const body = [[[2, [127, 0, 0, 9], 5399, ""]], { type: "as", value: ["x"] }, []];
    const message = encodeCall({ ...call, signature: signature.replace("a{sv}", "a(sv)"), body }, 7);
    for (let round = 0; round < 20_000; round++) {
      const packet = Buffer.from(message);
      for (let changes = 1 + random(4); changes > 0; changes--) packet[random(packet.length)] = random(256);
      try {
        decodeMessage(packet);
      } catch (error) {
        expect(messageOf(error)).not.toBe("");
      }
    }
    const empty = encodeMessage({ type: 2, serial: 1, fields: [] }, "a(y)", [[[1], [2]]]);
    empty.write("a(()", empty.indexOf("a(y)"));
    expect(() => decodeMessage(empty)).toThrow("signature");
    expect(() => decodeMessage(Buffer.concat([Buffer.from([0x42]), message.subarray(1)]))).toThrow(
      "byte order",
    );
    message.writeUInt32LE(0x7fff_ffff, 4);
    expect(() => decodeMessage(message)).toThrow("too long");
  });
});

describe.skipIf(process.platform === "win32")("a connection", () => {
  const directory = temporaryDirectory();
  let server: Bun.UnixSocketListener<undefined> | undefined;
  let made = 0;

  /** `reply` gets each call after the first one, which is Hello. */
  function listen(reply: (socket: Bun.Socket, serial: number) => void, greeting = "OK 0123\r\n"): string {
    const path = join(directory.path, `bus${made++}`);
    let isGreeted = false;
    let calls = 0;
    server = Bun.listen({
      unix: path,
      socket: {
        data(socket, bytes) {
          let rest = Buffer.from(bytes);
          if (!isGreeted) {
            isGreeted = true;
            expect(rest.toString("latin1")).toMatch(/^\0AUTH EXTERNAL [0-9a-f]+\r\n$/);
            return void socket.write(greeting);
          }
          if (rest.toString("latin1").startsWith("BEGIN\r\n")) rest = rest.subarray(7);
          for (let found = decodeMessage(rest); found !== undefined; found = decodeMessage(rest)) {
            rest = rest.subarray(found.length);
            const { serial } = found.message;
            if (calls++ === 0) socket.write(answerTo(serial, 2, "s", [":1.5"]));
            else reply(socket, serial);
          }
        },
      },
    });
    return path;
  }
  afterEach(() => server?.stop(true));

  test("gives values, refusals with their name, and signals", async () => {
    let round = 0;
    const path = listen((socket, serial) => {
      round++;
      if (round === 1) socket.write(answerTo(serial, 2, "as", [["a", "b"]]));
      else socket.write(answerTo(serial, 3, "s", ["no such link"]));
    });
    const bus = await openBus(path);
    expect(await bus.call(call)).toEqual([["a", "b"]]);
    const error = await bus.call(call).catch((reason: unknown) => reason);
    expect(error instanceof BusError && error.errorName).toBe("org.example.NoSuchLink");
    expect(messageOf(error)).toStartWith("no such link");
    bus.close();
    expect(await bus.call(call).catch(messageOf)).toContain("closed the connection");
  });

  test("is closed after a partial write: the bus would read the next call as the rest of this one", async () => {
    const bus = await openBus(listen(() => undefined));
    const large = { ...call, signature: "s", body: ["x".repeat(16_000_000)] };
    expect(await bus.call(large).catch(messageOf)).toContain("takes no calls");
    expect(bus.isClosed).toBe(true);
    expect(await bus.call(call).catch(messageOf)).toContain("closed the connection");
  });

  test("fails, with the reason, where there is no bus, or it refuses, ends or sends damage", async () => {
    expect(await openBus(join(directory.path, "none")).catch(messageOf)).toContain("There is no system bus");
    expect(await openBus(listen(() => undefined, "REJECTED EXTERNAL\r\n")).catch(messageOf)).toContain(
      "refuses",
    );
    const ended = await openBus(listen((socket) => socket.terminate()));
    expect(await ended.call(call).catch(messageOf)).toContain("closed the connection");
    expect(ended.isClosed).toBe(true);
    const damaged = await openBus(listen((socket) => void socket.write("this is no message of D-Bus")));
    expect(await damaged.call(call).catch(messageOf)).toContain("damaged message");
  });
});
