// 200 random faults of a fleet, of which the unit tests have a tenth.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../server/alarms/fleet.test.ts");
