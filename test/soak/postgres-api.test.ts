// All tests of the API on PostgreSQL.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/postgres-api.test.ts");
