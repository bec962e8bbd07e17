// Tests with a bar for a time, which beside other tests is wider.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/demo.test.ts");
await import("../e2e/keyring.test.ts");
await import("../e2e/postgres.test.ts");
await import("../e2e/systemd-server.test.ts");
