// `bun test/bench/tunnels.ts [PEERS] [SECONDS]`: what a daemon costs whose node has tunnels with many peers, each with an engine
// of its own, that it pings each second: processor time and anonymous memory (bars: 1 % of a core, 25 MB). Needs root.
// `bun test/bench/tunnels.ts replayed [TUNNELS] [SECONDS]`: the same with 500 tunnels, first idle, then with traffic in each of
// them. The engine and its control socket are scripted; the kernel answers the probes, because the overlay's network is an
// address of the daemon's own namespace. Needs root.

import { join } from "node:path";
import { buildAgent, startControlPlane } from "../support/agent.ts";
import { command, placesBelow, registerDesktop, startDaemon, untilStatus } from "../support/daemon.ts";
import { engineNamed } from "../support/engines.ts";
import { joinMember, nodesOf, until } from "../support/members.ts";
import { makeLan, startPing } from "../support/namespaces.ts";
import { makeOrganization, registerNode, startEngine } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { startControlSocket, writeScriptedEngine } from "../support/scripted-engine.ts";
import { anonymousMb, choose, figure, print, processorSeconds } from "./measure.ts";

async function measureDaemon(what: string, pid: number, seconds: number): Promise<void> {
  const before = processorSeconds(pid);
  await Bun.sleep(seconds * 1000);
  const percent = ((processorSeconds(pid) - before) / seconds) * 100;
  figure(`daemon with ${what}: processor`, percent, { unit: "%", digits: 2, most: 1 });
  figure(`daemon with ${what}: RssAnon`, anonymousMb(pid), { unit: "MB", most: 25 });
}

async function real(given: string[]): Promise<void> {
  const [peers = 50, seconds = 120] = given.map(Number);

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
  print(`${peers} engines started in ${((performance.now() - started) / 1000).toFixed(0)} s`);
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
  // Peers that were asked for are probed for a minute: what is measured begins after it.
  await Bun.sleep(70_000);
  await measureDaemon(`${peers} tunnels`, desk.daemon.pid, seconds);
}

async function replayed(given: string[]): Promise<void> {
  const [tunnels = 500, seconds = 120] = given.map(Number);

  buildAgent();
  for (const busy of [false, true]) {
    await using stack = new AsyncDisposableStack();
    const directory = stack.use(temporaryDirectory());
    const engine = writeScriptedEngine(directory.path);
    const lan = stack.use(makeLan(["desk"]));
    const plane = stack.use(await startControlPlane(join(directory.path, "server")));
    const acme = await makeOrganization(plane);
    const places = placesBelow(directory.path, engine);
    await registerDesktop(acme, places, await acme.makeToken(), "desk");
    stack.use(startControlSocket(directory.path, places, { tunnels, busy }));
    const host = lan.host("desk");
    host.run(["ip", "route", "add", "local", "10.77.0.0/16", "dev", "lo"]);
    const daemon = await startDaemon(host, places);
    stack.defer(async () => {
      daemon.signal("SIGTERM");
      await daemon.exited;
    });
    await untilStatus(places, "acme", ({ health }) => health?.tunnels?.direct === tunnels, 30_000);
    // A new tunnel counts as busy for 30 s.
    await Bun.sleep(45_000);
    await measureDaemon(`${tunnels} ${busy ? "busy" : "idle"} tunnels`, daemon.pid, seconds);
  }
}

await choose({ real, replayed });
