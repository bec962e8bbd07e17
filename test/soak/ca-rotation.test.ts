// Rotations of a CA with a stopped engine and restarts of the server, on every engine.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/ca-rotation.test.ts");
