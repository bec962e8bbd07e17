// Lines over the daemon's socket: correct, broken and hostile ones.

import { describe, expect, test } from "bun:test";
import { connect as netConnect } from "node:net";
import { connectDaemon } from "../../../src/daemon/ipc/client.ts";
import type { Answer, Request } from "../../../src/daemon/ipc/messages.ts";
import { AppError } from "../../../src/base/errors.ts";
import { failureOf, quiet, system, useIpc } from "../../support/ipc.ts";
import { until } from "../../support/until.ts";

const { place, serve, raw } = useIpc();

describe("lines", () => {
  test("are answered in order with their ids, whatever the chunks", async () => {
    const slowFirst = async ({ action }: Request): Promise<Answer> => {
      if (action === "slow") await Bun.sleep(20);
      return { ok: true, message: action };
    };
    await serve({ handle: slowFirst });
    const { socket, answers } = await raw();
    const text = '{"action":"slow","id":1}\n{"action":"fast","id":"b"}\n\n{"action":"third"}\n';
    for (const character of text) {
      socket.write(character);
      await Bun.sleep(0);
    }
    expect(await answers(3)).toEqual([
      { ok: true, message: "slow", id: 1 },
      { ok: true, message: "fast", id: "b" },
      { ok: true, message: "third" },
    ]);
  });

  test("that are not requests get an error each, and the connection stays open", async () => {
    await serve();
    const { socket, answers } = await raw();
    const bad = [
      "not json",
      '{"action":1,"id":7}',
      "[]",
      "null",
      '{"team":"acme"}',
      '{"action":"x","team":"../etc"}',
      '{"action":"x","team":"Acme"}',
      '{"action":"x","lines":1e9}',
      "[".repeat(60_000),
    ];
    for (const line of bad) socket.write(`${line}\n`);
    socket.write(Buffer.from([0x7b, 0xff, 0xfe, 0x0a]));
    socket.write('{"action":"still here","request_ts":"yesterday","reason":"test","unknown":1}\n');
    const got = await answers(bad.length + 2);
    expect(
      got.slice(0, -1).every(({ ok, code, message }) => !ok && code !== undefined && message !== ""),
    ).toBe(true);
    expect(got[0]).toMatchObject({ code: "bad_request", message: "The line is not JSON" });
    expect(got[1]).toMatchObject({ code: "validation_failed", id: 7 });
    expect(got.at(-2)).toMatchObject({ code: "bad_request", message: "The line is not UTF-8" });
    expect(got.at(-1)).toEqual({ ok: true, message: "still here" });
  });

  test("that are not requests are logged with uid and pid, once a minute for each fault", async () => {
    const warned: unknown[] = [];
    const minutes: (() => void)[] = [];
    await serve({
      log: { ...quiet, warn: (message, fields) => void warned.push([message, fields]) },
      system: {
        sleep: (ms) => (ms === 60_000 ? new Promise((resolve) => minutes.push(resolve)) : system.sleep(ms)),
      },
    });
    const [one, two] = [await raw(), await raw()];
    const secret = "s".repeat(43);
    for (const { socket, answers } of [one, two]) {
      socket.write(`\n \n{"action":"good"}\n${`${secret}\n`.repeat(100)}{"team":"${secret}"}\n`);
      await answers(102);
    }
    const [uid, pid] = [process.getuid?.(), process.pid];
    const notJson = { code: "bad_request", uid, pid, reason: "The line is not JSON" };
    const notValid = { code: "validation_failed", uid, pid, reason: expect.stringContaining("action") };
    expect(warned.splice(0)).toEqual([
      ["Malformed line refused", notJson],
      ["Malformed line refused", notValid],
    ]);
    for (const end of minutes.splice(0)) end();
    await until(() => warned.length === 2);
    expect(warned.splice(0)).toEqual([
      ["More malformed lines refused", { code: "bad_request", uid, refusals: 199 }],
      ["More malformed lines refused", { code: "validation_failed", uid, refusals: 1 }],
    ]);
    one.socket.write("again\n");
    await until(() => warned.length === 1);
    expect(warned).toEqual([["Malformed line refused", notJson]]);
  });

  test("longer than 64 KiB are refused once and skipped, and use no memory", async () => {
    await serve();
    const { socket, answers } = await raw();
    const longest = `{"action":"${"a".repeat(64)}","reason":"${"b".repeat(1000)}"`.padEnd(64 * 1024 - 1, " ");
    const parts = [
      `${longest}}\n`,
      "x".repeat(64 * 1024 + 1),
      "y".repeat(500_000),
      "\n",
      '{"action":"after"}\n',
    ];
    let rest = Buffer.from(parts.join(""));
    while (rest.length > 0) {
      rest = rest.subarray(Math.max(0, socket.write(rest)));
      await Bun.sleep(1);
    }
    const got = await answers(3);
    expect(got.map(({ ok, code }) => code ?? ok)).toEqual([true, "payload_too_large", true]);
    expect(got[2]?.message).toBe("after");
  });

  test("are all answered after the client ends its side, even without a last line break; then the socket closes", async () => {
    await serve({
      handle: async ({ action }) => {
        await Bun.sleep(20);
        return { ok: true, message: action };
      },
    });
    const client = netConnect({ path: place.path, allowHalfOpen: true });
    client.end('{"action":"one"}\n{"action":"two"}');
    let text = "";
    for await (const chunk of client) text += String(chunk);
    expect(text).toBe('{"ok":true,"message":"one"}\n{"ok":true,"message":"two"}\n');
  });

  test("of a failing action get the error's code; a defect reveals no internals", async () => {
    await serve({
      handle: async ({ action }) => {
        if (action === "version") return { ok: true, message: "lives" };
        if (action === "known") throw new AppError("collision", "They collide", { hint: "Stop one." });
        throw new TypeError("x is not a function");
      },
    });
    const client = await connectDaemon({ kind: "socket", path: place.path }, system, { patient: false });
    const known = await failureOf(client.request({ action: "known" }));
    expect([known.code, known.message, known.details.hint]).toEqual([
      "collision",
      "They collide",
      "Stop one.",
    ]);
    expect((await failureOf(client.request({ action: "other" }))).code).toBe("failed");
    client.close();
  });
});
