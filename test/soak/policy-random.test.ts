// 200 random policies with real engines, of which the end-to-end test runs a part.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/policy-random.test.ts");
