// Ten minutes of load for each of three servers, of which the end-to-end tests take a minute in all.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/replicas-load.test.ts");
