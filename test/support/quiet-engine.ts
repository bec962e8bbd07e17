// What the health of an organization sees of an engine that runs and meets nobody.

import type { HealthDeps } from "../../src/node/health/organization-health.ts";

export const quietEngine = {
  monotonic: () => 1000,
  open: async () => ({ send: () => true, close() {} }),
  engine: async () => ({ pid: 1, version: "1.12.0", ageMs: 60_000 }),
  tunnels: async () => [],
  disk: () => undefined,
  unreached: () => [],
  recentLog: async () => [],
} satisfies Omit<HealthDeps, "system">;
