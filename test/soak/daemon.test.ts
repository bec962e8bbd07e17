// The daemon's long loops whole: 200 kills with a ping through the tunnel, six ends of an engine, of which the
// end-to-end tests take a part.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/daemon.test.ts");
