// All 200 kills of the control plane under load, of which the end-to-end tests take a tenth.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/server-killed.test.ts");
