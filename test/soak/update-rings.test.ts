// Also the bad versions of the agent that only a longer watch finds.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/update-rings.test.ts");
