// All 200 instants at which each of register, sync-config and overlay update is killed, of which the end-to-end tests take
// a tenth.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/killed.test.ts");
