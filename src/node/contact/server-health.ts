// The health of an organization that no daemon runs: its engine belongs to systemd, or was started by hand. Needs root,
// for the engine's socket.

import { controlSocket } from "../../platform/control-socket.ts";
import { openEchoSocket } from "../../platform/echo-socket.ts";
import { hasSystemd } from "../../platform/service-manager.ts";
import { engineUnit } from "../../platform/systemd.ts";
import type { System } from "../../system.ts";
import { rememberVersions } from "../engine/engine.ts";
import { runningVersion, type VersionOf } from "../engine/engine-in-use.ts";
import { localApi } from "../engine/local-api.ts";
import type { EngineSettings } from "../engine/overlay.ts";
import type { Organization } from "../files/organizations.ts";
import { OrganizationHealth } from "../health/organization-health.ts";
import { examineEngine } from "./organization-edge.ts";

const logLines = 500;

export function makeServerHealth(
  organization: Organization,
  settings: EngineSettings,
  system: System,
  versionOf: VersionOf = rememberVersions(system),
): OrganizationHealth {
  const { slug, directory, config } = organization;
  const api = localApi(controlSocket(directory), system);
  return new OrganizationHealth(organization, {
    system,
    monotonic: () => performance.now(),
    open: openEchoSocket,
    async engine() {
      const { process, program } = await examineEngine(organization, settings, system);
      if (process === undefined) return undefined;
      return { pid: process.pid, version: await runningVersion(process, program, versionOf) };
    },
    tunnels: () => api.hostmap(),
    async recentLog() {
      if (config.mode !== "server" || !hasSystemd(system)) return [];
      const lines = ["--output=cat", "--quiet", `--lines=${logLines}`, `--unit=${engineUnit(slug)}`];
      return (await system.run(["/usr/bin/journalctl", ...lines])).stdout.split("\n");
    },
  });
}

/** Runs the watch for the time of `work`. */
export async function withHealth<T>(health: OrganizationHealth, work: () => Promise<T>): Promise<T> {
  const over = new AbortController();
  const running = health.run(over.signal);
  try {
    return await work();
  } finally {
    over.abort(new Error("Done"));
    await running;
  }
}
