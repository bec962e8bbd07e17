// `bun test/bench/blocked-udp.ts [ROUNDS] [SECONDS]`: an idle node loses UDP, and gets it again: seconds until it goes by TCP and until
// it leaves TCP (bars: 10 and 30), and what TCP of iperf3 carries to a peer through the relay meanwhile, beside the same relay by UDP.
// Both nodes are reached through the relay alone. Engine 1.12. Needs root.

import { join } from "node:path";
import * as v from "valibot";
import { readTcpState } from "../../src/node/files/tcp-state.ts";
import { buildAgent, startControlPlane } from "../support/agent.ts";
import { blockUdp, permitUdp } from "../support/block-udp.ts";
import { installMissing } from "../support/debian.ts";
import { engineNamed } from "../support/engines.ts";
import { dropFrom } from "../support/healing-scene.ts";
import { joinMember } from "../support/members.ts";
import { makeLan, startPing } from "../support/namespaces.ts";
import { makeOrganization } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { until } from "../support/until.ts";
import { figure } from "./measure.ts";

const [rounds = 3, seconds = 5] = process.argv.slice(2).map(Number);
const missing = installMissing(["/usr/bin/iperf3", "/usr/sbin/nft"]);
if (missing !== undefined) throw new Error(missing);
const settleMs = 5000;
/** After that a peer without traffic is idle for health. */
const idleMs = 40_000;

buildAgent();
await using stack = new AsyncDisposableStack();
const directory = stack.use(temporaryDirectory());
const lan = stack.use(makeLan(["lh", "a", "b"]));
const plane = stack.use(await startControlPlane(join(directory.path, "server")));
const acme = await makeOrganization(plane);
const token = await acme.makeToken(["--uses", "9", "--lighthouse"]);
const add = async (name: string) => {
  const host = lan.host(name);
  const hub = ["--is-lighthouse", "--is-relay", "--public-ip", host.address, "--tcp-fallback", ":443"];
  const flags = name === "lh" ? hub : [];
  return stack.use(await joinMember(acme, host, directory.path, engineNamed("1.12").nebula, token, flags));
};
await add("lh");
const [a, b] = [await add("a"), await add("b")];
dropFrom(a.host, b.host.address);
dropFrom(b.host, a.host.address);
const rule = {
  direction: "inbound",
  protocol: "tcp",
  ports: "5201",
  peer: { any: true },
  target: { any: true },
};
const added = await acme.api("POST", `/api/org/acme/firewall_rules/`, rule);
if (!added.ok) throw new Error(await added.text());
b.host.spawn(["iperf3", "--server"]);
const files = join(a.places.configRoot, "acme");
const isByTcp = () => readTcpState(files) !== undefined;

const Report = v.object({ end: v.object({ sum_received: v.object({ bits_per_second: v.number() }) }) });
async function rate(): Promise<number> {
  const ping = startPing(a.host, b.ip);
  await ping.reply(60_000);
  // A tunnel may be made twice after a change.
  await Bun.sleep(settleMs);
  await ping.stop();
  const argv = ["iperf3", "--json", "--time", String(seconds), "--client", b.ip];
  return v.parse(Report, JSON.parse(a.host.run(argv))).end.sum_received.bits_per_second / 1e6;
}

async function secondsUntil(isSo: () => boolean): Promise<number> {
  const from = performance.now();
  await until(isSo, { ms: 60_000, everyMs: 50 });
  return (performance.now() - from) / 1000;
}

const taken = { noticed: [] as number[], left: [] as number[], byTcp: [] as number[], byUdp: [] as number[] };
await rate();
for (let round = 0; round < rounds; round++) {
  taken.byUdp.push(await rate());
  // At another moment between two probes each time.
  await Bun.sleep(idleMs + round * 2300);
  blockUdp(a.host);
  taken.noticed.push(await secondsUntil(isByTcp));
  taken.byTcp.push(await rate());
  permitUdp(a.host);
  taken.left.push(await secondsUntil(() => !isByTcp()));
  // The engine follows within seconds.
  await Bun.sleep(20_000);
}
figure("UDP is blocked: goes by TCP after", taken.noticed, { unit: "s", most: 10 });
figure("UDP passes again: leaves TCP after", taken.left, { unit: "s", most: 30 });
figure("through the relay by UDP", taken.byUdp, { unit: "Mbit/s", digits: 0 });
figure("through the relay by TCP fallback", taken.byTcp, { unit: "Mbit/s", digits: 0 });
figure(
  "ratio, round by round",
  taken.byTcp.map((each, at) => each / (taken.byUdp[at] ?? Infinity)),
  { digits: 2 },
);
