// An engine's log stays small while the engine holds it open.

import { afterEach, beforeEach, expect, test } from "bun:test";
import {
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  statSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { logPath, rotateLog } from "../../src/daemon/engine-logs.ts";

let directory = "";
const warnings: string[] = [];
const log = { debug() {}, info() {}, warn: (text: string) => void warnings.push(text), error() {} };

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "logs-"));
  warnings.length = 0;
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

test("rotateLog() keeps one old log, and the writer continues at the start of the file", () => {
  expect(logPath("/var/lib/x", "acme")).toBe("/var/lib/x/logs/acme.log");
  const path = join(directory, "acme.log");
  const fd = openSync(path, "a", 0o640);
  writeSync(fd, "first\n".repeat(100));
  expect(rotateLog(path, log, 1000)).toBe(false);
  writeSync(fd, "second\n".repeat(100));
  expect(rotateLog(path, log, 1000)).toBe(true);
  writeSync(fd, "third\n");
  closeSync(fd);
  expect(readFileSync(path, "utf8")).toBe("third\n");
  expect(readFileSync(`${path}.1`, "utf8")).toEndWith("second\n");
  // Only its end: an engine can write gigabytes.
  expect(statSync(`${path}.1`).size).toBe(1000);
  expect(rotateLog(join(directory, "none.log"), log, 0)).toBe(false);
});

const json = (level: string, msg: string) => `{"level":"${level}","msg":"${msg}","udpAddr":"192.0.2.7:9"}\n`;
test.each([
  ["1.6", json("error", "Failed unmarshal handshake message")],
  ["1.12", json("ERROR", "Failed to process handshake packet")],
  ["text", 'time="2026-11-22T12:00:00Z" level=error msg="Failed unmarshal handshake message" error=EOF\n'],
])("junk handshakes push no other line out of the log: %s", (_, junk) => {
  const path = join(directory, "acme.log");
  const fd = openSync(path, "a", 0o640);
  const matters = json("info", "Handshake timed out");
  const other = json("error", "Failed to reload config");
  writeSync(fd, "older\n");
  for (let piece = 0; piece < 20; piece++) {
    writeSync(fd, junk.repeat(1000));
    if (piece === 3) writeSync(fd, matters + other);
    writeSync(fd, junk.repeat(1000));
    expect(rotateLog(path, log, 100_000)).toBe(true);
    expect(statSync(`${path}.1`).size).toBeLessThanOrEqual(100_000);
  }
  closeSync(fd);
  const text = readFileSync(`${path}.1`, "utf8");
  for (const each of ["older\n", matters, other]) expect(text).toContain(each);
  expect(text.split("\n").filter((line) => line === junk.trimEnd())).toHaveLength(20 * 40);
  expect(text).toMatch(/^1960 lines with the error "Failed [a-z ]+" are left out here$/m);
  expect(warnings).toEqual([]);
});

test("rotateLog() truncates the log even if the copy fails", () => {
  const path = join(directory, "acme.log");
  const fd = openSync(path, "a");
  writeSync(fd, "x".repeat(2000));
  // A directory at that path makes the copy fail.
  mkdirSync(`${path}.1`);
  expect(rotateLog(path, log, 1000)).toBe(true);
  closeSync(fd);
  expect(statSync(path).size).toBe(0);
  expect(existsSync(`${path}.1.tmp`)).toBe(false);
  expect(warnings).toHaveLength(1);
});
