// The address of a deleted node, on engine 1.10 too.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/taken-address.test.ts");
