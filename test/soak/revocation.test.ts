// Twenty revocations on each engine against the clock: reload within 1 s, last ping within 3.5 s. The same after jumps of the
// control plane's clock that last 75 s.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/revocation.test.ts");
await import("../e2e/clock-jump.test.ts");
