// 10,000 histories of a node's seals, of which the unit test runs a tenth.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../node/files/seal-histories.test.ts");
