// Ten reboots of a network of packages, of which the end-to-end tests make one.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/packages.test.ts");
