// 10,000 jobs with ephemeral nodes in eight virtual hours.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../server/nodes/ephemeral-jobs.test.ts");
