// A name server of the overlay: which addresses it answers, for which names, where and how often.

import { afterEach, describe, expect, test } from "bun:test";
import { decode, encode, streamEncode } from "dns-packet";
import { createSocket } from "node:dgram";
import { connect } from "node:net";
import { tableOfClasses, type NamesForPeers } from "../../../src/protocol/names-for-peers.ts";
import { atOnce } from "../../../src/server/http/heavy-work.ts";
import type { NameRecord, Zone } from "../../../src/node/names/name-records.ts";
import { openNames, packNames } from "../../../src/node/names/packed-names.ts";
import { makeAllowance, makePeerServers } from "../../../src/node/names/peer-servers.ts";
import { describePeers } from "../../../src/node/names/describe-serving.ts";
import { indexForPeers } from "../../../src/node/names/name-index.ts";

/** web and db see each other, lone sees nothing. All addresses are of the loopback interface, so that a test has them. */
const classes = ["web", "db", "lone"].map((name) => ({ name, of: name }));
const pairs = new Set(["web db", "db web", "web web"]);
const peers: NamesForPeers = {
  digest: "1",
  ...atOnce(tableOfClasses(classes, (one, other) => pairs.has(`${one} ${other}`))),
};
const own = "127.77.0.1";
const zone: Zone = {
  slug: "acme",
  device: "lo",
  addresses: [`${own}/16`],
  domains: ["acme.internal", "77.127.in-addr.arpa"],
  peers,
};
const entry = (node: string, address: string, more: Partial<NameRecord> = {}): NameRecord => ({
  names: [`${node}.${more.slug ?? "acme"}.internal`],
  addresses: [address],
  slug: "acme",
  node,
  kind: "node",
  class: node,
  ...more,
});
const entries = [
  entry("names", own),
  entry("web", "127.77.0.2"),
  entry("db", "127.77.0.3"),
  entry("lone", "127.77.0.4"),
  entry("db", "127.77.0.3", { names: ["store.acme.internal"], kind: "alias" }),
  entry("db", "192.168.1.9", { names: ["printer.acme.internal"], kind: "alias" }),
  entry("other", "127.77.0.3", { slug: "home" }),
];
const known = (own: Zone = zone, names: readonly NameRecord[] = entries) => ({
  zones: [own],
  names: openNames(packNames(names)),
});

describe("the names that an address learns", () => {
  const all = ["names", "web", "db", "lone", "store", "printer"].map((each) => `${each}.acme.internal`);
  const learned = (asking: string, table = zone) => {
    const index = indexForPeers(known().names, table)(asking);
    return (
      index &&
      all.filter((name) => (index.find(name)?.addresses.length ?? 0) > 0).map((name) => name.split(".")[0])
    );
  };

  test("are its own, and those of the nodes that it sees", () => {
    expect(learned("127.77.0.2")).toEqual(["web", "db", "store", "printer"]);
    // A node sees itself, even if its class does not.
    expect(learned("127.77.0.3")).toEqual(["web", "db", "store", "printer"]);
    expect(learned("127.77.0.4")).toEqual(["lone"]);
    expect(learned(own)).toEqual(["names"]);
    expect(learned("127.77.0.4", { ...zone, peers: { ...peers, all: true } })).toHaveLength(all.length);
  });

  test("are none for an address that no node has, is behind a router, or of another organization", () => {
    for (const asking of ["127.77.0.9", "192.168.1.9", "", "no address", "::1"])
      expect(learned(asking)).toBeUndefined();
    expect(indexForPeers(known().names, { ...zone, slug: "home" })("127.77.0.2")).toBeUndefined();
    for (const table of [{ ...peers, too_many: true }, undefined])
      expect(
        indexForPeers(known().names, { slug: "acme", domains: [], ...(table && { peers: table }) })(
          "127.77.0.2",
        ),
      ).toBeUndefined();
  });

  test("have reverse names, and a hidden name or address is as one that does not exist", () => {
    const index = indexForPeers(known().names, zone)("127.77.0.2");
    expect(index?.find("3.0.77.127.in-addr.arpa")?.pointers).toEqual(["db.acme.internal"]);
    for (const name of [
      "lone.acme.internal",
      "nothing.acme.internal",
      "4.0.77.127.in-addr.arpa",
      "9.0.77.127.in-addr.arpa",
    ])
      expect(index?.find(name)).toBeUndefined();
    // Another organization has the same address.
    const toAll = indexForPeers(known().names, { ...zone, peers: { ...peers, all: true } })("127.77.0.4");
    expect(toAll?.find("3.0.77.127.in-addr.arpa")?.pointers).toEqual(["db.acme.internal"]);
    expect(index?.zoneOf("other.home.internal")).toBeUndefined();
    expect(index?.zoneOf("google.com")).toBeUndefined();
  });
});

test("an address gets 100 answers in a second, and takes none from others", () => {
  let now = 5000;
  const allows = makeAllowance(() => now);
  const count = (from: string, tries: number) =>
    Array.from({ length: tries }, () => allows(from)).filter((is) => is).length;
  expect(count("10.77.0.2", 1_000_000)).toBe(100);
  expect(count("10.77.0.3", 20)).toBe(20);
  // All together get 2,000.
  const rest = Array.from({ length: 10_000 }, (_, at) => count(`10.77.${at >> 8}.${(at & 255) + 4}`, 1));
  expect(rest.filter((each) => each === 1)).toHaveLength(2000 - 120);
  now += 1000;
  expect(count("10.77.0.2", 1000)).toBe(100);
});

describe.skipIf(process.platform !== "linux")("the sockets", () => {
  let servers: ReturnType<typeof makePeerServers>;
  let port = 0;
  let now = 1_000_000;
  let wall = 1_700_000_000_000;
  const clocks = { now: () => wall, monotonic: () => now };
  const make = (networks: readonly string[] | undefined) => {
    port = 20_000 + Math.floor(Math.random() * 10_000);
    servers = makePeerServers(networks, { ...clocks, port, isPresent: () => true });
    return servers;
  };
  afterEach(() => servers.close());
  const query = (name: string) => ({
    type: "query" as const,
    id: 7,
    questions: [{ type: "A" as const, name }],
  });
  const ask = async (from: string, name: string) => {
    const socket = createSocket("udp4");
    const { promise, resolve } = Promise.withResolvers<Buffer>();
    socket.on("message", resolve).bind(0, from, () => {
      socket.send(encode(query(name)), port, own);
    });
    const {
      questions,
      answers = [],
      rcode,
    } = { rcode: "", ...decode(await promise.finally(() => socket.close())) };
    return [questions?.[0]?.name, rcode, ...answers.map((each) => (each.type === "A" ? each.data : ""))];
  };
  /** What comes back over TCP until the end. */
  const overTcp = async (from: string, name: string) => {
    const { promise, resolve } = Promise.withResolvers<string>();
    const socket = connect({ port, host: own, localAddress: from });
    socket.on("data", (bytes: Buffer) =>
      resolve(
        decode(bytes.subarray(2))
          .answers?.map((each) => (each.type === "A" ? each.data : ""))
          .join() ?? "",
      ),
    );
    socket.on("error", () => resolve("ended")).on("close", () => resolve("ended"));
    socket.write(streamEncode(query(name)));
    return promise.finally(() => socket.destroy());
  };

  test("answer each node for what it sees, over UDP and TCP, and others not at all", async () => {
    expect(await make(["127.77.0.0/16"]).serve(known())).toEqual([
      { slug: "acme", address: own, state: "served" },
    ]);
    expect(await ask("127.77.0.2", "db.acme.internal")).toEqual([
      "db.acme.internal",
      "NOERROR",
      "127.77.0.3",
    ]);
    expect(await ask("127.77.0.2", "lone.acme.internal")).toEqual(["lone.acme.internal", "NXDOMAIN"]);
    expect(await ask("127.77.0.4", "db.acme.internal")).toEqual(["db.acme.internal", "NXDOMAIN"]);
    expect(await ask("127.77.0.4", "google.com")).toEqual(["google.com", "REFUSED"]);
    expect(await overTcp("127.77.0.2", "db.acme.internal")).toBe("127.77.0.3");
    expect(await overTcp("127.77.0.9", "db.acme.internal")).toBe("ended");
    expect(await overTcp("127.0.0.1", "db.acme.internal")).toBe("ended");
    // Answers come in the order of the questions: when another node has its own, this one was dropped.
    const unknown = createSocket("udp4");
    let isAnswered = false;
    await new Promise<void>((resolve) =>
      unknown.on("message", () => (isAnswered = true)).bind(0, "127.77.0.9", resolve),
    );
    await new Promise((resolve) => unknown.send(encode(query("db.acme.internal")), port, own, resolve));
    await ask("127.77.0.2", "db.acme.internal");
    unknown.close();
    expect(isAnswered).toBe(false);
    await servers.serve(known(zone, [...entries, entry("new", "127.77.0.9", { class: "db" })]));
    expect(await ask("127.77.0.9", "web.acme.internal")).toEqual([
      "web.acme.internal",
      "NOERROR",
      "127.77.0.2",
    ]);
    // No longer a name server.
    const { peers: _table, ...plain } = zone;
    expect(await servers.serve(known(plain))).toEqual([]);
    expect(await overTcp("127.77.0.2", "db.acme.internal")).toBe("ended");
  });

  test("keep the connection of a node while an address that gets no answer opens many", async () => {
    await make(["127.77.0.0/16"]).serve(known());
    const idle = connect({ port, host: own, localAddress: "127.77.0.2" });
    await new Promise((resolve) => idle.on("connect", resolve));
    const answer = new Promise<string>((resolve) => {
      idle.on("data", () => resolve("answered")).on("close", () => resolve("ended"));
    });
    // They ask nothing, and would be ended for that only after seconds.
    const silent = Array.from({ length: 40 }, () => connect({ port, host: own, localAddress: "127.77.0.9" }));
    await Promise.all(
      silent.map((each) => new Promise((resolve) => each.on("error", () => undefined).on("close", resolve))),
    );
    idle.write(streamEncode(query("db.acme.internal")));
    expect(await answer).toBe("answered");
    idle.destroy();
  });

  test("are not opened without root's permission, outside its networks, and for a table that does not fit", async () => {
    const many = { ...zone, peers: { ...peers, too_many: true } };
    for (const [networks, one, why] of [
      [undefined, zone, "root has not allowed it"],
      [["10.0.0.0/8"], zone, "installed before"],
      [["127.77.0.0/16"], many, "--names all"],
    ] as const) {
      const [state] = await make(networks).serve(known(one));
      expect(state).toMatchObject({ state: "off", reason: expect.stringContaining(why) });
      expect(await overTcp("127.77.0.2", "db.acme.internal")).toBe("ended");
      servers.close();
    }
  });

  test("are tried again, and the reason is said, while another program has the port", async () => {
    make(["127.77.0.0/16"]);
    const other = Bun.listen({ hostname: own, port, socket: { data() {} } });
    const [state] = await servers.serve(known());
    expect(state).toMatchObject({ state: "failed" });
    expect(describePeers(state ?? expect.unreachable())).toContain("another program uses this port");
    other.stop(true);
    expect(await servers.serve(known())).toMatchObject([{ state: "failed" }]);
    now += 10_000;
    // The clock of the machine is set back.
    wall -= 86_400_000;
    expect(await servers.serve(known())).toMatchObject([{ state: "served" }]);
  });

  test("wait for the engine's interface, and are not opened at an address of another one", async () => {
    servers = makePeerServers(["127.0.0.0/8"], { ...clocks, port: 20_000 });
    expect(await servers.serve(known())).toMatchObject([{ state: "waiting" }]);
  });
});
