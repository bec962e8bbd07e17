// All random faults of lights, each held for an hour of the agent's time.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../node/health/lights.test.ts");
