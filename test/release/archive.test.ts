// Archives made by the real tar, xz, gzip and zip formats, hostile ones among them.

import { afterAll, describe, expect, test } from "bun:test";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readMember } from "../../src/release/archive.ts";
import { unpackXz } from "../../src/release/xz.ts";

const directory = mkdtempSync(join(tmpdir(), "archive-"));
afterAll(() => rmSync(directory, { recursive: true }));

function sh(script: string): void {
  const { exitCode, stderr } = Bun.spawnSync(["sh", "-euc", script], { cwd: directory });
  if (exitCode !== 0) throw new Error(`${script}: ${stderr.toString()}`);
}

const read = (name: string) => readFileSync(join(directory, name));
const takeOut = (archive: string, member: string) => Buffer.from(readMember(read(archive), member));

// Text, repetition and noise, so that every way of packing is used.
const noise = Buffer.from(Array.from({ length: 50_000 }, (_, at) => (at * at * 7919 + (at >> 3)) & 0xff));
const program = Buffer.concat([Buffer.from("#!/bin/sh\n".repeat(3000)), noise, Buffer.alloc(300_000), noise]);
writeFileSync(join(directory, "agent"), program);
writeFileSync(join(directory, "other"), "other\n");

describe("tar", () => {
  for (const [option, name] of [
    ["-z", "plain.tar.gz"],
    ["-J", "plain.tar.xz"],
  ] as const) {
    test(`takes the named file out of ${name}, also with a leading ./`, () => {
      sh(`tar ${option} -cf ${name} other agent && tar ${option} -cf dot-${name} ./other ./agent`);
      expect(takeOut(name, "agent").equals(program)).toBe(true);
      expect(takeOut(`dot-${name}`, "agent").equals(program)).toBe(true);
    });

    test(`refuses ${name} when it is cut off anywhere`, () => {
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
      "not a plain file",
    ],
    [
      "a hard link",
      "ln -f other hard && tar -czf x.tar.gz --transform 's/^hard$/agent/' other hard",
      "not a plain file",
    ],
    ["a directory", "mkdir -p d && tar -czf x.tar.gz --transform s/^d/agent/ d", "holds no file"],
    ["a path that leads out", "tar -czPf x.tar.gz --transform s,^agent,../agent, agent", "holds no file"],
    ["an absolute path", "tar -czPf x.tar.gz --transform s,^agent,/agent, agent", "holds no file"],
    ["two of the name", "tar -cf x.tar agent && tar -rf x.tar agent && gzip -f x.tar", "more than once"],
  ];
  for (const [what, script, reason] of hostile) {
    test(`refuses ${what}`, () => {
      sh(script);
      expect(() => readMember(read("x.tar.gz"), "agent")).toThrow(reason);
    });
  }

  test("refuses a damaged header and what unpacks to more than the cap", () => {
    sh("tar -cf damaged.tar agent");
    const tar = read("damaged.tar");
    tar[0] = (tar[0] ?? 0) ^ 1;
    expect(() => readMember(Bun.gzipSync(tar), "agent")).toThrow("check sum");
    const bomb = Bun.gzipSync(Buffer.alloc(301 * 1024 * 1024), { level: 1 });
    expect(() => readMember(bomb, "agent")).toThrow("too large");
  });
});

describe("zip", () => {
  const bsdtar = "/usr/bin/bsdtar";

  test.skipIf(!existsSync(bsdtar))("takes the named file out, stored or deflated", () => {
    mkdirSync(join(directory, "a"), { recursive: true });
    sh("cp agent a/agent.exe");
    for (const method of ["store", "deflate"]) {
      sh(`${bsdtar} --format zip --options zip:compression=${method} -cf x.zip other a/agent.exe`);
      expect(takeOut("x.zip", "a/agent.exe").equals(program)).toBe(true);
      expect(() => takeOut("x.zip", "agent.exe")).toThrow("holds no file");
    }
  });

  test.skipIf(!existsSync(bsdtar))("refuses links, damage and truncation", () => {
    sh(`ln -sf other symbolic && ${bsdtar} --format zip -cf x.zip symbolic`);
    expect(() => takeOut("x.zip", "symbolic")).toThrow("not a plain file");
    sh(`${bsdtar} --format zip --options zip:compression=store -cf x.zip agent`);
    const good = read("x.zip");
    for (const length of [10, 5000, good.length - 30, good.length - 1]) {
      expect(() => readMember(good.subarray(0, length), "agent")).toThrow("Cannot unpack");
    }
    good[5000] = (good[5000] ?? 0) ^ 1;
    expect(() => readMember(good, "agent")).toThrow("check sum");
  });
});

describe("xz", () => {
  const presets = [
    "-0",
    "-6",
    "-9e",
    "--lzma2=preset=6,lc=2,lp=2,pb=1",
    "--check=none",
    "--check=sha256 --block-size=50000",
  ];
  for (const preset of presets) {
    test(`unpacks what \`xz ${preset}\` packs`, () => {
      sh(`xz ${preset} -kc agent > agent.xz`);
      expect(Buffer.from(unpackXz(read("agent.xz"), program.length)).equals(program)).toBe(true);
    });
  }

  test("unpacks nothing and what cannot be packed", () => {
    sh(
      "head -c 200000 /dev/urandom > random && xz -kcf random > random.xz && : > empty && xz -kcf empty > empty.xz",
    );
    expect(Buffer.from(unpackXz(read("random.xz"), 1e6)).equals(read("random"))).toBe(true);
    expect(unpackXz(read("empty.xz"), 0)).toHaveLength(0);
  });

  test("refuses other filters, other formats and more than the cap", () => {
    sh("xz --x86 --lzma2 -kc agent > x86.xz && xz -kc agent > agent.xz");
    expect(() => unpackXz(read("x86.xz"), 1e9)).toThrow("filter");
    expect(() => unpackXz(program, 1e9)).toThrow("no .xz");
    expect(() => unpackXz(read("agent.xz"), program.length - 1)).toThrow("larger");
  });

  test("any damaged byte gives an error or other bytes, never a hang or a crash", () => {
    sh("xz -0 -kc other > small.xz && head -c 3000 agent | xz -c > part.xz");
    const whole = read("part.xz");
    for (let at = 0; at < whole.length; at++) {
      const damaged = Buffer.from(whole);
      damaged[at] = (damaged[at] ?? 0) ^ 0x55;
      try {
        expect(unpackXz(damaged, 1e6).length).toBeLessThanOrEqual(1e6);
      } catch (error) {
        expect(String(error)).toContain("Cannot unpack");
      }
    }
  });
});
