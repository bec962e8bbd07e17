// An engine of which everything is scripted: its process, and the control socket with a list of tunnels. It carries no
// packets, so a daemon with hundreds of tunnels costs this machine one process more.

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Places } from "./daemon.ts";

/** The engine's program. */
export function writeScriptedEngine(directory: string): string {
  const path = join(directory, "engine");
  writeFileSync(
    path,
    `#!/bin/sh
case $1 in -version) echo "Version: 1.12.0"; exit;; -test) exit;; esac
echo '{"level":"info","msg":"Nebula interface is active"}'
trap 'exit 0' TERM
while :; do sleep 1; done
`,
    { mode: 0o755 },
  );
  return path;
}

/** Peers are 10.77.1.1 and up. */
const addressOf = (at: number) => `10.77.${1 + (at >> 8)}.${at & 255}`;

const tunnel = (at: number) => ({
  vpnAddrs: [addressOf(at)],
  localIndex: at,
  remoteIndex: at,
  remoteAddrs: [`203.0.113.${at & 255}:4242`],
  cert: {
    details: {
      name: `node-${at}`,
      groups: ["servers"],
      networks: [`${addressOf(at)}/16`],
      unsafeNetworks: [],
      notBefore: "2026-11-01T00:00:00Z",
      notAfter: "2027-02-01T00:00:00Z",
      issuer: "ab".repeat(32),
    },
    fingerprint: "cd".repeat(32),
  },
  messageCounter: 10,
  currentRemote: `203.0.113.${at & 255}:4242`,
  currentRelaysToMe: [],
  currentRelaysThroughMe: [],
});

/**
 * The control socket of the organization `acme`, in a process of its own: a bench is blocked while it measures. `busy`:
 * each tunnel sends 100 packets between two looks.
 */
export function startControlSocket(
  directory: string,
  { configRoot }: Pick<Places, "configRoot">,
  { tunnels, busy = false }: { tunnels: number; busy?: boolean },
): Disposable {
  const run = join(configRoot, "acme", "run");
  mkdirSync(run, { recursive: true, mode: 0o700 });
  const hostmap = Array.from({ length: tunnels }, (_, at) => tunnel(at + 1));
  const server = join(directory, "control-socket.ts");
  writeFileSync(
    server,
    `const answers = { version: { version: "1.12.0" }, reload: { ok: true, reason: "" } };
const hostmap = ${JSON.stringify(hostmap)};
const drain = (client) => {
  client.data = client.data.slice(client.write(client.data));
  if (client.data === "") client.end();
};
Bun.listen({ unix: ${JSON.stringify(join(run, "ctl.sock"))}, socket: {
  open(client) { client.data = ""; },
  data(client, bytes) {
    const { command } = JSON.parse(bytes.toString());
    if (${busy}) for (const each of hostmap) each.messageCounter += 100;
    client.data = JSON.stringify({ version: 1, result: answers[command] ?? hostmap }) + "\\n";
    drain(client);
  },
  drain,
} });
`,
  );
  const control = Bun.spawn([process.execPath, server], { stdout: "ignore", stderr: "inherit" });
  return { [Symbol.dispose]: () => control.kill() };
}
