// 200 kills of the daemon under its unit, of which the end-to-end tests take a tenth.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/systemd-kills.test.ts");
