// All random histories of commands, orders and restarts, of which the ordinary tests take a tenth.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../daemon/desired-histories.test.ts");
await import("../e2e/desired-state.test.ts");
