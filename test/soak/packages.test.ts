// Ten reboots of a network of packages, of which the end-to-end tests make one. The packages are compressed as for a release,
// and lintian reads each page of the manual.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/packages.test.ts");
