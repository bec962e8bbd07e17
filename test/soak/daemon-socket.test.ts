// A million malformed lines on the daemon's socket, of which the end-to-end tests take a tenth.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/daemon-socket.test.ts");
