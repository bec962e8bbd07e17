// What a control plane may and may not do by the configuration that it sends.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { finishConfig, readYaml, silence } from "../../../src/node/files/config-file.ts";
import { readSent } from "../../../src/node/sent-config.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

let directory: ReturnType<typeof temporaryDirectory>;
beforeEach(() => {
  directory = temporaryDirectory();
});
afterEach(() => directory[Symbol.dispose]());

const finish = (text: string) => {
  const { config } = readSent(text, { directory: directory.path, slug: "acme", hostCrt: "" });
  return readYaml(finishConfig(config, directory.path, undefined), "config.yml");
};
const sshd = "sshd:\n  enabled: true\n  listen: 127.0.0.1:2222\n";

test("the engine's shell is opened by this machine's overrides.yml alone", () => {
  const sent = `pki: {}\n${sshd}`;
  expect(finish(sent)["sshd"]).toEqual({ enabled: false });
  writeFileSync(join(directory.path, "overrides.yml"), sshd);
  expect(finish(sent)["sshd"]).toEqual({ enabled: true, listen: "127.0.0.1:2222" });
  expect(finish("pki: {}\n")["sshd"]).toEqual({ enabled: true, listen: "127.0.0.1:2222" });
});

/** Each level holds the one below so many times. */
function bomb(levels: number, width: number): string {
  const lines = [`a0: &a0 [${Array(width).fill("x").join(", ")}]`];
  for (let at = 1; at <= levels; at++) {
    lines.push(
      `a${at}: &a${at} [${Array(width)
        .fill(`*a${at - 1}`)
        .join(", ")}]`,
    );
  }
  return `${lines.join("\n")}\n`;
}

test("aliases that make much out of little are refused before anything is made of them", () => {
  const long = `a: &a "${"x".repeat(10_000)}"\nb: [${Array(1000).fill("*a").join(", ")}]\n`;
  for (const text of [bomb(6, 10), bomb(18, 2), long, "pki: &a\n  b: *a\n"]) {
    const start = performance.now();
    expect(() => readYaml(text, "What was sent")).toThrow(
      "What was sent repeats itself too often by aliases",
    );
    expect(performance.now() - start).toBeLessThan(1000);
  }
});

test("what is nested too deep is no valid YAML", () => {
  for (const depth of [5000, 100_000]) {
    const text = `a: ${"[".repeat(depth)}${"]".repeat(depth)}\n`;
    expect(() => readYaml(text, "It")).toThrow("It is no valid YAML");
  }
});

test("a text without aliases passes however dense it is, and one with a few too", () => {
  const dense = [
    "",
    "a:\n",
    "a: {b: {c: {}}}\n",
    `a: [${"1,".repeat(5000)}1]\n`,
    '"": ""\n',
    "a:\n- - - - x\n",
  ];
  for (const text of [...dense, "a: &a {port: 1, proto: tcp}\nb: [*a, *a]\n"]) readYaml(text, "It");
});

test("an engine is silent by the level before a change or after it; what is damaged says nothing", () => {
  let text = "logging: {level: error}";
  const fromError = silence(() => text);
  text = "logging: {level: info}";
  const fromInfo = silence(() => text);
  expect([fromError(), fromInfo()]).toEqual([true, false]);
  text = "logging: {level: WARN}";
  expect(fromInfo()).toBe(true);
  text = "logging: [";
  expect([silence(() => text)(), fromError()]).toEqual([false, true]);
});
