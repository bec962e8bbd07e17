// Installs the packages of all tests, and builds what several tests need and no Debian package has: `bun
// test/support/tools.ts`. Once for all checkouts, and before the tests, because a compiler beside them would make them slow.

import { installMissing } from "./debian.ts";
import { engineNames, engineNamed } from "./engines.ts";
import { busybox } from "./packages.ts";
import { goProgram, goPrograms } from "./go-programs.ts";

const missing = installMissing();
if (missing !== undefined) process.stdout.write(`${missing}\n`);
for (const name of engineNames) process.stdout.write(`${engineNamed(name).nebula}\n`);
process.stdout.write(`${busybox("busybox")}\n`);
for (const name of goPrograms) process.stdout.write(`${goProgram(name)}\n`);
