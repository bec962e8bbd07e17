// `bun test/bench/tunnels-replayed.ts [TUNNELS] [SECONDS]`: what a daemon costs with 500 tunnels, first idle, then with traffic
// in each of them: processor time and anonymous memory (bars: 1 % of a core, 25 MB). The engine and its control socket are
// scripted; the kernel answers the probes, because the overlay's network is an address of the daemon's own namespace.
// Needs root.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { buildAgent, startControlPlane } from "../support/agent.ts";
import { placesBelow, registerDesktop, startDaemon, untilStatus } from "../support/daemon.ts";
import { makeLan } from "../support/namespaces.ts";
import { makeOrganization } from "../support/overlay.ts";
import { startControlSocket, writeScriptedEngine } from "../support/scripted-engine.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { anonymousMb } from "./measure.ts";

const [tunnels = 500, seconds = 120] = process.argv.slice(2).map(Number);

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
  const ticks = () => {
    const fields = readFileSync(`/proc/${daemon.pid}/stat`, "utf8").split(" ");
    return Number(fields[13]) + Number(fields[14]);
  };
  // A new tunnel counts as busy for 30 s.
  await Bun.sleep(45_000);
  const before = ticks();
  await Bun.sleep(seconds * 1000);
  const percent = (ticks() - before) / seconds;
  const mb = anonymousMb(daemon.pid);
  process.stdout.write(
    `daemon with ${tunnels} ${busy ? "busy" : "idle"} tunnels: ${percent.toFixed(2)} % of a core, RssAnon ${mb.toFixed(1)} MB\n`,
  );
  if (percent > 1 || mb > 25) process.exitCode = 1;
}
