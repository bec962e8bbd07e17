// The entry of the executable: runs one command line and sets the exit status.

import { run } from "./cli/run.ts";
import { realSystem } from "./base/system.ts";

// With it, clients of TLS that are not ours, such as those of SMTP and PostgreSQL, would take any certificate.
delete process.env["NODE_TLS_REJECT_UNAUTHORIZED"];
// Counts if the event loop ends before the command does.
process.exitCode = 1;
void run(process.argv.slice(2), realSystem()).then((status) => {
  process.exitCode = status;
});
