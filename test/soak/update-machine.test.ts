// All 100 instants at which an update of a machine that has all is interrupted, of which the end-to-end tests
// take a tenth.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/update-machine.test.ts");
