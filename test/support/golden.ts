// Golden files below test/golden/: texts that users and scripts rely on. After an intended change run the test with
// GOLDEN=write, and review the difference.

import { expect } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const directory = join(import.meta.dir, "../golden");

/** Fails with the difference if the text is not that of the file. */
export function expectGolden(name: string, text: string): void {
  const path = join(directory, name);
  if (process.env["GOLDEN"] === "write") writeFileSync(path, text);
  expect(text).toBe(readFileSync(path, "utf8"));
}

/** A command line, its JSON output and its exit status. Placeholders replace values that differ between runs. */
export function documentOf(
  words: readonly string[],
  { stdout, status, place, fromFile = false }: Printed,
): string {
  const pretty = JSON.stringify(JSON.parse(stdout), undefined, 2);
  const line = `$ agent ${words.join(" ")} --json${fromFile ? " < FILE" : ""}`;
  return steady(`${line}\n${pretty}\nexit status ${status}\n`, place);
}

type Printed = {
  stdout: string;
  status: number;
  /** The directory of the test. */
  place: string;
  /** Whether the command had standard input. */
  fromFile?: boolean;
};

function steady(text: string, place: string): string {
  return (
    text
      .replaceAll(place, "/tmp/t")
      .replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z/g, "TIME")
      .replace(/\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(-|\.)\d+Z/g, "TIME")
      .replace(/(-----BEGIN [^-]+-----)[^-]*(\\n\+-----END)/g, "$1…$2")
      .replace(/@@ -0,0 \+1,\d+ @@(\\n\+-----BEGIN)/g, "@@ … @@$1")
      .replace(/(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])/g, "SHA256")
      .replace(/(overlay-agent-health\/at-)[0-9a-z]+/g, "$1PLACE")
      .replace(/("text": ")\{\\"first\\":.*(?=")/g, "$1SEAL")
      .replace(/SHA256:[A-Za-z0-9+/]{43}/g, "SHA256:FINGERPRINT")
      .replace(/order key [\w-]+/g, "order key KEY")
      .replace(/oaj1[\w-]{43,}/g, "JOIN-KEY")
      .replace(/whsec_[A-Za-z0-9+/]{43}=/g, "whsec_SECRET")
      .replace(/(?<![\w-])[\w-]{43}(?![\w-])/g, "SECRET")
      .replace(/("(?:pid|uptime_s|bytes)": )\d+/g, "$1NUMBER")
      .replace(/("kind": "operator",\s+"id": )\d+/g, "$1UID")
      .replace(/(key_id": "|kid\\?": \\?"|unknown key \()[\w-]+/g, "$1KEY")
      .replace(/(127\.0\.0\.1:)\d+/g, "$1PORT")
      .replace(/(\.new\.)\d+/g, "$1PID")
      // With the product's group, its members may use the socket.
      .replace(/(cmd\.sock",\s+"mode": ")06[06]0/g, "$1MODE")
  );
}
