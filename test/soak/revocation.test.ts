// Twenty revocations on each engine against the clock: reload within 1 s, last ping within 3.5 s.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/revocation.test.ts");
