// `bun test/bench/offload-paths.ts [CASE…]`: what offloads of engine 1.12 change on many kinds of paths. For each: a file in
// both directions with its hash, TCP throughput, the round trip of small packets beside it, and packets with wrong
// checksums, with offloads at both ends, at one, and at none. Exit status 1 if a file is damaged, a checksum is wrong, or
// offloads carry less than nine tenths of what the same path carries without. Needs root.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import type { YamlMap } from "../../src/base/yaml.ts";
import { installMissing, runSync } from "../support/debian.ts";
import { engineNamed, type EngineName } from "../support/engines.ts";
import { meet, startEngines, type EngineHost, type EngineNetwork } from "../support/engine-pair.ts";
import type { Host } from "../support/namespaces.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const missing = installMissing(["/usr/bin/iperf3", "/usr/sbin/ethtool", "/usr/sbin/nft", "/usr/sbin/tc"]);
if (missing !== undefined) throw new Error(missing);

const buffer = 4 * 1024 * 1024;
const seconds = 3;

type Case = {
  engines?: readonly [EngineName, EngineName];
  /** Of the tunnel. */
  mtu?: number;
  /** Before the engines start. */
  prepare?(hosts: readonly Host[]): void;
  /** Of the underlay. */
  ipv6?: true;
  vlan?: true;
  relayed?: true;
  /** The server is behind the second node. */
  masquerade?: true;
  /** Offloads may carry less there: nothing is gained, and the noise of the machine is larger than the difference. */
  isSlow?: true;
  /** Of the file; default 32. */
  mib?: number;
};

const all = (hosts: readonly Host[], ...argv: string[]) => hosts.forEach((host) => host.run(argv));
/** Wraps argv, to run it where the bridge is. */
const atBridge = (hosts: readonly Host[], ...argv: string[]) =>
  runSync([`nsenter`, `--net=/run/netns/${(hosts[0]?.namespace ?? "").replace(/\d+$/, "hub")}`, ...argv]);
const underlayMtu = (bytes: number) => (hosts: readonly Host[]) => {
  for (const [at, host] of hosts.entries()) {
    atBridge(hosts, "ip", "link", "set", `port${at + 1}`, "mtu", String(bytes));
    host.run(["ip", "link", "set", "eth0", "mtu", String(bytes)]);
  }
};
const withoutSegmentation = (hosts: readonly Host[]) =>
  all(
    hosts,
    "ethtool",
    "-K",
    "eth0",
    ...["tso", "gso", "gro", "tx-udp-segmentation"].flatMap((each) => [each, "off"]),
  );
/** On the wire, where each packet is alone: a rule at one end would drop many at once that the kernel carries as one. */
const lose = (percent: number) => (hosts: readonly Host[]) => {
  withoutSegmentation(hosts);
  const drop = `numgen random mod 100 < ${percent} drop`;
  atBridge(
    hosts,
    "nft",
    `table bridge loss { chain out { type filter hook forward priority 0; ip protocol udp ${drop}; }; }`,
  );
};

const cases: Readonly<Record<string, Case>> = {
  plain: {},
  ipv6: { ipv6: true },
  vlan: { vlan: true },
  "tunnel of 1280 bytes": { mtu: 1280 },
  "tunnel of 8900 bytes, path of 9000": { mtu: 8900, prepare: underlayMtu(9000) },
  "path of 1300 bytes, which fragments": { prepare: underlayMtu(1300), isSlow: true },
  "no checksum offload": { prepare: (hosts) => all(hosts, "ethtool", "-K", "eth0", "tx", "off") },
  "no segmentation offload": { prepare: withoutSegmentation },
  "queue of a home router": {
    prepare: (hosts) => all(hosts, "tc", "qdisc", "add", "dev", "eth0", "root", "fq_codel"),
  },
  "20 % loss": { prepare: lose(20), isSlow: true, mib: 1 },
  "1 % loss": { prepare: lose(1), isSlow: true, mib: 8 },
  relayed: { relayed: true },
  "router that masquerades": { masquerade: true },
  "engine 1.6.1 beside 1.12": { engines: ["debian", "1.12"] },
  "engine 1.12 beside 1.6.1": { engines: ["1.12", "debian"] },
  "engine 1.11 beside 1.12": { engines: ["sid", "1.12"] },
};

type Ends = "none" | "client" | "server" | "both";
type Result = { gbits: number; rttMs: number; wrong: number; damaged: boolean };

const Report = v.object({ end: v.object({ sum_received: v.object({ bits_per_second: v.number() }) }) });

const script = `
const [how, address, path] = process.argv.slice(2);
if (how === "serve") Bun.serve({ hostname: address, port: 8080, fetch: async (request) =>
  request.method === "PUT" ? new Response(hash(await request.arrayBuffer())) : new Response(Bun.file(path)) });
else {
  const own = await Bun.file(path).arrayBuffer();
  const got = await (await fetch("http://" + address + ":8080/")).arrayBuffer();
  const sent = await (await fetch("http://" + address + ":8080/", { method: "PUT", body: own })).text();
  console.log(hash(got) === hash(own) && sent === hash(own) ? "whole" : "damaged");
}
function hash(bytes) { return new Bun.CryptoHasher("sha256").update(bytes).digest("hex"); }
`;

async function measure(each: Case, ends: Ends): Promise<Result> {
  using directory = temporaryDirectory();
  const [client, server, network] = await start(each, ends, directory.path);
  await using _ = network;
  const [transfer, file] = [join(directory.path, "transfer.js"), join(directory.path, "file")];
  writeFileSync(transfer, script);
  runSync(["dd", "if=/dev/urandom", `of=${file}`, "bs=1M", `count=${each.mib ?? 32}`, "status=none"]);
  const { host, address } = server;
  host.spawn([process.execPath, transfer, "serve", address, file]);
  host.spawn(["iperf3", "--server", "--bind", address]);
  await Bun.sleep(500);
  const outcome = client.host
    .run(["timeout", "120", process.execPath, transfer, "ask", address, file])
    .trim();
  const ping = Bun.spawn(client.host.inside(["ping", "-q", "-i", "0.02", "-c", "100", "-s", "64", address]), {
    stdout: "pipe",
  });
  const rttMs = Number(
    /= [\d.]+\/([\d.]+)\//.exec(await new Response(ping.stdout).text())?.[1] ?? Number.NaN,
  );
  const printed = client.host.run(["iperf3", "--json", "--time", String(seconds), "--client", address]);
  const gbits = v.parse(Report, JSON.parse(printed)).end.sum_received.bits_per_second / 1e9;
  const wrong = network.lan.hosts.reduce((sum, each) => sum + wrongChecksums(each), 0);
  return { gbits, rttMs, wrong, damaged: outcome !== "whole" };
}

/** Packets that the kernel of this namespace dropped for their checksums. */
function wrongChecksums(host: Host): number {
  const table = host.run(["cat", "/proc/net/snmp", "/proc/net/snmp6"]);
  const lines = table.split("\n").map((line) => line.trim().split(/\s+/));
  const older = ["Tcp:", "Udp:", "Icmp:"].map((name) => {
    const [titles = [], values = []] = lines.filter(([first]) => first === name);
    return Number(values[titles.indexOf("InCsumErrors")] ?? 0);
  });
  const newer = lines
    .filter(([name = ""]) => name.endsWith("6InCsumErrors"))
    .map(([, count]) => Number(count));
  return [...older, ...newer].reduce((sum, each) => sum + each, 0);
}

type Server = Pick<EngineHost, "host" | "address">;

async function start(each: Case, ends: Ends, root: string): Promise<[EngineHost, Server, EngineNetwork]> {
  const [first, second] = each.engines ?? ["1.12", "1.12"];
  const names = ["hub", "client", "server", ...(each.masquerade ? ["behind"] : [])];
  const engineOf = (at: number) => engineNamed(at === 1 ? first : second);
  const has = (at: number) =>
    ends === "both" || (ends === "client" && at === 1) || (ends === "server" && at === 2);
  const network = await startEngines(
    engineOf,
    root,
    names,
    (at) => settingsOf(each, at, has(at) || (at === 0 && ends === "both")),
    {
      prepare: (lan) => prepare(each, lan.hosts),
      subnets: (at) => (each.masquerade && at === 2 ? ["203.0.113.0/24"] : []),
      engines: 3,
    },
  );
  const [hub, client, server] = network.nodes;
  const [, , , behind] = network.lan.hosts;
  if (hub === undefined || client === undefined || server === undefined) throw new Error("Three nodes");
  await meet(client, hub);
  await meet(server, hub);
  if (behind === undefined) {
    await meet(client, server);
    return [client, server, network];
  }
  await meet(client, server);
  return [client, { host: behind, address: "203.0.113.9" }, network];
}

function settingsOf(each: Case, at: number, offloads: boolean): YamlMap {
  const address = (number: number) => underlay(each, number);
  return {
    static_host_map: { "10.78.0.1": [`${each.ipv6 ? `[${address(1)}]` : address(1)}:4242`] },
    tun: {
      dev: `pair${at}`,
      mtu: each.mtu ?? 1300,
      use_offloads: offloads,
      ...(each.masquerade && at === 1
        ? { unsafe_routes: [{ route: "203.0.113.0/24", via: "10.78.0.3" }] }
        : {}),
    },
    listen: {
      host: each.ipv6 ? "::" : "0.0.0.0",
      port: 4242,
      udp_offloads: offloads,
      read_buffer: buffer,
      write_buffer: buffer,
    },
    firewall: { outbound: [any], inbound: [any] },
    relay: { am_relay: at === 0, relays: at === 0 || !each.relayed ? [] : ["10.78.0.1"], use_relays: true },
  };
}

/** Also about what is behind a node. */
const any = { port: "any", proto: "any", host: "any", local_cidr: "0.0.0.0/0" };

const underlay = (each: Case, number: number) =>
  each.ipv6 ? `fd00:7::${number}` : each.vlan ? `198.51.100.${number}` : `192.0.2.${number}`;

function prepare(each: Case, hosts: readonly Host[]): void {
  for (const [at, host] of hosts.entries()) {
    if (each.vlan) {
      host.run(["ip", "link", "add", "link", "eth0", "name", "eth0.7", "type", "vlan", "id", "7"]);
      host.run(["ip", "addr", "add", `198.51.100.${at + 1}/24`, "dev", "eth0.7"]);
      host.run(["ip", "link", "set", "eth0.7", "up"]);
    }
    if (each.ipv6) host.run(["ip", "addr", "add", `fd00:7::${at + 1}/64`, "dev", "eth0", "nodad"]);
  }
  const [, client, server, behind] = hosts;
  if (each.relayed && client !== undefined && server !== undefined)
    for (const [host, other] of [
      [client, 3],
      [server, 2],
    ] as const)
      host.run([
        "nft",
        `table inet cut { chain in { type filter hook input priority 0; ip saddr 192.0.2.${other} drop; }; }`,
      ]);
  if (each.masquerade && server !== undefined && behind !== undefined) {
    server.run(["ip", "addr", "add", "203.0.113.1/24", "dev", "eth0"]);
    behind.run(["ip", "addr", "add", "203.0.113.9/24", "dev", "eth0"]);
    behind.run(["ethtool", "-K", "eth0", "rx", "off"]);
    server.run(["ethtool", "-K", "eth0", "tx", "off"]);
    server.run(["sysctl", "-qw", "net.ipv4.ip_forward=1"]);
    server.run([
      "nft",
      "table ip nat { chain post { type nat hook postrouting priority 100; oifname eth0 ip daddr 203.0.113.0/24 masquerade; }; }",
    ]);
  }
  each.prepare?.(hosts);
}

const chosen = process.argv.slice(2);
let failed = false;
for (const [name, each] of Object.entries(cases)) {
  if (chosen.length > 0 && !chosen.some((word) => name.includes(word))) continue;
  process.stdout.write(`${name}\n`);
  let none: Result;
  try {
    none = await measure(each, "none");
  } catch (error) {
    // A kernel without VLANs, for example: nothing of ours has run.
    process.stdout.write(
      `  skipped: ${error instanceof Error ? error.message.split("\n").slice(0, 2).join(": ") : String(error)}\n`,
    );
    continue;
  }
  const results: [Ends, Result][] = [["none", none]];
  for (const ends of ["both", "client", "server"] as const) results.push([ends, await measure(each, ends)]);
  for (const [ends, { gbits, rttMs, wrong, damaged }] of results) {
    const isBad =
      damaged || wrong > none.wrong || (ends === "both" && each.isSlow !== true && gbits < 0.9 * none.gbits);
    failed ||= isBad;
    process.stdout.write(
      `  offloads at ${ends.padEnd(6)} ${gbits.toFixed(3)} Gbit/s, ping ${rttMs.toFixed(2)} ms, wrong checksums ${wrong}${damaged ? ", file DAMAGED" : ""}${isBad ? "  <- worse" : ""}\n`,
    );
  }
}
process.exitCode = failed ? 1 : 0;
