// Flows of 40 hosts with 200 kinds of traffic each.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../platform/network/flow-counter.test.ts");
