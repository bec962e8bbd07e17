// Changes of a node's subnets and of relays, on engine 1.10 too.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/applied-changes.test.ts");
