// Twenty CA rotations and twenty moves between certificate versions on each engine with all tunnels in use, two, and
// none: no ping is lost. Takes about three hours.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/certificate-changes.test.ts");
