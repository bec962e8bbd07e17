// Datagrams in messages, and the forwarder of TCP fallback: what it passes on, to whom, and its bounds.

import { afterEach, describe, expect, test } from "bun:test";
import { join } from "node:path";
import {
  makeForwarder,
  forwarderRoute,
  type ForwarderConnection,
  type ForwarderOptions,
} from "../../src/base/datagrams/forwarder.ts";
import {
  DatagramBatch,
  datagramsIn,
  longestDatagram,
  longestMessage,
  sendOrLose,
} from "../../src/base/datagrams/frames.ts";
import { asRoot } from "../support/engines.ts";
import { until } from "../support/until.ts";

const bytes = (length: number, fill: number) => new Uint8Array(length).fill(fill);

describe("datagrams in messages", () => {
  test("come out as they went in, several in one message, none above its maximum", async () => {
    const messages: Uint8Array[] = [];
    const batch = new DatagramBatch((message) => messages.push(message));
    const all = [bytes(1, 1), bytes(1400, 2), ...Array.from({ length: 5 }, () => bytes(longestDatagram, 3))];
    for (const each of all) batch.add(each);
    await until(() => messages.flatMap(datagramsIn).length === all.length);
    expect(messages.flatMap(datagramsIn).map(String)).toEqual(all.map(String));
    expect(messages.length).toBe(2);
    expect(Math.max(...messages.map(({ length }) => length))).toBeLessThanOrEqual(longestMessage);
  });

  test("empty ones, and ones above the maximum, are dropped", async () => {
    const messages: Uint8Array[] = [];
    const batch = new DatagramBatch((message) => messages.push(message));
    for (const length of [0, longestDatagram + 1, 5]) batch.add(bytes(length, 7));
    await until(() => messages.length > 0);
    expect(messages.flatMap(datagramsIn).map(({ length }) => length)).toEqual([5]);
  });

  test("what follows a wrong length is left out", () => {
    expect(datagramsIn(Uint8Array.of(0, 1, 9, 0, 5, 1))).toEqual([Uint8Array.of(9)]);
    expect(datagramsIn(Uint8Array.of(0, 1, 9, 0, 0, 0, 1, 8))).toEqual([Uint8Array.of(9)]);
    expect(datagramsIn(Uint8Array.of(255, 255, 1))).toEqual([]);
    expect(datagramsIn(Uint8Array.of(0))).toEqual([]);
  });
});

let ends: (() => void)[] = [];
afterEach(() => {
  for (const end of ends.reverse()) end();
  ends = [];
});

/** Answers each datagram with itself, as an engine would at a handshake; `type`: of its answers. */
async function fakeEngine(type = 0, port = 0) {
  const from: string[] = [];
  const socket = await Bun.udpSocket({
    hostname: "0.0.0.0",
    port,
    socket: {
      data(own, datagram, port, address) {
        from.push(address);
        const answer = Uint8Array.from(datagram);
        answer[0] = 0x10 | type;
        sendOrLose(() => own.send(answer, port, address));
      },
      // The other end may be closed by then.
      error: () => undefined,
    },
  });
  ends.push(() => socket.close());
  return { port: socket.port, from };
}

/** The client's address is the one that its URL says, as behind a proxy. */
function listen(options: Omit<ForwarderOptions, "monotonic"> & Partial<ForwarderOptions>) {
  const forwarder = makeForwarder({ monotonic: () => performance.now(), ...options });
  const server = Bun.serve<ForwarderConnection>({
    hostname: "::",
    port: 0,
    routes: {
      [forwarderRoute]: {
        GET: (request: Request, own: Bun.Server<ForwarderConnection>) =>
          forwarder.accept(
            request,
            own,
            new URL(request.url).searchParams.get("from") ?? own.requestIP(request)?.address ?? "",
          ),
      },
    },
    fetch: () => new Response(null, { status: 404 }),
    websocket: forwarder.websocket,
  });
  ends.push(() => {
    forwarder.close();
    void server.stop(true);
  });
  return { forwarder, url: `ws://127.0.0.1:${server.port}/tcp/` };
}

function connect(url: string) {
  const client = new WebSocket(url);
  client.binaryType = "arraybuffer";
  const got: Uint8Array[] = [];
  const state = { is: "connecting" as "connecting" | "open" | "closed", code: 0 };
  client.addEventListener("open", () => (state.is = "open"));
  client.addEventListener("close", ({ code }) => Object.assign(state, { is: "closed", code }));
  client.addEventListener("message", ({ data }) =>
    got.push(...datagramsIn(new Uint8Array(data as ArrayBuffer))),
  );
  ends.push(() => client.close());
  const batch = new DatagramBatch((message) => {
    if (client.readyState === WebSocket.OPEN) client.send(message);
  });
  return { client, got, state, send: (datagram: Uint8Array) => batch.add(datagram) };
}

describe("the forwarder", () => {
  test("passes datagrams to the engine and back, and the engine never sees a loopback address", async () => {
    const engine = await fakeEngine();
    const { url } = listen({ engineAt: (port) => (port === engine.port ? {} : undefined) });
    const { got, state, send } = connect(`${url}${engine.port}`);
    await until(() => state.is === "open");
    for (const length of [16, 1400, 9000]) send(bytes(length, 0x10));
    await until(() => got.length === 3);
    expect(got.map(({ length }) => length).sort((a, b) => a - b)).toEqual([16, 1400, 9000]);
    expect(engine.from.filter((each) => each.startsWith("127."))).toEqual([]);
    expect(new Set(engine.from).size).toBe(1);
  });

  test("reaches no other port, and answers nothing but WebSockets", async () => {
    const [engine, other] = [await fakeEngine(), await fakeEngine()];
    const { url, forwarder } = listen({ engineAt: (port) => (port === engine.port ? {} : undefined) });
    const http = url.replace("ws:", "http:");
    const statusOf = async (path: string) => (await fetch(`${http}${path}`)).status;
    expect(await statusOf(`${engine.port}`)).toBe(426);
    for (const path of [`${other.port}`, "", "0", "70000", "4242x", `${engine.port}/../${other.port}`])
      expect([path, await statusOf(path)]).toEqual([path, 404]);
    const { state } = connect(`${url}${other.port}`);
    await until(() => state.is === "closed");
    expect(forwarder.connections()).toBe(0);
    expect(other.from).toEqual([]);
  });

  test("ends a connection to which no engine answers, recv_error aside", async () => {
    const [engine, refusing] = [await fakeEngine(), await fakeEngine(2)];
    const { url, forwarder } = listen({ engineAt: () => ({}), limits: { proveWithinMs: 300 } });
    const [node, stranger] = [connect(`${url}${engine.port}`), connect(`${url}${refusing.port}`)];
    await until(() => node.state.is === "open" && stranger.state.is === "open");
    node.send(bytes(32, 0x10));
    stranger.send(bytes(32, 0x10));
    await until(() => node.got.length === 1 && stranger.got.length === 1);
    await until(() => stranger.state.is === "closed");
    expect(stranger.state.code).toBe(1008);
    expect([node.state.is, forwarder.connections()]).toEqual(["open", 1]);
  });

  test("when it is full, nodes keep their places, and strangers make room", async () => {
    const engine = await fakeEngine();
    const { url, forwarder } = listen({ engineAt: () => ({}), limits: { connections: 3 } });
    const at = `${url}${engine.port}`;
    const nodes = [connect(at), connect(at)];
    for (const each of nodes) await until(() => each.state.is === "open");
    for (const each of nodes) each.send(bytes(32, 0x10));
    await until(() => nodes.every(({ got }) => got.length === 1));
    const strangers = [connect(at)];
    await until(() => strangers[0]?.state.is === "open");
    strangers.push(connect(at));
    await until(() => strangers[0]?.state.is === "closed");
    await until(() => strangers[1]?.state.is === "open");
    strangers[1]?.send(bytes(32, 0x10));
    await until(() => strangers[1]?.got.length === 1);
    // All are nodes now.
    expect((await fetch(at.replace("ws:", "http:"), { headers: { Upgrade: "websocket" } })).status).toBe(503);
    expect([...nodes, ...strangers].map(({ state }) => state.is)).toEqual(["open", "open", "closed", "open"]);
    expect(forwarder.connections()).toBe(3);
  });

  test("takes no connection any more once it is closed", async () => {
    const engine = await fakeEngine();
    const { url, forwarder } = listen({ engineAt: () => ({}) });
    const before = connect(`${url}${engine.port}`);
    await until(() => before.state.is === "open");
    forwarder.close();
    const http = `${url.replace("ws:", "http:")}${engine.port}`;
    expect((await fetch(http, { headers: { Upgrade: "websocket" } })).status).toBe(503);
    await until(() => before.state.is === "closed");
    const after = connect(`${url}${engine.port}`);
    await until(() => after.state.is !== "connecting");
    expect([before.state.code, after.state.is, forwarder.connections()]).toEqual([1012, "closed", 0]);
  });

  test("one address gets only its share of the connections", async () => {
    const engine = await fakeEngine();
    const { url } = listen({ engineAt: () => ({}), limits: { ofNetwork: 2 } });
    const all = [connect(`${url}${engine.port}`), connect(`${url}${engine.port}`)];
    await until(() => all.every(({ state }) => state.is === "open"));
    const third = connect(`${url}${engine.port}`);
    await until(() => third.state.is === "closed");
    expect(all.map(({ state }) => state.is)).toEqual(["open", "open"]);
  });

  test("all addresses of an IPv6 /64 share what one address gets; IPv4 addresses in IPv6 form do not", async () => {
    const engine = await fakeEngine();
    const { url } = listen({ engineAt: () => ({}), limits: { ofNetwork: 2 } });
    const from = (address: string) => connect(`${url}${engine.port}?from=${address}`);
    const all = ["2001:db8::1", "2001:db8::2:1", "::ffff:192.0.2.1", "::ffff:192.0.2.2", "::ffff:192.0.2.3"];
    const open = all.map(from);
    await until(() => open.every(({ state }) => state.is !== "connecting"));
    expect(open.map(({ state }) => state.is)).toEqual(all.map(() => "open"));
    const [third, outside] = [from("2001:db8::3"), from("2001:db8:0:1::3")];
    await until(() => third.state.is === "closed" && outside.state.is === "open");
  });

  test("when it is full, the engine with the most connections makes room for others, not the other way round", async () => {
    const [many, few] = [await fakeEngine(), await fakeEngine()];
    const { url, forwarder } = listen({ engineAt: () => ({}), limits: { connections: 4 } });
    const node = async (port: number) => {
      const made = connect(`${url}${port}`);
      await until(() => made.state.is === "open");
      made.send(bytes(32, 0x10));
      await until(() => made.got.length === 1);
      return made;
    };
    const crowd: Awaited<ReturnType<typeof node>>[] = [];
    for (let at = 0; at < 4; at++) crowd.push(await node(many.port));
    const others = [await node(few.port), await node(few.port)];
    await until(() => crowd.filter(({ state }) => state.is === "closed").length === 2);
    expect(crowd.map(({ state }) => state.is)).toEqual(["open", "open", "closed", "closed"]);
    for (const port of [few.port, many.port]) {
      const late = connect(`${url}${port}`);
      await until(() => late.state.is === "closed");
    }
    expect(others.map(({ state }) => state.is)).toEqual(["open", "open"]);
    expect(forwarder.connections()).toBe(4);
  });

  test("strangers, whom no engine answered, leave most of the rate to nodes", async () => {
    const engine = await fakeEngine();
    const silent = await Bun.udpSocket({ hostname: "0.0.0.0", socket: { data: () => undefined } });
    ends.push(() => silent.close());
    // 100,000 bytes at once, and no more.
    const options = { bytesPerS: 400_000, limits: { excess: 50_000 }, monotonic: () => 0 };
    const { url } = listen({ engineAt: () => ({}), ...options });
    const [node, stranger] = [connect(`${url}${engine.port}`), connect(`${url}${silent.port}`)];
    await until(() => node.state.is === "open" && stranger.state.is === "open");
    node.send(bytes(32, 0x10));
    await until(() => node.got.length === 1);
    for (let sent = 0; sent < 200; sent++) stranger.send(bytes(1000, 0x10));
    await until(() => stranger.state.is === "closed");
    node.send(bytes(1400, 0x10));
    await until(() => node.got.length === 2);
  });

  test("200 nodes behind one NAT reach both lighthouses of a machine, each gets its own answers, and others still have room", async () => {
    const engines = [await fakeEngine(), await fakeEngine()];
    const { url, forwarder } = listen({ engineAt: () => ({}) });
    const all = Array.from({ length: 200 }, () => engines.map(({ port }) => connect(`${url}${port}`))).flat();
    await until(() => all.every(({ state }) => state.is === "open"));
    for (const [at, each] of all.entries())
      each.send(Uint8Array.of(0x10, ...bytes(15, 0), at >> 8, at & 0xff));
    await until(() => all.every(({ got }) => got.length === 1));
    expect(all.map(({ got: [answer] }) => ((answer?.[16] ?? 0) << 8) | (answer?.[17] ?? 0))).toEqual([
      ...all.keys(),
    ]);
    expect(all.filter(({ state }) => state.is !== "open")).toEqual([]);
    // As many of the same address again would not reach it, but those of another one do.
    const sameAddress = Array.from({ length: 200 }, () => connect(`${url}${engines[0]?.port}`));
    await until(() => sameAddress.every(({ state }) => state.is !== "connecting"));
    expect(sameAddress.filter(({ state }) => state.is === "open")).toHaveLength(100);
    expect(forwarder.connections()).toBe(500);
    const other = connect(`${url.replace("127.0.0.1", "[::1]")}${engines[0]?.port}`);
    await until(() => other.state.is === "open");
    other.send(bytes(32, 0x10));
    await until(() => other.got.length === 1);
  });

  test("goes on where no engine listens, and passes on again when one does", async () => {
    const engine = await fakeEngine();
    const { port } = engine;
    ends.pop()?.();
    const { url } = listen({ engineAt: () => ({}) });
    const { got, state, send } = connect(`${url}${port}`);
    await until(() => state.is === "open");
    for (let sent = 0; sent < 20; sent++) {
      send(bytes(32, 0x10));
      await Bun.sleep(5);
    }
    expect([state.is, got.length]).toEqual(["open", 0]);
    await fakeEngine(0, port);
    await until(() => {
      send(bytes(32, 0x10));
      return got.length > 0;
    });
  });

  test("logs once why an engine cannot be asked", async () => {
    const lines: unknown[] = [];
    const warn = (_: string, fields?: object) => void lines.push(fields);
    // No address of this machine.
    const { url } = listen({ engineAt: () => ({ host: "203.0.113.7" }), log: { warn } });
    for (let n = 0; n < 2; n++) {
      const { state } = connect(`${url}4242`);
      await until(() => state.is === "closed");
    }
    expect(lines).toEqual([{ port: 4242, reason: expect.stringMatching(/./) }]);
  });

  test("drops what exceeds its rate", async () => {
    const engine = await fakeEngine();
    // A quarter of a second's bytes at once.
    const { url } = listen({ engineAt: () => ({}), bytesPerS: 40_000 });
    const { state, send } = connect(`${url}${engine.port}`);
    await until(() => state.is === "open");
    for (let sent = 0; sent < 100; sent++) send(bytes(1000, 0x10));
    await until(() => engine.from.length > 0);
    await Bun.sleep(200);
    expect(engine.from.length).toBeLessThan(30);
    expect(state.is).toBe("open");
  });

  test("ends a connection that goes on above the rate", async () => {
    const engine = await fakeEngine();
    const { url } = listen({ engineAt: () => ({}), bytesPerS: 40_000, limits: { excess: 200_000 } });
    const [flood, other] = [connect(`${url}${engine.port}`), connect(`${url}${engine.port}`)];
    await until(() => flood.state.is === "open" && other.state.is === "open");
    for (let sent = 0; sent < 400; sent++) flood.send(bytes(1000, 0x10));
    await until(() => flood.state.is === "closed");
    expect([flood.state.code, other.state.is]).toEqual([1008, "open"]);
  });

  test("new connections do not excuse one that goes on above the rate", async () => {
    const engine = await fakeEngine();
    const options = { bytesPerS: 4000, limits: { excess: 50_000 }, monotonic: () => 0 };
    const { url } = listen({ engineAt: () => ({}), ...options });
    const flood = connect(`${url}${engine.port}`);
    await until(() => flood.state.is === "open");
    // Each round is under the limit; a new connection follows each.
    for (let round = 0; round < 5 && flood.state.is === "open"; round++) {
      for (let sent = 0; sent < 30; sent++) flood.send(bytes(1000, 0x10));
      const next = connect(`${url}${engine.port}`);
      await until(() => next.state.is === "open");
    }
    await until(() => flood.state.is === "closed");
    expect(flood.state.code).toBe(1008);
  });
});

asRoot("the address from which an engine of this machine is asked", () => {
  test("is found without a default route, and is not that of an overlay", async () => {
    const module = join(import.meta.dir, "../../src/base/datagrams/own-address.ts");
    const line = `import { ownAddress } from ${JSON.stringify(module)}; console.log(await ownAddress());`;
    const make = [
      "ip link set lo up",
      "ip tuntap add mode tun name aaa",
      "ip address add 10.77.0.1/16 dev aaa",
      "ip link set aaa up",
      "ip link add lan type veth peer name other",
      "ip link set other up",
      "ip link set lan up",
      "ip address add 10.9.9.1/24 dev lan",
      '"$0" -e "$1"',
    ];
    const words = ["unshare", "--net", "sh", "-ec", make.join("; "), process.execPath, line];
    const child = Bun.spawn(words, { stdin: "ignore", stdout: "pipe", stderr: "pipe" });
    const [out, err] = await Promise.all([
      new Response(child.stdout).text(),
      new Response(child.stderr).text(),
    ]);
    expect([err, out.trim()]).toEqual(["", "10.9.9.1"]);
  });
});
