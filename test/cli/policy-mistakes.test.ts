// A policy of Tailscale with 200 lines is imported and applied. Then an administrator makes the usual mistakes: each is stopped
// with a sentence that says what to do.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { agentHere } from "../support/in-process.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const directory = temporaryDirectory();
afterAll(() => directory[Symbol.dispose]());
const data = join(directory.path, "data");
const file = join(directory.path, "policy.yaml");
const original = join(import.meta.dir, "../fixtures/tailscale-policy.hujson");
const admin = (...words: string[]) => agentHere(["admin", ...words, "--data-dir", data]);
const policy = (...words: string[]) => admin("policy", ...words);
let text = "";

beforeAll(async () => {
  const imported = await agentHere(["admin", "policy", "import", "--from", "tailscale", original]);
  expect(imported.status).toBe(0);
  const lines = imported.err.trim().split("\n");
  // Each line without an equal, then what comes next.
  expect(lines.slice(0, -1).every((line) => /^Line \d+: .+: .+\.$/.test(line))).toBe(true);
  expect(lines).toHaveLength(32);
  expect(lines.at(-1)).toContain("admin policy plan ORG FILE --prune");
  text = imported.out;
  writeFileSync(file, text);
  expect((await admin("org", "create", "acme", "--network", "10.77.0.0/16")).status).toBe(0);
  for (const name of ["web", "db", "monitor"])
    expect((await admin("node", "create", "acme", `${name}1`, "--group", name)).status).toBe(0);
  expect((await policy("plan", "acme", file, "--prune")).out).toContain("7 of 7 tests pass");
  expect((await policy("apply", "acme", file, "--prune")).status).toBe(0);
}, 60_000);

const rule = "  - protocol: tcp\n    peer: group:admins\n    target: any\n";

test.each<[string, (text: string) => string | Buffer, string]>([
  [
    "a mistyped key",
    (t) => t.replace("peer: group:admins", "per: group:admins"),
    "rules.1.per: This key is unknown.",
  ],
  [
    "a mistyped group",
    (t) => t.replace("peer: group:dev\n", "peer: group:devs\n"),
    "There is no group devs in this file: add it below `groups`, or correct the name.",
  ],
  ["a removed group", (t) => t.replace("  db: {}\n", ""), "There is no group db in this file"],
  ["a key that is there twice", (t) => `${t}groups: {x: {}}\n`, "The key groups is here twice."],
  [
    "an unknown node",
    (t) => `${t}relays: [node:relay1]\n`,
    "relays.0: There is no node relay1. Correct the name, or remove what names it.",
  ],
  [
    "host bits in a network",
    (t) => `${t}routes: [{network: 192.168.5.1/24, via: node:web1}]\n`,
    "Enter a network such as 192.168.5.0/24, host bits zero.",
  ],
  ["a port out of range", (t) => t.replace("ports: 443", "ports: 70000"), "Enter ports from 1 to 65535."],
  ["a rule that is there twice", (t) => t.replace(rule, rule + rule), "This is rule 2 of the file again."],
  [
    "an unknown member",
    (t) => t.replace("group:admins\n", "user:ada@example.org\n"),
    "There is no member ada@example.org. Correct the address, or invite the user, who has to accept first.",
  ],
  ["a port 0", (t) => t.replace("ports: 443", "ports: 0"), "Enter ports from 1 to 65535."],
  [
    "9 MB",
    (t) => `${t}#${"x".repeat(9_000_000)}\n`,
    "KiB; the maximum is 512 KiB.\nLet rules name groups or networks",
  ],
  ["an empty file", () => "", "The policy is empty. Expected groups, rules, routes"],
  ["a tab", (t) => t.replace("  db: {}", "\tdb: {}"), "Tabs are not allowed as indentation: use spaces."],
  ["ports the wrong way", (t) => t.replace("ports: 443", "ports: 90-80"), "the lower one first."],
  ["a wrong protocol", (t) => t.replace("protocol: tcp", "protocol: TCP"), "Expected any, tcp, udp or icmp."],
  [
    "a merge conflict",
    (t) => t.replace("  db: {}\n", "<<<<<<< HEAD\n  db: {}\n=======\n  data: {}\n>>>>>>> b\n"),
    "Git left a merge conflict here: keep one side, and delete the marks.",
  ],
  [
    "a file in UTF-16",
    (t) => Buffer.from(`\uFEFF${t}`, "utf16le"),
    "Line 1 is not text in UTF-8.\nSave the file as UTF-8",
  ],
  ["a null character", (t) => t.replace("db: {}", "d\0b: {}"), "has a null character.\nDelete it"],
  [
    "a letter in Latin-1",
    (t) => Buffer.from(t.replace("  db: {}", "  db: {description: caf\u00E9}"), "latin1"),
    "is not text in UTF-8.",
  ],
  [
    "a policy of Tailscale",
    () => '// Ours\n{\n\t"acls": [], // none\n}\n',
    "This is a policy of Tailscale or headscale.\nMake a policy file of it: `agent admin policy import",
  ],
  ["the same as JSON", () => '{"tagOwners": {}, "acls": []}', "This is a policy of Tailscale or headscale."],
  [
    "a test that contradicts a rule",
    (t) => `${t}  - deny: {from: group:web, to: group:db, protocol: tcp, port: 5432}\n`,
    "web1 must not reach db1 on tcp/5432, but tcp/5432 is permitted by rule",
  ],
  [
    "a rule that is gone and was tested",
    (t) => t.replace(/ {2}- protocol: tcp\n {4}ports: 5432\n {4}peer: group:web\n {4}target: group:db\n/, ""),
    "web1 must reach db1 on tcp/5432, but tcp/5432 is refused.",
  ],
])("%s is refused, and nothing changes", async (_, change, sentence) => {
  const broken = join(directory.path, "broken.yaml");
  expect(change(text)).not.toBe(text);
  writeFileSync(broken, change(text));
  const before = (await policy("get", "acme")).out;
  const { status, err } = await policy("apply", "acme", broken, "--prune");
  expect([status, err]).toEqual([1, expect.stringContaining(sentence)]);
  expect((await policy("get", "acme")).out).toBe(before);
});

test("a byte order mark, line ends of Windows and a link to the file change nothing", async () => {
  const [windows, link] = [join(directory.path, "windows.yaml"), join(directory.path, "link.yaml")];
  writeFileSync(windows, `\uFEFF${text.replaceAll("\n", "\r\n")}`);
  symlinkSync(windows, link);
  expect((await policy("plan", "acme", link, "--prune")).out).toContain("Nothing changes.");
});

test("of two editors, the second is told to plan again", async () => {
  const stale = await policy("apply", "acme", file, "--prune", "--policy-version", "0");
  expect([stale.status, stale.err]).toEqual([
    1,
    expect.stringContaining("Plan again, look at the difference"),
  ]);
});

test("what is in use is kept by --prune, and named", async () => {
  const smaller = `${file}.smaller`;
  writeFileSync(smaller, "groups: {}\nrules: []\ntests: []\n");
  const { out } = await policy("plan", "acme", smaller, "--prune");
  expect(out).toContain("The group web is not in the file. It stays while node web1 is in it.");
});

test("by file only, edits by hand are refused with the command to use", async () => {
  expect((await policy("update", "acme", "--by-file", "on")).status).toBe(0);
  const refused = await admin("rule", "delete", "acme", "2");
  expect([refused.status, refused.err]).toEqual([1, expect.stringContaining("admin policy apply ORG FILE")]);
  expect((await policy("update", "acme", "--by-file", "off")).status).toBe(0);
});
