// 200 random faults and repairs: `status --check` tells each within 15 s.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/random-faults.test.ts");
