// The daemon of the compiled executable in a host of a test network, with its own paths below one directory.

import { closeSync, mkdirSync, openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { connectDaemon } from "../../src/daemon/ipc/client.ts";
import type { Answer, Request, OrganizationState } from "../../src/daemon/ipc/messages.ts";
import { realSystem } from "../../src/base/system.ts";
import { agent, agentJson, runAgent, type AgentResult } from "./agent.ts";
import type { Host } from "./namespaces.ts";
import type { Organization } from "./overlay.ts";

export type Places = {
  configRoot: string;
  socketPath: string;
  stateDb: string;
  /** The flags for these paths. */
  flags: string[];
};

export function placesBelow(directory: string, overlayBinary: string): Places {
  const configRoot = join(directory, "etc");
  const socketPath = join(directory, "run", "cmd.sock");
  const stateDb = join(directory, "lib", "state.db");
  const pairs = {
    "config-root": configRoot,
    "socket-path": socketPath,
    "state-db-path": stateDb,
    "overlay-binary": overlayBinary,
  };
  return {
    configRoot,
    socketPath,
    stateDb,
    flags: Object.entries(pairs).flatMap(([name, value]) => [`--${name}`, value]),
  };
}

export type Daemon = {
  pid: number;
  exited: Promise<number>;
  signal(signal: NodeJS.Signals): void;
  log(): string;
};

/** Registers a node for the daemon of these paths. */
export async function registerDesktop(
  organization: Pick<Organization, "slug" | "plane">,
  places: Places,
  token: string,
  name: string,
  flags: readonly string[] = [],
  inside: Host["inside"] = (argv) => [...argv],
): Promise<void> {
  mkdirSync(places.configRoot, { recursive: true });
  const { slug, plane } = organization;
  const target = ["--api-base", plane.url, "--org-slug", slug, "--node-name", name];
  const how = ["--registration-token-file", "-", "--mode", "desktop", "--no-start", ...flags];
  await agentJson(["register", ...target, ...how, ...places.flags], { input: token, inside });
}

/** Starts the daemon and waits until it answers. */
export async function startDaemon(
  host: Pick<Host, "inside">,
  places: Places,
  flags: string[] = [],
): Promise<Daemon> {
  const path = join(places.socketPath, "../../daemon.log");
  const fd = openSync(path, "a");
  const child = Bun.spawn(
    host.inside([agent, "--ipc-mode", "socket", "--verbose", ...places.flags, ...flags]),
    {
      env: { PATH: process.env["PATH"] ?? "", LC_ALL: "C" },
      stdin: "ignore",
      stdout: fd,
      stderr: fd,
    },
  );
  closeSync(fd);
  const log = () => readFileSync(path, "utf8");
  // An emulated daemon on a busy machine takes many seconds to start.
  for (const giveUpAt = performance.now() + 30_000; ;) {
    try {
      await ask(places, { action: "version" });
      break;
    } catch (error) {
      if (child.exitCode === null && performance.now() < giveUpAt) continue;
      throw new Error(`The daemon does not answer:\n${log()}`, { cause: error });
    }
  }
  return {
    pid: child.pid,
    exited: child.exited,
    signal: (signal) => child.kill(signal),
    log,
  };
}

/** One request on a new connection. Throws the error of a refusal. */
export async function ask(places: Places, request: Request): Promise<Answer> {
  const client = await connectDaemon({ kind: "socket", path: places.socketPath }, realSystem(), {
    patient: true,
  });
  try {
    return await client.request(request);
  } finally {
    client.close();
  }
}

export async function statusOf(places: Places, team: string): Promise<OrganizationState> {
  const { teams = [] } = await ask(places, { action: "status", team });
  const [found] = teams;
  if (typeof found !== "object") throw new Error(`No status of ${team}`);
  return found;
}

/** Waits until an organization has the expected status. */
export async function untilStatus(
  places: Places,
  team: string,
  wanted: (status: OrganizationState) => boolean,
  ms = 60_000,
): Promise<OrganizationState> {
  for (let waited = 0; ; waited += 50) {
    const status = await statusOf(places, team);
    if (wanted(status)) return status;
    if (waited > ms) throw new Error(`The status did not come about: ${JSON.stringify(status)}`);
    await Bun.sleep(50);
  }
}

/** Runs `agent WORDS…` with the daemon's paths. */
export function command(places: Places, words: string[]): Promise<AgentResult> {
  return runAgent([...words, ...places.flags]);
}

/** Processes of engines with a configuration below these paths. */
export function enginesOf(places: Places): number[] {
  const { stdout } = Bun.spawnSync(["pgrep", "-f", "--", `-config ${places.configRoot}/`]);
  return stdout.toString().split("\n").filter(Boolean).map(Number);
}
