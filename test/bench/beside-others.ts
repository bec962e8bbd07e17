// `bun test/bench/beside-others.ts [ROUNDS] [SECONDS]`: our tunnel beside those of tailscaled and wireguard-go, between the
// same two namespaces, in turns: TCP of one and of four streams, processor time of both ends for each Gbit, round trip beside
// that of the path itself; and our tunnel through a relay. Each has its own defaults; ours is decided as on a node. Builds the
// others from the Go module proxy, in some minutes the first time. Needs root, and a machine without other work.

import { generateKeyPairSync } from "node:crypto";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { decideDataPlane, withDataPlane } from "../../src/node/files/config/data-plane.ts";
import { readKernel } from "../../src/platform/network/kernel.ts";
import type { YamlMap } from "../../src/base/yaml.ts";
import { installMissing } from "../support/debian.ts";
import { engineNamed } from "../support/engines.ts";
import { meet, startEngines, type EngineNetwork } from "../support/engine-pair.ts";
import { goProgram } from "../support/go-programs.ts";
import type { Host } from "../support/namespaces.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { until } from "../support/until.ts";
import { figure, median, processorSeconds } from "./measure.ts";
import { built, hasTailscale, startTailscale } from "./tailscale.ts";

const [rounds = 6, seconds = 5] = process.argv.slice(2).map(Number);
const missing = installMissing(["/usr/bin/iperf3", "/usr/sbin/nft"]);
if (missing !== undefined) throw new Error(missing);

/** One way from the client to the server. */
type Way = {
  name: string;
  client: Host;
  server: Host;
  address: string;
  /** What carries the packets, at both ends. */
  pids: readonly number[];
};
type Trial = { one: number; four: number; cpu: number; pingMs: number };

// Ours

function ours(config: YamlMap): YamlMap {
  const basis = { engine: "1.12.0", kernel: readKernel(), sent: config, own: {}, trial: undefined };
  return withDataPlane(config, decideDataPlane(basis, undefined, 0));
}

const startOurs = (directory: string, prepare: (hosts: readonly Host[]) => void, isRelayed: boolean) =>
  startEngines(
    engineNamed("1.12"),
    directory,
    ["hub", "client", "server"],
    (at) => ({
      ...ours({ tun: { dev: `pair${at}`, mtu: 1300 }, listen: { host: "0.0.0.0", port: 4242 } }),
      relay: { am_relay: at === 0, relays: at === 0 || !isRelayed ? [] : ["10.78.0.1"], use_relays: true },
    }),
    { prepare: ({ hosts }) => prepare(hosts) },
  );

async function wayOf(name: string, { nodes }: EngineNetwork): Promise<Way> {
  const [hub, client, server] = nodes;
  if (hub === undefined || client === undefined || server === undefined) throw new Error("Three nodes");
  for (const [from, to] of [
    [client, hub],
    [server, hub],
    [client, server],
  ] as const)
    await meet(from, to, 30_000);
  const pids = [client.engine.pid, server.engine.pid];
  return { name, client: client.host, server: server.host, address: server.address, pids };
}

/** The two nodes hear each other only through the first one. */
function cut([, client, server]: readonly Host[]): void {
  for (const [host, other] of [
    [client, server],
    [server, client],
  ] as const)
    host?.run([
      "nft",
      `table inet cut { chain in { type filter hook input priority 0; ip saddr ${other?.address ?? ""} udp dport 4242 drop; }; }`,
    ]);
}

// WireGuard

type Uapi = { privateKey: string; listen?: number; peer: string; allowed: string; endpoint: string };

/** In hexadecimal. */
function keyPair(): { own: string; shown: string } {
  const { privateKey, publicKey } = generateKeyPairSync("x25519");
  const last = (der: Buffer) => der.subarray(-32).toString("hex");
  return {
    own: last(privateKey.export({ type: "pkcs8", format: "der" })),
    shown: last(publicKey.export({ type: "spki", format: "der" })),
  };
}

async function startWireguard(client: Host, server: Host): Promise<Way> {
  const program = goProgram("wireguard-go");
  const pairs = [keyPair(), keyPair()];
  const pids: number[] = [];
  for (const [at, host] of [client, server].entries()) {
    const device = `wg${process.pid % 100_000}-${at}`;
    const child = host.spawn([program, "-f", device], { env: { WG_PROCESS_FOREGROUND: "1" } });
    pids.push(child.pid);
    const other = [server, client][at];
    await configureWireguard(device, {
      privateKey: pairs[at]?.own ?? "",
      listen: 51_820,
      peer: pairs[1 - at]?.shown ?? "",
      allowed: `10.79.0.${2 - at}/32`,
      endpoint: `${other?.address ?? ""}:51820`,
    });
    host.run(["ip", "addr", "add", `10.79.0.${at + 1}/24`, "dev", device]);
    host.run(["ip", "link", "set", device, "up"]);
  }
  return { name: "wireguard-go", client, server, address: "10.79.0.2", pids };
}

/** Its cross-platform protocol: lines of key=value on a Unix socket. */
async function configureWireguard(
  device: string,
  { privateKey, listen, peer, allowed, endpoint }: Uapi,
): Promise<void> {
  const path = `/var/run/wireguard/${device}.sock`;
  const lines = [
    "set=1",
    `private_key=${privateKey}`,
    `listen_port=${listen ?? 0}`,
    `public_key=${peer}`,
    `endpoint=${endpoint}`,
    `allowed_ip=${allowed}`,
  ];
  await until(async () => {
    const answer = Promise.withResolvers<string>();
    try {
      const socket = await Bun.connect({
        unix: path,
        socket: { data: (_, bytes) => answer.resolve(bytes.toString()) },
      });
      socket.write(`${lines.join("\n")}\n\n`);
      const text = await answer.promise;
      socket.end();
      if (!text.startsWith("errno=0")) throw new Error(`wireguard-go: ${text}`);
      return true;
    } catch (error) {
      if (error instanceof Error && error.message.startsWith("wireguard-go")) throw error;
      return undefined;
    }
  });
}

// Measuring

const Report = v.object({
  end: v.object({ sum_received: v.object({ bytes: v.number(), bits_per_second: v.number() }) }),
});

function transfer({ client, address }: Way, streams: number): { gbits: number; bits: number } {
  const argv = [
    "iperf3",
    "--json",
    "--time",
    String(seconds),
    "--parallel",
    String(streams),
    "--client",
    address,
  ];
  const { bytes, bits_per_second: rate } = v.parse(Report, JSON.parse(client.run(argv))).end.sum_received;
  return { gbits: rate / 1e9, bits: bytes * 8 };
}

function pingMs({ client, address }: Pick<Way, "client" | "address">): number {
  const text = client.run(["ping", "-n", "-i", "0.01", "-c", "200", address]);
  return median([...text.matchAll(/time=([\d.]+) ms/g)].map(([, ms]) => Number(ms)));
}

function measure(way: Way): Trial {
  const used = () => way.pids.reduce((sum, pid) => sum + processorSeconds(pid), 0);
  const before = used();
  const { gbits: one, bits } = transfer(way, 1);
  const cpu = (used() - before) / (bits / 1e9);
  const four = transfer(way, 4).gbits;
  const added = pingMs(way) - pingMs({ client: way.client, address: way.server.address });
  return { one, four, cpu, pingMs: added };
}

using directory = temporaryDirectory();
const isBeside = hasTailscale();
const hasWireguard = built("wireguard-go");
for (const each of ["direct", "relayed"]) mkdirSync(join(directory.path, each));
await using direct = await startOurs(join(directory.path, "direct"), () => {}, false);
await using through = await startOurs(join(directory.path, "relayed"), cut, true);
const [, client, server] = direct.lan.hosts;
if (client === undefined || server === undefined) throw new Error("Three hosts");
const ways = [await wayOf("ours", direct), await wayOf("ours, through a relay", through)];
if (isBeside) {
  const { addresses, pids } = await startTailscale(directory.path, direct.lan.hosts);
  ways.push({ name: "tailscaled", client, server, address: addresses[1] ?? "", pids });
}
if (hasWireguard) ways.push(await startWireguard(client, server));
for (const { server: host, address } of ways) host.spawn(["iperf3", "--server", "--bind", address]);
await Bun.sleep(500);
const trials = new Map(ways.map(({ name }): [string, Trial[]] => [name, []]));
// By turns, so that a busy moment of the machine concerns all.
for (let round = 0; round < rounds; round++) for (const way of ways) trials.get(way.name)?.push(measure(way));

const kinds = ["one", "four", "cpu", "pingMs"] as const;
const of = (name: string, kind: (typeof kinds)[number]) =>
  median((trials.get(name) ?? []).map((each) => each[kind]));
const spread = (name: string) => {
  const values = (trials.get(name) ?? []).map(({ one }) => one);
  return `${Math.min(...values).toFixed(2)} … ${Math.max(...values).toFixed(2)}`;
};
process.stdout.write(`Medians of ${rounds} rounds in turns; ${readKernel().release}\n`);
for (const { name } of ways)
  process.stdout.write(
    `${name.padEnd(22)} TCP × 1 ${of(name, "one").toFixed(2)} Gbit/s (${spread(name)}), × 4 ${of(name, "four").toFixed(2)}; ` +
      `${of(name, "cpu").toFixed(2)} s of processor a Gbit; ping + ${of(name, "pingMs").toFixed(3)} ms\n`,
  );
if (isBeside) {
  const ratio = (kind: (typeof kinds)[number]) => of("ours", kind) / of("tailscaled", kind);
  figure("TCP × 1, of tailscaled", ratio("one"), { digits: 2, least: 1.3 });
  figure("TCP × 4, of tailscaled", ratio("four"), { digits: 2, least: 1.3 });
  figure("processor time a Gbit, of tailscaled", ratio("cpu"), { digits: 2, most: 0.7 });
  figure("ping added, of tailscaled", ratio("pingMs"), { digits: 2, most: 0.8 });
}
figure("through a relay, of direct", of("ours, through a relay", "one") / of("ours", "one"), {
  digits: 2,
  least: 0.5,
});
