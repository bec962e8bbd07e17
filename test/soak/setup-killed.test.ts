// All instants at which setup is killed, of which the end-to-end tests take a tenth.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/setup-killed.test.ts");
