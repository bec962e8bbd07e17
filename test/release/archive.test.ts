// Archives of the real tar, gzip, zstd and bsdtar, and hostile ones.

import { afterAll, describe, expect, test } from "bun:test";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readMember } from "../../src/release/archive.ts";

const directory = mkdtempSync(join(tmpdir(), "archive-"));
afterAll(() => rmSync(directory, { recursive: true }));

function sh(script: string): void {
  const { exitCode, stderr } = Bun.spawnSync(["sh", "-euc", script], { cwd: directory });
  if (exitCode !== 0) throw new Error(`${script}: ${stderr.toString()}`);
}

const read = (name: string) => readFileSync(join(directory, name));
const takeOut = (archive: string, member: string) => Buffer.from(readMember(read(archive), member));

// Text, repetition and noise, to use every compression method.
const noise = Buffer.from(Array.from({ length: 50_000 }, (_, at) => (at * at * 7919 + (at >> 3)) & 0xff));
const program = Buffer.concat([Buffer.from("#!/bin/sh\n".repeat(3000)), noise, Buffer.alloc(300_000), noise]);
writeFileSync(join(directory, "agent"), program);
writeFileSync(join(directory, "other"), "other\n");

describe("tar", () => {
  for (const [option, name] of [
    ["-z", "plain.tar.gz"],
    ["--zstd", "plain.tar.zst"],
  ] as const) {
    test(`reads the named file from ${name}, also with a leading ./`, () => {
      sh(`tar ${option} -cf ${name} other agent && tar ${option} -cf dot-${name} ./other ./agent`);
      expect(takeOut(name, "agent").equals(program)).toBe(true);
      expect(takeOut(`dot-${name}`, "agent").equals(program)).toBe(true);
    });

    test(`refuses ${name} truncated anywhere`, () => {
      sh(`tar ${option} -cf ${name} other agent`);
      const whole = read(name);
      for (let length = 0; length < whole.length; length += Math.ceil(whole.length / 60)) {
        expect(() => readMember(whole.subarray(0, length), "agent")).toThrow("Cannot unpack");
      }
    });
  }

  const hostile: [string, string, string][] = [
    [
      "a symbolic link",
      "ln -sf /etc/passwd link && tar -czf x.tar.gz --transform s/link/agent/ link",
      "not a regular file",
    ],
    [
      "a hard link",
      "ln -f other hard && tar -czf x.tar.gz --transform 's/^hard$/agent/' other hard",
      "not a regular file",
    ],
    ["a directory", "mkdir -p d && tar -czf x.tar.gz --transform s/^d/agent/ d", "contains no file"],
    [
      "a path that leaves the directory",
      "tar -czPf x.tar.gz --transform s,^agent,../agent, agent",
      "contains no file",
    ],
    ["an absolute path", "tar -czPf x.tar.gz --transform s,^agent,/agent, agent", "contains no file"],
    [
      "two files of this name",
      "tar -cf x.tar agent && tar -rf x.tar agent && gzip -f x.tar",
      "more than once",
    ],
  ];
  for (const [what, script, reason] of hostile) {
    test(`refuses ${what}`, () => {
      sh(script);
      expect(() => readMember(read("x.tar.gz"), "agent")).toThrow(reason);
    });
  }

  test("refuses a damaged header and content above the maximum size", () => {
    sh("tar -cf damaged.tar agent");
    const tar = read("damaged.tar");
    tar[0] = (tar[0] ?? 0) ^ 1;
    expect(() => readMember(Bun.gzipSync(tar), "agent")).toThrow("checksum");
    const zeros = Buffer.alloc(301 * 1024 * 1024);
    for (const bomb of [Bun.gzipSync(zeros, { level: 1 }), Bun.zstdCompressSync(zeros, { level: 1 })])
      expect(() => readMember(bomb, "agent")).toThrow("too large");
  });
});

describe("zip", () => {
  const bsdtar = "/usr/bin/bsdtar";

  test.skipIf(!existsSync(bsdtar))("reads the named file, stored or deflated", () => {
    mkdirSync(join(directory, "a"), { recursive: true });
    sh("cp agent a/agent.exe");
    for (const method of ["store", "deflate"]) {
      sh(`${bsdtar} --format zip --options zip:compression=${method} -cf x.zip other a/agent.exe`);
      expect(takeOut("x.zip", "a/agent.exe").equals(program)).toBe(true);
      expect(() => takeOut("x.zip", "agent.exe")).toThrow("contains no file");
    }
  });

  test("refuses a name that is there twice before it inflates one of them", () => {
    // Both entries are damaged: inflating one would be refused for its checksum.
    const entry = Buffer.alloc(46);
    entry.writeUInt32LE(0x02014b50, 0);
    entry.writeUInt16LE(5, 28);
    const directory = Buffer.concat([entry, Buffer.from("agent"), entry, Buffer.from("agent")]);
    const end = Buffer.alloc(22);
    end.writeUInt32LE(0x06054b50, 0);
    end.writeUInt16LE(2, 10);
    end.writeUInt32LE(30, 16);
    const local = Buffer.alloc(30);
    local.writeUInt32LE(0x04034b50, 0);
    local.writeUInt32LE(0x50, 14);
    entry.writeUInt32LE(1, 16);
    expect(() => readMember(Buffer.concat([local, directory, end]), "agent")).toThrow("more than once");
  });

  test.skipIf(!existsSync(bsdtar))("refuses links, damage and truncation", () => {
    sh(`ln -sf other symbolic && ${bsdtar} --format zip -cf x.zip symbolic`);
    expect(() => takeOut("x.zip", "symbolic")).toThrow("not a regular file");
    sh(`${bsdtar} --format zip --options zip:compression=store -cf x.zip agent`);
    const good = read("x.zip");
    for (const length of [10, 5000, good.length - 30, good.length - 1]) {
      expect(() => readMember(good.subarray(0, length), "agent")).toThrow("Cannot unpack");
    }
    good[5000] = (good[5000] ?? 0) ^ 1;
    expect(() => readMember(good, "agent")).toThrow("checksum");
  });
});
