// Builds what several tests need and no Debian package has: `bun test/support/tools.ts`. Once into .cache, and before the
// tests, because a compiler beside them would make them slow.

import { allEngines, engineNamed } from "./engines.ts";
import { goProgram, goPrograms } from "./go-programs.ts";

for (const name of allEngines) process.stdout.write(`${engineNamed(name).nebula}\n`);
for (const name of goPrograms) process.stdout.write(`${goProgram(name)}\n`);
