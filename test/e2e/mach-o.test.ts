// The executables for macOS: their signature covers every byte, as the macOS kernel checks it page by page. This test
// verifies the signature itself, because no Debian package has a tool for that.

import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "../../build.ts";
import { signMachO } from "../../src/release/mach-o.ts";
import { temporaryDirectory } from "../support/temporary.ts";

/** Load commands of a 64-bit Mach-O file, by kind (and name, for a segment), with their offsets. */
function loadCommands(file: Buffer): Map<string, number> {
  const commands = new Map<string, number>();
  let at = 32;
  for (let index = 0; index < file.readUInt32LE(16); index++) {
    const kind = file.readUInt32LE(at);
    const name = kind === 0x19 ? file.toString("latin1", at + 8, at + 24).replaceAll("\0", "") : "";
    commands.set(`${kind.toString(16)}${name}`, at);
    at += file.readUInt32LE(at + 4);
  }
  return commands;
}

/** The code directory's fields, and the pages with a wrong hash. */
function inspect(file: Buffer) {
  const commands = loadCommands(file);
  const [command = 0, linkEdit = 0] = [commands.get("1d"), commands.get("19__LINKEDIT")];
  const [offset, size] = [file.readUInt32LE(command + 8), file.readUInt32LE(command + 12)];
  const blob = file.subarray(offset, offset + size);
  const directory = blob.subarray(blob.readUInt32BE(16));
  const [hashes, identifier, pages, limit] = [16, 20, 28, 32].map((each) => directory.readUInt32BE(each));
  const pageSize = 2 ** directory.readUInt8(39);
  const wrong = Array.from({ length: pages ?? 0 }, (_, page) => page).filter((page) => {
    const hasher = new Bun.CryptoHasher("sha256");
    hasher.update(file.subarray(page * pageSize, Math.min((page + 1) * pageSize, limit ?? 0)));
    const from = (hashes ?? 0) + page * 32;
    return !hasher.digest().equals(directory.subarray(from, from + 32));
  });
  const [start, length] = [file.readBigUInt64LE(linkEdit + 40), file.readBigUInt64LE(linkEdit + 48)];
  return {
    magic: [blob.readUInt32BE(0).toString(16), directory.readUInt32BE(0).toString(16)],
    flags: directory.readUInt32BE(12).toString(16),
    identifier: directory.toString("latin1", identifier, directory.indexOf(0, identifier)),
    covered: limit === offset && (pages ?? 0) === Math.ceil(offset / pageSize),
    endsWithFile: offset + size === file.length && blob.readUInt32BE(4) === size,
    linkEditEnds: Number(start + length) === file.length,
    wrong,
  };
}

const valid = {
  magic: ["fade0cc0", "fade0c02"],
  flags: "20002",
  identifier: "io.overlay-agent.daemon",
  covered: true,
  endsWithFile: true,
  linkEditEnds: true,
  wrong: [],
};

for (const target of ["bun-darwin-x64", "bun-darwin-arm64"]) {
  test(`${target}: every page is signed; a changed byte is found; signing again changes nothing`, async () => {
    using directory = temporaryDirectory();
    const file = readFileSync(await build(target, join(directory.path, "agent")));
    expect(inspect(file)).toEqual(valid);
    expect(Buffer.from(signMachO(file, valid.identifier)).equals(file)).toBe(true);
    file[1_000_000] = (file[1_000_000] ?? 0) ^ 1;
    expect(inspect(file).wrong).toEqual([Math.floor(1_000_000 / 4096)]);
  }, 300_000);
}

test("refuses to sign a file that is not a macOS executable", () => {
  expect(() => signMachO(new Uint8Array(4096), "x")).toThrow("not a 64-bit Mach-O");
});
