// `bun test/bench/node-at-rest.ts [ROUNDS] [SECONDS]`: an idle node (daemon and engine) and an idle tailscaled, side by side in
// the same seconds: private memory, processor time, switches, and the traffic at the machine's interface. Each node knows one
// other, its lighthouse or a peer, and its control plane over TLS. The lighthouse offers TCP fallback, as that of \`agent setup\` does.
// Needs root.

import { join } from "node:path";
import { parseJoinKey } from "../../src/protocol/join-key.ts";
import { agent, buildAgent, runAgent } from "../support/agent.ts";
import { enginesOf, placesBelow, startDaemon, untilStatus } from "../support/daemon.ts";
import { engineNamed } from "../support/engines.ts";
import { makeLan, type Host } from "../support/namespaces.ts";
import { owner } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { until } from "../support/until.ts";
import {
  figure,
  median,
  print,
  privateMb,
  processorSeconds,
  residentKb,
  spread,
  switches,
} from "./measure.ts";
import { hasTailscale, startTailscale } from "./tailscale.ts";

const [rounds = 3, seconds = 60, settleS = 60] = process.argv.slice(2).map(Number);
const bars = { mb: 18, cpu: 0.3, traffic: 10 } as const;

type Part = { name: string; pid: number };
type Contestant = { name: string; host: Host; parts: Part[] };

/** The node `desk` of a new organization, whose lighthouse is `hub`. */
async function startOurs(
  directory: string,
  [plane, hub, desk]: readonly Host[],
): Promise<{ serving: number; parts: Part[] }> {
  if (plane === undefined || hub === undefined || desk === undefined) throw new Error("Three hosts");
  const data = join(directory, "data");
  const admin = async (words: readonly string[], input = "") => {
    const { status, stdout, stderr } = await runAgent(["admin", ...words, "--data-dir", data], { input });
    if (status !== 0) throw new Error(`agent admin ${words.join(" ")}: ${stderr}`);
    return stdout;
  };
  const url = `https://${plane.address}:8420`;
  const listen = ["--listen", `${plane.address}:8420`, "--tls", "auto", "--public-url", url];
  const { pid: serving } = plane.spawn([agent, "serve", "--data-dir", data, ...listen]);
  await until(
    () => Bun.spawnSync(plane.inside(["curl", "-sfk", "-o", "/dev/null", `${url}/healthz`])).exitCode === 0,
  );
  await admin(["user", "create", owner.email, "--password-file", "-"], owner.password);
  await admin(["org", "create", "acme", "--network", "10.77.0.0/16", "--owner", owner.email]);
  const words = ["token", "create", "acme", "--uses", "2", "--lighthouse", "--json"];
  const { join_key: key, token } = JSON.parse(await admin(words)) as { join_key: string; token: string };
  const pinned = ["--ca-fingerprint", parseJoinKey(key).caFingerprint ?? ""];
  const parts: Part[] = [];
  for (const host of [hub, desk]) {
    const places = placesBelow(join(directory, host.name), engineNamed("1.12").nebula);
    const target = ["--api-base", url, ...pinned, "--org-slug", "acme", "--node-name", host.name];
    const roles =
      host === hub ? ["--is-lighthouse", "--public-ip", host.address, "--tcp-fallback", ":443"] : [];
    const how = ["--registration-token-file", "-", "--mode", "desktop", "--no-start", ...roles];
    const registered = await runAgent(["register", ...target, ...how, ...places.flags], {
      input: token,
      inside: host.inside,
    });
    if (registered.status !== 0) throw new Error(registered.stderr);
    const daemon = await startDaemon(host, places);
    await untilStatus(places, "acme", ({ state }) => state === "running");
    if (host === hub) continue;
    const [engine = 0] = await until(() => enginesOf(places).filter(Boolean));
    parts.push({ name: "agent", pid: daemon.pid }, { name: "engine", pid: engine });
  }
  return { serving, parts };
}

const protocols = ["udp", "tcp", "icmp"] as const;

/** Counts packets of the interface by what carries them: the engine has UDP, the agent TCP. */
function countTraffic(host: Host): void {
  const counters = protocols.map((each) => `counter of_${each} { }; `).join("");
  const chain = (hook: string, way: string) => {
    const rules = protocols.map((each) => `${way} eth0 meta l4proto ${each} counter name of_${each}; `);
    return `chain ${hook} { type filter hook ${hook} priority 0; ${rules.join("")} }; `;
  };
  const table = `${counters}${chain("input", "iifname")}${chain("output", "oifname")}`;
  host.run(["nft", `table inet bench { ${table} }`]);
}

function trafficOf(host: Host): Record<string, number> {
  const [, received = "0", sent = "0"] =
    /eth0:\s+(\d+)(?:\s+\d+){7}\s+(\d+)/.exec(host.run(["cat", "/proc/net/dev"])) ?? [];
  const counters = host.run(["nft", "list", "counters", "table", "inet", "bench"]);
  const kinds = [...counters.matchAll(/counter of_(\w+) \{\s*packets (\d+) bytes (\d+)/g)].flatMap(
    ([, kind = "", packets, bytes]) => [
      [kind, Number(bytes)] as const,
      [`${kind} packets`, Number(packets)] as const,
    ],
  );
  return { all: Number(received) + Number(sent), ...Object.fromEntries(kinds) };
}

type Window = { mb: number; cpu: number; switches: number; traffic: number; more: Record<string, number> };

function begin({ host, parts }: Contestant): () => Window {
  const read = () => ({
    parts: parts.map(({ pid }) => ({ cpu: processorSeconds(pid), switches: switches(pid) })),
    traffic: trafficOf(host),
  });
  const before = read();
  const from = performance.now();
  return () => {
    const after = read();
    const s = (performance.now() - from) / 1000;
    const more: Record<string, number> = {};
    const sum = (values: readonly number[]) => values.reduce((total, each) => total + each, 0);
    const of = (key: "cpu" | "switches") =>
      parts.map((_, at) => ((after.parts[at]?.[key] ?? 0) - (before.parts[at]?.[key] ?? 0)) / s);
    for (const [at, { name, pid }] of parts.entries()) {
      more[`${name} MB`] = privateMb(pid);
      more[`${name} % of a processor`] = 100 * (of("cpu")[at] ?? 0);
      more[`${name} switches/s`] = of("switches")[at] ?? 0;
    }
    for (const [kind, count] of Object.entries(after.traffic)) {
      const perDay = ((count - (before.traffic[kind] ?? 0)) / s) * 86_400;
      if (kind !== "all" && perDay > 0)
        more[kind.endsWith("packets") ? `${kind}/min` : `${kind} MB a day`] = kind.endsWith("packets")
          ? perDay / 1440
          : perDay / 1e6;
    }
    return {
      mb: sum(parts.map(({ pid }) => privateMb(pid))),
      cpu: 100 * sum(of("cpu")),
      switches: sum(of("switches")),
      traffic: (((after.traffic["all"] ?? 0) - (before.traffic["all"] ?? 0)) / s) * 0.0864,
      more,
    };
  };
}

buildAgent();
using directory = temporaryDirectory();
const isBeside = hasTailscale();
using lan = makeLan(["plane", "hub", "desk", "control", "peer", "client"]);
const [plane, hub, desk, control, peer, client] = lan.hosts;
if (desk === undefined || client === undefined) throw new Error("Six hosts");
const { serving, parts } = await startOurs(
  directory.path,
  [plane, hub, desk].flatMap((each) => each ?? []),
);
const contestants: Contestant[] = [{ name: "agent and engine", host: desk, parts }];
if (isBeside) {
  const { pids } = await startTailscale(
    directory.path,
    [control, peer, client].flatMap((each) => each ?? []),
  );
  contestants.push({ name: "tailscaled", host: client, parts: [{ name: "tailscaled", pid: pids[1] ?? 0 }] });
}
for (const { host } of contestants) countTraffic(host);
await Bun.sleep(settleS * 1000);
const windows = contestants.map((): Window[] => []);
for (let round = 0; round < rounds; round++) {
  const running = contestants.map(begin);
  await Bun.sleep(seconds * 1000);
  for (const [at, end] of running.entries()) windows[at]?.push(end());
}
const of = (at: number, key: "mb" | "cpu" | "switches" | "traffic") =>
  median((windows[at] ?? []).map((each) => each[key]));
for (const [at, { name }] of contestants.entries()) {
  const all = windows[at] ?? [];
  const figure = (key: "mb" | "cpu" | "switches" | "traffic", digits: number) =>
    spread(
      all.map((each) => each[key]),
      digits,
    );
  print(
    `${name}: ${figure("mb", 1)} MB private, ${figure("cpu", 2)} % of a processor, ${figure("switches", 0)} switches a second, ${figure("traffic", 1)} MB a day`,
  );
  for (const key of Object.keys(all[0]?.more ?? {}))
    print(
      `    ${key}: ${spread(
        all.map(({ more }) => more[key] ?? 0),
        2,
      )}`,
    );
}
print(
  `the control plane of two nodes: ${privateMb(serving).toFixed(1)} MB private, ${(residentKb(serving) / 1024).toFixed(1)} MB resident`,
);
figure("private memory, MB", of(0, "mb"), { digits: 2, most: bars.mb });
figure("processor, %", of(0, "cpu"), { digits: 2, most: bars.cpu });
figure("traffic, MB a day", of(0, "traffic"), { digits: 2, most: bars.traffic });
if (isBeside)
  for (const key of ["mb", "cpu", "switches", "traffic"] as const)
    print(`${key}: ${(of(0, key) / of(1, key)).toFixed(2)} of tailscaled`);
