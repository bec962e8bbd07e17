// One of three relays is lost while 50 nodes are relayed, of which the end-to-end tests have 4.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/relays.test.ts");
