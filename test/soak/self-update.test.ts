// All 40 moments in each mode at which an update in a booted machine is killed or its power cut, of which the
// end-to-end tests take a tenth.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/self-update-trials.test.ts");
