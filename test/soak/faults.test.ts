// Both errors of a disk at each write and fsync, of which the end-to-end tests take one at each.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/faults.test.ts");
