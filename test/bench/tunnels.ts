// `bun test/bench/tunnels.ts [PEERS] [SECONDS]`: what a daemon costs whose node has tunnels with many peers, each with an engine
// of its own, that it pings each second: processor time and anonymous memory (bars: 1 % of a core, 25 MB). Needs root.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { buildAgent, startControlPlane } from "../support/agent.ts";
import { command } from "../support/daemon.ts";
import { engineNamed } from "../support/engines.ts";
import { joinMember, nodesOf, until } from "../support/members.ts";
import { makeLan, startPing } from "../support/namespaces.ts";
import { makeOrganization, registerNode, startEngine } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { anonymousMb } from "./measure.ts";

const [peers = 50, seconds = 120] = process.argv.slice(2).map(Number);
const say = (text: string) => process.stdout.write(`${text}\n`);

buildAgent();
const { nebula } = engineNamed("1.12");
await using stack = new AsyncDisposableStack();
const directory = stack.use(temporaryDirectory());
const names = Array.from({ length: peers }, (_, at) => `p${at}`);
const lan = stack.use(makeLan(["desk", ...names]));
const plane = stack.use(await startControlPlane(join(directory.path, "server")));
const acme = await makeOrganization(plane);
const token = await acme.makeToken(["--uses", String(peers + 1), "--lighthouse"]);
const [first, ...others] = lan.hosts;
if (first === undefined) throw new Error("No host");
const hub = ["--is-lighthouse", "--is-relay", "--public-ip", first.address];
const desk = stack.use(await joinMember(acme, first, directory.path, nebula, token, hub));
const started = performance.now();
for (const host of others) {
  const flags = ["--overlay-binary", nebula];
  const root = join(directory.path, host.name);
  const node = await registerNode(acme, root, host.name, token, flags);
  stack.use(await startEngine(host, nebula, node.directory));
}
say(`${peers} engines started in ${((performance.now() - started) / 1000).toFixed(0)} s`);
const seen = async () => {
  const { stdout } = await command(desk.places, ["peers", "--json"]);
  return stdout.match(/"path":"direct"/g)?.length ?? 0;
};
await until("tunnels with all", async () => (await seen()) >= peers, 120_000);

const nodes = await nodesOf(acme);
for (const host of others) {
  const node = nodes.find(({ name }) => name === host.name);
  const ping = startPing(first, node?.ip_address ?? "", 1000);
  stack.defer(() => ping.stop());
}
const ticks = () => {
  const fields = readFileSync(`/proc/${desk.daemon.pid}/stat`, "utf8").split(" ");
  return Number(fields[13]) + Number(fields[14]);
};
// Peers that were asked for are probed for a minute: what is measured begins after it.
await Bun.sleep(70_000);
const before = ticks();
await Bun.sleep(seconds * 1000);
const percent = (ticks() - before) / seconds;
say(
  `daemon with ${peers} tunnels: ${percent.toFixed(2)} % of a core, RssAnon ${anonymousMb(desk.daemon.pid).toFixed(1)} MB`,
);
if (percent > 1 || anonymousMb(desk.daemon.pid) > 25) process.exitCode = 1;
