// All 10,000 certificates of the random test for each engine, of which the end-to-end tests take a tenth.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/nebula-cert.test.ts");
