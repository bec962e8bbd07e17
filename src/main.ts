// The entry of the executable: runs one command line and sets the exit status.

import { run } from "./cli/run.ts";
import { realSystem } from "./base/system.ts";

// Counts if the event loop ends before the command does.
process.exitCode = 1;
void run(process.argv.slice(2), realSystem()).then((status) => {
  process.exitCode = status;
});
