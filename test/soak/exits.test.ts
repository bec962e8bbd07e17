// A hundred kills and changes under a strict exit, of which the end-to-end tests take ten.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/exits.test.ts");
