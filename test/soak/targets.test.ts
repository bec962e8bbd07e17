// Cross-compilation for every target. Bun downloads a runtime of 100 MB for each, so this is not part of `ok`.

import { expect, test } from "bun:test";
import { build, targets } from "../../build.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const magic: Record<string, number[]> = {
  linux: [0x7f, 0x45, 0x4c, 0x46],
  darwin: [0xcf, 0xfa, 0xed, 0xfe],
  windows: [0x4d, 0x5a],
};

for (const target of targets) {
  test(`builds for ${target}`, async () => {
    using directory = temporaryDirectory();
    const outfile = await build(target, `${directory.path}/agent`);
    const wanted = magic[target.split("-")[1] ?? ""] ?? [];
    const head = new Uint8Array(await Bun.file(outfile).slice(0, wanted.length).arrayBuffer());
    expect([...head]).toEqual(wanted);
  }, 600_000);
}
