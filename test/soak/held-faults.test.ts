// All real faults, each held for 15 minutes, of which the end-to-end tests hold one for a moment.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/held-faults.test.ts");
