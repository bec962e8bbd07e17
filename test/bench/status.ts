// `bun test/bench/status.ts [RUNS]`: `agent status` against a minimal program, compiled with the same flags, that asks the
// same socket (bar: 1.5 times), and `agent peers` with 100 tunnels (bar: 10 ms more). The engine and its
// control socket are scripts.

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { agent, buildAgent, startControlPlane } from "../support/agent.ts";
import { ask, placesBelow, registerDesktop, startDaemon, untilStatus } from "../support/daemon.ts";
import { makeOrganization } from "../support/overlay.ts";
import { buildProgram, measureStartup } from "../support/startup.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const tunnels = 100;
const [statusBar, peersBarMs] = [1.5, 10];

buildAgent();
using directory = temporaryDirectory();
const engine = join(directory.path, "engine");
writeFileSync(
  engine,
  `#!/bin/sh
case $1 in -version) echo "Version: 1.12.0"; exit;; -test) exit;; esac
echo '{"level":"info","msg":"Nebula interface is active"}'
trap 'exit 0' TERM
while :; do sleep 1; done
`,
  { mode: 0o755 },
);
await using plane = await startControlPlane(join(directory.path, "server"));
const acme = await makeOrganization(plane);
const places = placesBelow(directory.path, engine);
await registerDesktop(acme, places, await acme.makeToken(), "desk");
const run = join(places.configRoot, "acme", "run");
mkdirSync(run, { recursive: true, mode: 0o700 });
const tunnel = (at: number) => ({
  vpnAddrs: [`10.77.1.${at}`],
  localIndex: at,
  remoteIndex: at,
  remoteAddrs: [`203.0.113.${at}:4242`],
  cert: {
    details: {
      name: `node-${at}`,
      groups: ["servers"],
      networks: [`10.77.1.${at}/16`],
      unsafeNetworks: [],
      notBefore: "2026-11-01T00:00:00Z",
      notAfter: "2027-02-01T00:00:00Z",
      issuer: "ab".repeat(32),
    },
    fingerprint: "cd".repeat(32),
  },
  messageCounter: 10,
  currentRemote: `203.0.113.${at}:4242`,
  currentRelaysToMe: [],
  currentRelaysThroughMe: [],
});
const hostmap = Array.from({ length: tunnels }, (_, at) => tunnel(at + 1));
// A process of its own: this one is blocked while it measures.
const server = join(directory.path, "control-socket.ts");
writeFileSync(
  server,
  `const answers = { version: { version: "1.12.0" }, reload: { ok: true, reason: "" } };
const hostmap = ${JSON.stringify(hostmap)};
Bun.listen({ unix: ${JSON.stringify(join(run, "ctl.sock"))}, socket: { data(client, bytes) {
  const { command } = JSON.parse(bytes.toString());
  client.end(JSON.stringify({ version: 1, result: answers[command] ?? hostmap }) + "\\n");
} } });
`,
);
const control = Bun.spawn([process.execPath, server], { stdout: "ignore", stderr: "inherit" });
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
  control.kill();
}
