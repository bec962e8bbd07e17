// Flows as the kernel counts them, between two hosts with known traffic: none is missing, none is invented.

import { expect, test } from "bun:test";
import {
  beginGeneration,
  dropGenerations,
  isInForce,
  readFlows,
  readGenerations,
  type CountedFlows,
} from "../../../src/platform/network/flow-counter.ts";
import { discardPort, realSystem, type System } from "../../../src/base/system.ts";
import { asRoot } from "../../support/engines.ts";
import { inFull } from "../../support/soak.ts";
import { makeLan, type Host } from "../../support/namespaces.ts";

const traffic = `
  import net from "node:net"; import dgram from "node:dgram";
  const [, mode, address, family] = process.argv;
  if (mode === "serve") {
    net.createServer((s) => s.on("data", (d) => s.write(d)).on("error", () => {})).listen(5000, "::");
    for (const type of ["udp4", "udp6"]) {
      const s = dgram.createSocket({ type, ipv6Only: true }); s.bind(6000); s.on("message", (d, from) => s.send(d, from.port, from.address));
    }
    console.log("ready"); setInterval(() => {}, 1000);
  } else {
    const connect = (port) => new Promise((done) => {
      const s = net.connect(port, address, () => s.write("x")); s.on("data", () => { s.destroy(); done(); }); s.on("error", done);
    });
    for (let n = 0; n < 7; n++) await connect(5000);
    for (let n = 0; n < 2; n++) await connect(5001);
    for (let n = 0; n < 3; n++) await new Promise((done) => {
      const s = dgram.createSocket(family); s.on("message", () => { s.close(); done(); }); s.send("x", 6000, address);
    });
    await new Promise((done) => { const s = dgram.createSocket(family); s.send("x", 6009, address, () => { s.close(); done(); }); });
    process.exit(0);
  }`;

const manyServer = `
  const half = Number(process.argv[1]);
  for (let at = 0; at < half; at++) {
    require("node:net").createServer((s) => s.on("error", () => {}).end("x")).listen(10_000 + at);
    const s = require("node:dgram").createSocket("udp4"); s.bind(20_000 + at); s.on("message", (d, from) => s.send(d, from.port, from.address));
  }
  setInterval(() => {}, 1000);`;
const manyClient = `
  const [, address, text] = process.argv; const times = JSON.parse(text); const half = times.length / 2;
  for (const [kind, count] of times.entries()) for (let n = 0; n < count; n++)
    await new Promise((done) => {
      if (kind < half) require("node:net").connect(10_000 + kind, address).on("data", () => {}).on("close", done).on("error", done);
      else { const s = require("node:dgram").createSocket("udp4"); s.on("message", () => { s.close(); done(); }); s.bind(30_000 + n, () => s.send("x", 20_000 + kind - half, address)); }
    });
  process.exit(0);`;

const insideOf = (host: Host): Pick<System, "run" | "platform"> => ({
  platform: "linux",
  run: (argv, options) => realSystem().run(["/usr/bin/env", ...host.inside(argv)], options),
});
const sorted = (flows: readonly CountedFlows[]) =>
  flows
    .map((each) =>
      [each.incoming ? "in" : "out", each.peer, each.protocol, each.port, each.flows, each.answered].join(
        " ",
      ),
    )
    .sort();

asRoot("flows of two hosts", () => {
  test("each flow is counted once on both sides, with its answer, by IPv4 and IPv6", async () => {
    using lan = makeLan(["a", "b"]);
    const [a, b] = [lan.host("a"), lan.host("b")];
    for (const [host, address] of [
      [a, "fd77::1/64"],
      [b, "fd77::2/64"],
    ] as const)
      host.run(["ip", "addr", "add", address, "dev", "eth0", "nodad"]);
    const place = { slug: "acme", device: "eth0", networks: ["192.0.2.0/24", "fd77::/64"] };
    const [one, other] = [insideOf(a), insideOf(b)];
    for (const system of [one, other])
      expect(await beginGeneration(place, { number: 1, from: 100 }, system)).toBeUndefined();
    const server = b.spawn([process.execPath, "-e", traffic, "serve"]);
    await Bun.sleep(700);
    for (const [address, family] of [
      [b.address, "udp4"],
      ["fd77::2", "udp6"],
    ] as const) {
      a.run([process.execPath, "-e", traffic, "send", address, family]);
      a.run(["ping", "-c", "3", "-i", "0.05", address]);
    }
    // What an agent sends to wake the engine is no flow; anything else to the same port is one.
    const sending = (text: string) =>
      `require("node:dgram").createSocket("udp4").send(${JSON.stringify(text)}, ${discardPort}, "${b.address}", () => process.exit(0))`;
    for (const text of ["", "", "x"]) a.run([process.execPath, "-e", sending(text)]);
    const expected = (side: string, peers: readonly string[]) =>
      peers.flatMap((peer) => [
        `${side} ${peer} tcp 5000 7 7`,
        // Refused by a reset.
        `${side} ${peer} tcp 5001 2 0`,
        `${side} ${peer} udp 6000 3 3`,
        `${side} ${peer} udp 6009 1 0`,
        `${side} ${peer} icmp 0 1 1`,
        ...(peers[0] === peer ? [`${side} ${peer} udp 9 1 0`] : []),
      ]);
    // Without the questions of the bridge.
    const read = async (system: typeof one, upTo = 1) =>
      sorted((await readFlows("acme", { after: 0, upTo }, system))?.flows ?? []).filter(
        (line) => !line.includes(" 0.0.0.0 "),
      );
    expect(await read(one)).toEqual(expected("out", [b.address, "fd77::2"]).sort());
    expect(await read(other)).toEqual(expected("in", [a.address, "fd77::1"]).sort());

    // Another generation counts from its beginning, and names what goes on; the former one stays until it is dropped.
    const old = a.spawn(["ping", "-i", "0.05", b.address]);
    await Bun.sleep(300);
    expect(await beginGeneration(place, { number: 2, from: 400 }, one)).toBeUndefined();
    a.run(["ping", "-c", "1", "fd77::2"]);
    await Bun.sleep(200);
    old.kill();
    await old.exited;
    const young = [`out ${b.address} icmp 0 0 0`, "out fd77::2 icmp 0 1 1"];
    const present = await readGenerations("acme", one);
    expect(present.map(({ number, from }) => [number, from])).toEqual([
      [1, 100],
      [2, 400],
    ]);
    expect(isInForce(present.at(-1), place)).toBe(true);
    expect(isInForce(present.at(-1), { ...place, device: "eth1" })).toBe(false);
    expect(
      sorted((await readFlows("acme", { after: 1, upTo: 2 }, one))?.flows ?? []).filter(
        (line) => !line.includes(" 0.0.0.0 "),
      ),
    ).toEqual(young);
    expect(await read(one, 1)).toHaveLength(11);
    expect(await dropGenerations("acme", present.slice(0, 1), one)).toBeUndefined();
    expect(await read(one, 2)).toEqual(young);
    server.kill();
    await server.exited;
  }, 30_000);

  test(
    "of many hosts with many kinds of traffic, none is missing and none is invented",
    async () => {
      const [count, kinds] = inFull ? [40, 200] : [4, 20];
      using lan = makeLan(Array.from({ length: count }, (_, at) => `host${at}`));
      const place = { slug: "acme", device: "eth0", networks: ["192.0.2.0/24"] };
      for (const host of lan.hosts)
        expect(await beginGeneration(place, { number: 1, from: 0 }, insideOf(host))).toBeUndefined();
      const half = kinds / 2;
      const servers = lan.hosts.map((host) => host.spawn([process.execPath, "-e", manyServer, String(half)]));
      await Bun.sleep(inFull ? 8000 : 1500);
      const timesOf = (host: number, kind: number) => 1 + ((kind * 7 + host) % 3);
      for (const [at, host] of lan.hosts.entries()) {
        const to = lan.hosts[(at + 1) % count]?.address ?? "";
        const times = Array.from({ length: kinds }, (_, kind) => timesOf(at, kind));
        host.run([process.execPath, "-e", manyClient, to, JSON.stringify(times)]);
      }
      for (const [at, host] of lan.hosts.entries()) {
        const [next, former] = [lan.hosts[(at + 1) % count], lan.hosts[(at + count - 1) % count]];
        const expected = (side: string, peer: string | undefined, of: number) =>
          Array.from({ length: kinds }, (_, kind) => {
            const times = timesOf(of, kind);
            const [protocol, port] = kind < half ? ["tcp", 10_000 + kind] : ["udp", 20_000 + kind - half];
            return [side, peer, protocol, port, times, times].join(" ");
          });
        const found = await readFlows("acme", { after: 0, upTo: 1 }, insideOf(host));
        const lines = sorted(found?.flows ?? []).filter((line) => !line.includes(" 0.0.0.0 "));
        const known = [
          ...expected("out", next?.address, at),
          ...expected("in", former?.address, (at + count - 1) % count),
        ];
        expect({ at, lines }).toEqual({ at, lines: known.sort() });
        expect(found?.rest).toBe(0);
      }
      for (const server of servers) server.kill();
      await Promise.all(servers.map(({ exited }) => exited));
    },
    inFull ? 600_000 : 30_000,
  );
});
