// The entry of the executable: runs one command line and sets the exit status.

import { run } from "./cli/run.ts";
import { realSystem } from "./base/system.ts";

// With this variable, TLS clients that are not ours, such as those of SMTP and PostgreSQL, would accept any certificate.
delete process.env["NODE_TLS_REJECT_UNAUTHORIZED"];
// The status if the event loop runs empty before the command has ended.
process.exitCode = 1;
void run(process.argv.slice(2), realSystem()).then((status) => {
  process.exitCode = status;
});
