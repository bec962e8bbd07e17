// 100 restarts of the engine and of systemd-resolved, 200 kills of the service of names while another name is looked up
// without a pause, a million damaged packets, and floods of a million, of which the ordinary tests take a part.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../node/names/answer-query.test.ts");
await import("../e2e/resolved-names.test.ts");
await import("../e2e/names-flood.test.ts");
