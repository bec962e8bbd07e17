// Sixty kills of the replacement of the key for the secrets at rest.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/key-rotation.test.ts");
