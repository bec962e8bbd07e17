// A path lost in one direction heals within 30 s, and a relayed tunnel is direct within 60 s, 20 times of 20 each.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/healing-loops.test.ts");
