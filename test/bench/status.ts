// `bun test/bench/status.ts [RUNS]`: `agent status` against a minimal program, compiled with the same flags, that asks the
// same socket (bar: 1.5 times), and `agent peers` with 100 tunnels (bar: 10 ms more). The engine and its
// control socket are scripts.

import { join } from "node:path";
import { agent, buildAgent, startControlPlane } from "../support/agent.ts";
import { ask, placesBelow, registerDesktop, startDaemon, untilStatus } from "../support/daemon.ts";
import { makeOrganization } from "../support/overlay.ts";
import { startControlSocket, writeScriptedEngine } from "../support/scripted-engine.ts";
import { buildProgram, measureStartup } from "../support/startup.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const tunnels = 100;
const [statusBar, peersBarMs] = [1.5, 10];

buildAgent();
using directory = temporaryDirectory();
const engine = writeScriptedEngine(directory.path);
await using plane = await startControlPlane(join(directory.path, "server"));
const acme = await makeOrganization(plane);
const places = placesBelow(directory.path, engine);
await registerDesktop(acme, places, await acme.makeToken(), "desk");
using _ = startControlSocket(directory.path, places, { tunnels });
const host = { inside: (argv: readonly string[]) => [...argv] };
const daemon = await startDaemon(host, places);
try {
  await untilStatus(
    places,
    "acme",
    ({ state, health }) => state === "running" && health !== undefined,
    20_000,
  );
  const minimal = `
import { writeSync } from "node:fs";
const end = Promise.withResolvers();
let text = "";
await Bun.connect({ unix: ${JSON.stringify(places.socketPath)}, socket: {
  open(socket) { socket.write('{"action":"status"}\\n'); },
  data(socket, bytes) { text += bytes.toString(); if (text.endsWith("\\n")) { socket.end(); end.resolve(); } },
} });
await end.promise;
writeSync(1, text);
`;
  // So that every tunnel has been probed once: a first look waits for that.
  for (let at = 0; at < 5; at++) await ask(places, { action: "peers", team: "acme" });
  const figures = await measureStartup(directory.path, Number(process.argv[2] ?? 60), [
    { name: "minimal program", argv: [await buildProgram(directory.path, "minimal", minimal)] },
    { name: "agent status", argv: [agent, "status", ...places.flags] },
    { name: "agent peers", argv: [agent, "peers", ...places.flags] },
  ]);
  const medianOf = (wanted: string) => figures.find(({ name }) => name === wanted)?.p50 ?? Number.NaN;
  for (const { name, p10, p50, p90 } of figures)
    process.stdout.write(
      `${name.padEnd(26)} ${p50.toFixed(1)} ms (${p10.toFixed(1)} to ${p90.toFixed(1)})\n`,
    );
  const ratio = medianOf("agent status") / medianOf("minimal program");
  const more = medianOf("agent peers") - medianOf("agent status");
  process.stdout.write(
    `status: ${ratio.toFixed(2)} times the minimal program, bar ${statusBar}: ${ratio <= statusBar ? "met" : "MISSED"}\n` +
      `peers, ${tunnels} tunnels: ${more.toFixed(1)} ms more than status, bar ${peersBarMs} ms: ${more <= peersBarMs ? "met" : "MISSED"}\n`,
  );
} finally {
  daemon.signal("SIGTERM");
  await daemon.exited;
}
