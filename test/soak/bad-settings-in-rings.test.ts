// Also the harmful settings that ordinary tests leave out.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/bad-settings-in-rings.test.ts");
