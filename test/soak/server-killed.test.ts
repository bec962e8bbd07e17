// All 200 kills of the control plane under load, and all while certificates change, of which the end-to-end tests take a tenth.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/server-killed.test.ts");
await import("../e2e/certificate-kills.test.ts");
