// The executable's entry: one command line in, one exit status out.

import { run } from "./cli/run.ts";
import { systemErrorCode } from "./errors.ts";
import { realSystem } from "./system.ts";

// A reader that went away (`| head`) is no failure of ours.
for (const stream of [process.stdout, process.stderr]) {
  stream.on("error", (error: Error) => {
    if (systemErrorCode(error) !== "EPIPE") throw error;
  });
}

void run(process.argv.slice(2), realSystem()).then((status) => {
  process.exitCode = status;
});
