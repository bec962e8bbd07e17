// check-auth with 20 organizations within 3 times the time of one, of which the end-to-end tests ask for less.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/node-bars.test.ts");
