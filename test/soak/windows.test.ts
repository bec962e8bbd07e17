// Twenty rounds and a hundred thousand malformed lines under Wine, of which the end-to-end tests take a tenth.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/windows.test.ts");
