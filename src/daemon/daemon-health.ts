// The health of one organization that the daemon runs: connects its observation to the supervised engine.

import { lastLines } from "../node/engine/engine-log.ts";
import { localApi } from "../node/engine/local-api.ts";
import { OrganizationHealth } from "../node/health/organization-health.ts";
import { controlSocket } from "../platform/control-socket.ts";
import type { OpenEcho } from "../platform/echo-socket.ts";
import type { ProcessIdentity } from "../platform/process-identity.ts";
import type { System } from "../system.ts";

export type DaemonHealthDeps = {
  system: Pick<System, "now" | "sleep" | "random">;
  monotonic(): number;
  openEcho: OpenEcho;
  /** Undefined if it cannot be told. */
  engineVersion(process: ProcessIdentity): Promise<string | undefined>;
};

const logLines = 500;

export function makeDaemonHealth(
  place: { slug: string; directory: string; logPath: string },
  process: () => ProcessIdentity | undefined,
  { system, monotonic, openEcho, engineVersion }: DaemonHealthDeps,
): OrganizationHealth {
  let known: { process: ProcessIdentity; version: string | undefined } | undefined;
  const api = localApi(controlSocket(place.directory), system);
  return new OrganizationHealth(place, {
    system,
    monotonic,
    open: openEcho,
    async engine() {
      const present = process();
      if (present === undefined) return undefined;
      if (known?.process.pid !== present.pid || known.process.started !== present.started)
        known = { process: present, version: await engineVersion(present) };
      return { pid: present.pid, version: known.version };
    },
    tunnels: () => api.hostmap(),
    recentLog: async () => lastLines(place.logPath, logLines),
  });
}
