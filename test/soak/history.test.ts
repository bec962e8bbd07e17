// 100 random histories of who reaches whom, of which the ordinary test runs a tenth.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../server/history/past.test.ts");
