// All cures of doctor on a booted machine, of which the end-to-end tests leave out most that restart an engine.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/systemd-cures.test.ts");
