// The executable's entry: one command line in, one exit status out.

import { run } from "./cli/run.ts";
import { realSystem } from "./system.ts";

// Stands if the event loop runs dry before the command is through.
process.exitCode = 1;
void run(process.argv.slice(2), realSystem()).then((status) => {
  process.exitCode = status;
});
