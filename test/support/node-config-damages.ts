// Ways in which an organization's node-config.json, or the link to it, can be damaged. Each writes through the links, so that
// the file of the current generation is hit.

import { mkdirSync, rmSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";

function pointCurrentTo(target: string, directory: string): void {
  rmSync(join(directory, "current"));
  symlinkSync(target, join(directory, "current"));
}

const file = (directory: string) => join(directory, "node-config.json");

export const fileDamages: [string, (directory: string) => void][] = [
  ["an empty file", (directory) => truncateSync(file(directory))],
  ["a truncated file", (directory) => truncateSync(file(directory), 100)],
  [
    "random bytes",
    (directory) => writeFileSync(file(directory), Buffer.from("93f00a8ffe0001c3287b22", "hex")),
  ],
];

export const linkDamages: [string, (directory: string) => void][] = [
  ["a dangling current", (directory) => pointCurrentTo("generations/77", directory)],
  ["a deleted current", (directory) => rmSync(join(directory, "current"))],
  [
    "a current that leads out of the organization",
    (directory) => {
      mkdirSync(join(directory, "..", "..", "elsewhere"));
      pointCurrentTo("../../elsewhere", directory);
    },
  ],
  ["a current that leads to itself", (directory) => pointCurrentTo("current", directory)],
];
