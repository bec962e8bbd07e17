// Two hours of a laptop that sleeps and wakes, of which the end-to-end tests take a minute.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/asleep.test.ts");
