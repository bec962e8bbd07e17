// The node's side of TCP fallback: loopback, the connection, HTTP proxies, and what config.yml gets.

import { afterEach, describe, expect, test } from "bun:test";
import { createHash } from "node:crypto";
import { mkdirSync } from "node:fs";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import {
  forwarderRoute,
  makeForwarder,
  type ForwarderConnection,
} from "../../../src/base/datagrams/forwarder.ts";
import { sendOrLose } from "../../../src/base/datagrams/frames.ts";
import { openTcpWay } from "../../../src/node/edge/tcp-way.ts";
import { proxyFor } from "../../../src/base/connect-failure.ts";
import { staticHosts } from "../../../src/node/files/config/read-config.ts";
import {
  readTcpState,
  remoteLabels,
  withTcpAddresses,
  writeTcpState,
} from "../../../src/node/files/tcp-state.ts";
import { temporaryDirectory } from "../../support/temporary.ts";
import { until } from "../../support/until.ts";

let ends: (() => void)[] = [];
afterEach(() => {
  for (const end of ends.reverse()) end();
  ends = [];
});

/** Answers like an engine: recv_error for the question, and everything else with itself. */
async function listen() {
  const engine = await Bun.udpSocket({
    hostname: "0.0.0.0",
    socket: {
      data(own, datagram, port, address) {
        const answer = Uint8Array.from(datagram);
        if (datagram.length === 16 && datagram[15] === 1) answer[0] = 0x12;
        sendOrLose(() => own.send(answer, port, address));
      },
    },
  });
  using directory = temporaryDirectory();
  const [key, cert] = [join(directory.path, "key"), join(directory.path, "cert")];
  const words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=elsewhere";
  Bun.spawnSync(["openssl", ...words.split(" "), "-keyout", key, "-out", cert], { stderr: "ignore" });
  const tls = { key: await Bun.file(key).text(), cert: await Bun.file(cert).text() };
  const serve = (port: number) => {
    const forwarder = makeForwarder({
      engineAt: (asked) => (asked === engine.port ? {} : undefined),
      monotonic: () => performance.now(),
    });
    const server = Bun.serve<ForwarderConnection>({
      hostname: "127.0.0.1",
      port,
      tls,
      routes: {
        [forwarderRoute]: {
          GET: (request: Request, own: Bun.Server<ForwarderConnection>) =>
            forwarder.accept(request, own, "192.0.2.7"),
        },
      },
      fetch: () => new Response(null, { status: 404 }),
      websocket: forwarder.websocket,
    });
    const stop = () => {
      forwarder.close();
      return server.stop(true);
    };
    return { port: server.port ?? 0, stop };
  };
  let listener = serve(0);
  ends.push(() => {
    engine.close();
    void listener.stop();
  });
  const restart = async () => {
    await listener.stop();
    listener = serve(listener.port);
  };
  return { url: `wss://127.0.0.1:${listener.port}/tcp/${engine.port}`, restart };
}

/** An HTTP proxy that knows CONNECT alone. */
async function startProxy() {
  const asked: string[] = [];
  const proxy = createServer((socket) => {
    socket.on("error", () => undefined);
    socket.once("data", (data) => {
      const [, host = "", port = ""] = /^CONNECT ([^:]+):(\d+)/.exec(data.toString("latin1")) ?? [];
      asked.push(host);
      const to = connect(Number(port), host, () => {
        socket.write("HTTP/1.1 200 OK\r\n\r\n");
        socket.pipe(to).pipe(socket);
      });
      to.on("error", () => socket.destroy());
      socket.on("close", () => to.destroy());
    });
  });
  const { promise, resolve } = Promise.withResolvers<void>();
  proxy.listen(0, "127.0.0.1", resolve);
  await promise;
  ends.push(() => void proxy.close());
  const address = proxy.address();
  if (address === null || typeof address === "string") throw new Error("No port");
  return { url: `http://127.0.0.1:${address.port}`, asked };
}

async function openWay(url: string, change: { proxy?: string; enginePorts?: readonly number[] } = {}) {
  const way = await openTcpWay({
    url,
    proxy: change.proxy,
    port: 0,
    enginePorts: () => change.enginePorts ?? [],
    passes: () => true,
  });
  ends.push(() => way.close());
  return way;
}

async function program(to: number) {
  const got: Uint8Array[] = [];
  const socket = await Bun.udpSocket({
    hostname: "127.0.0.1",
    socket: { data: (_, bytes) => void got.push(Uint8Array.from(bytes)) },
  });
  ends.push(() => socket.close());
  return { port: socket.port, got, send: () => socket.send(new Uint8Array(40).fill(0x11), to, "127.0.0.1") };
}

test("a server is not offered compression: a few bytes of it could fill the memory of this machine", async () => {
  const { promise, resolve } = Promise.withResolvers<string>();
  const server = createServer((socket) => socket.once("data", (bytes) => resolve(bytes.toString())));
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  ends.push(() => server.close());
  const address = server.address();
  const port = typeof address === "object" ? (address?.port ?? 0) : 0;
  const options = { proxy: undefined, port: 0, enginePorts: () => [], passes: () => false };
  const way = await openTcpWay({ url: `ws://127.0.0.1:${port}/tcp/4242`, ...options });
  ends.push(() => way.close());
  const head = (await promise).toLowerCase();
  expect(head).toContain("upgrade: websocket");
  expect(head).not.toContain("sec-websocket-extensions");
});

/** Accepts a WebSocket, sends these bytes, and waits until the client ends the connection. */
async function endedAfter(sent: readonly Uint8Array[]): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const server = createServer((socket) => {
    socket.on("error", () => socket.destroy());
    socket.on("close", () => resolve(true));
    socket.once("data", (bytes) => {
      const [, key = ""] = /sec-websocket-key: (\S+)/i.exec(bytes.toString()) ?? [];
      const accepted = createHash("sha1")
        .update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
        .digest("base64");
      socket.write(
        `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accepted}\r\n\r\n`,
      );
      for (const each of sent) socket.write(each);
    });
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  ends.push(() => server.close());
  const address = server.address();
  const way = await openWay(`ws://127.0.0.1:${typeof address === "object" ? address?.port : 0}/tcp/4242`);
  const outcome = await Promise.race([promise, Bun.sleep(5000).then(() => false)]);
  way.close();
  return outcome;
}

test("a server cannot fill the memory of this machine with one message, whole or in parts", async () => {
  const part = (code: number, length: number) =>
    Uint8Array.of(
      code,
      127,
      0,
      0,
      0,
      0,
      length >>> 24,
      (length >>> 16) & 255,
      (length >>> 8) & 255,
      length & 255,
    );
  const filled = (code: number) => [part(code, 60_000), new Uint8Array(60_000)];
  // The length alone is enough: nothing of it is read.
  expect(await endedAfter([part(0x82, 120_000_000)])).toBe(true);
  expect(await endedAfter([filled(0x02), filled(0x00), filled(0x00)].flat())).toBe(true);
});

describe("a way by TCP", () => {
  test("asks the engine, and carries the engine's datagrams and no other program's", async () => {
    const { url } = await listen();
    const ports: number[] = [];
    const way = await openWay(url, { enginePorts: ports });
    const [engine, other] = [await program(way.port), await program(way.port)];
    ports.push(engine.port);
    expect(await way.ask(5000)).toBe(true);
    other.send();
    // What a program may send is looked at once a second.
    await Bun.sleep(1100);
    await until(() => {
      engine.send();
      return engine.got.length > 0;
    });
    for (let sent = 0; sent < 5; sent++) other.send();
    await Bun.sleep(200);
    expect([way.enginePort, other.got.length]).toEqual([engine.port, 0]);
  });

  test("connects again when the listener ends, and gives no answer meanwhile", async () => {
    const { url, restart } = await listen();
    const way = await openWay(url);
    expect(await way.ask(5000)).toBe(true);
    await restart();
    expect(await way.ask(10_000)).toBe(true);
    const nobody = await openWay("wss://127.0.0.1:9/tcp/4242");
    expect(await nobody.ask(500)).toBe(false);
  });

  test("goes through an HTTP proxy", async () => {
    const [{ url }, proxy] = [await listen(), await startProxy()];
    const way = await openWay(url, { proxy: proxy.url });
    expect(await way.ask(5000)).toBe(true);
    expect(proxy.asked).toEqual(["127.0.0.1"]);
  });
});

test("the proxy of the environment is that of the URL, in both spellings, unless the host is excepted", () => {
  const url = "wss://control.example.org/tcp/4242";
  const of = (env: Record<string, string>) => proxyFor(url, env);
  expect(of({})).toBeUndefined();
  expect(of({ HTTPS_PROXY: "http://proxy:3128" })).toBe("http://proxy:3128");
  expect(of({ https_proxy: "proxy:3128" })).toBe("http://proxy:3128");
  expect(of({ ALL_PROXY: "http://all:1" })).toBe("http://all:1");
  expect(of({ HTTP_PROXY: "http://plain:1" })).toBeUndefined();
  expect(of({ HTTPS_PROXY: "http://proxy:3128", NO_PROXY: "localhost, .example.org" })).toBeUndefined();
  expect(of({ HTTPS_PROXY: "http://proxy:3128", NO_PROXY: "ample.org,other" })).toBe("http://proxy:3128");
  expect(of({ HTTPS_PROXY: "http://proxy:3128", no_proxy: "*" })).toBeUndefined();
  expect(of({ HTTPS_PROXY: "" })).toBeUndefined();
});

test("config.yml gets the loopback addresses beside those that were sent, and its readers do not take them for lighthouses", () => {
  using directory = temporaryDirectory();
  mkdirSync(join(directory.path, "run"), { mode: 0o700 });
  const sent = { static_host_map: { "10.77.0.1": ["192.0.2.1:4242"], "10.77.0.2": ["192.0.2.2:4242"] } };
  expect(withTcpAddresses(sent, readTcpState(directory.path))).toEqual(sent);
  const state = {
    since: "2026-11-27T18:00:00Z",
    at: "control.example.org:443",
    ports: { "10.77.0.1": 40_001, "10.77.0.9": 40_009 },
  };
  writeTcpState(directory.path, state);
  expect(readTcpState(directory.path)).toEqual(state);
  const config = withTcpAddresses(sent, readTcpState(directory.path));
  expect(config["static_host_map"]).toEqual({
    "10.77.0.1": ["192.0.2.1:4242", "127.0.0.1:40001"],
    "10.77.0.2": ["192.0.2.2:4242"],
  });
  expect(staticHosts(JSON.stringify(config))).toEqual([
    { overlay: "10.77.0.1", host: "192.0.2.1", port: 4242 },
    { overlay: "10.77.0.2", host: "192.0.2.2", port: 4242 },
  ]);
  const labelOf = remoteLabels(directory.path);
  expect(["127.0.0.1:40001", "127.0.0.1:40002", "192.0.2.1:4242"].map(labelOf)).toEqual([
    "TCP 443",
    "127.0.0.1:40002",
    "192.0.2.1:4242",
  ]);
  writeTcpState(directory.path, undefined);
  expect(readTcpState(directory.path)).toBeUndefined();
});
