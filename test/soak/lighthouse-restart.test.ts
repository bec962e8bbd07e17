// A lighthouse that forgets the nodes, on engine 1.10 too.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/lighthouse-restart.test.ts");
