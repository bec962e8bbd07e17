// Several servers on one PostgreSQL that is away for a whole minute, of which the end-to-end tests take a tenth.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/replicas.test.ts");
