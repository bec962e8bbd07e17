// 1,000 plans against the explainer, 10,000 policies against the rules that engines get.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../server/policy/reach.test.ts");
