// `agent admin policy …` on a data directory, as an administrator uses it.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { agentHere } from "../support/in-process.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const directory = temporaryDirectory();
const data = join(directory.path, "data");
const file = join(directory.path, "policy.yaml");
const admin = (...words: string[]) => agentHere(["admin", ...words, "--data-dir", data]);
const policy = (...words: string[]) => admin("policy", ...words);

const text = `# kept as it is
groups:
  web: {members: [node:web1]}
  db: {members: [node:db1]}
rules:
  - {direction: outbound, peer: any, target: any}
  - {protocol: tcp, ports: 5432, peer: group:web, target: group:db}
tests:
  - accept: {from: group:web, to: group:db, protocol: tcp, port: 5432}
  - deny: {from: group:db, to: group:web, protocol: icmp}
`;

beforeAll(async () => {
  expect((await admin("org", "create", "acme", "--network", "10.9.0.0/24")).status).toBe(0);
  for (const name of ["web1", "db1"]) expect((await admin("node", "create", "acme", name)).status).toBe(0);
  writeFileSync(file, text);
});
afterAll(() => directory[Symbol.dispose]());

test("plan shows rules, nodes and kept things; apply does it; get prints the same file", async () => {
  const planned = await policy("plan", "acme", file, "--prune");
  expect(planned.out).toBe(`+ group web
+ group db
+ rule inbound tcp/5432 peer group:web target group:db
- rule 1 inbound icmp/any peer any target any (Everybody may ping)
~ node web1: +group web
~ node db1: +group db
No registered node, and no network behind one, gains or loses access.
Policy version 0; 2 of 2 tests pass
`);
  const applied = await policy("apply", "acme", file, "--prune", "--policy-version", "0");
  expect([applied.status, applied.err]).toEqual([0, expect.not.stringContaining("On the local data")]);
  expect(applied.out).toEndWith("Applied version 1\n");
  // The same file again changes nothing, and makes no version.
  const again = await policy("apply", "acme", file, "--prune");
  expect(again.out).toEndWith("Version 1 is in force\n");
  expect((await policy("get", "acme")).out).toBe(text);
  expect((await policy("plan", "acme", file, "--prune")).out).toBe(
    "Nothing changes.\nPolicy version 1; 2 of 2 tests pass\n",
  );
});

test("get prints a stored file unchanged into a pipe, and without control characters on a terminal", async () => {
  const stored = `${text}# written on Windows\r\n# \u202eright to left\r\n`;
  writeFileSync(`${file}.marks`, stored);
  expect((await policy("apply", "acme", `${file}.marks`, "--prune")).status).toBe(0);
  const piped = await policy("get", "acme");
  expect(piped.out).toBe(stored);
  expect(piped.err).not.toContain("Control characters");
  const words = ["admin", "policy", "get", "acme", "--data-dir", data];
  const shown = await agentHere(words, { isTerminal: true });
  expect(shown.out).toBe(stored.replaceAll(/[\r\u202e]/g, " "));
  expect(shown.err).toContain("Control characters of the file are shown as blanks");
  expect(JSON.parse((await policy("get", "acme", "--json")).out)).toMatchObject({ policy: stored });
  expect((await policy("apply", "acme", file, "--prune")).status).toBe(0);
});

test("a test that fails ends with status 1, and rule commands are refused by it", async () => {
  writeFileSync(`${file}.wrong`, text.replace("ports: 5432", "ports: 80"));
  for (const verb of ["plan", "test", "apply"]) {
    const { status, out, err } = await policy(verb, "acme", `${file}.wrong`, "--prune");
    expect([verb, status]).toEqual([verb, 1]);
    expect(out + err).toContain("Test 1: web1 must reach db1 on tcp/5432, but tcp/5432 is refused.");
  }
  expect((await policy("test", "acme")).out).toBe("2 of 2 tests pass\n");
  const rule = ["rule", "create", "acme", "--protocol", "icmp", "--peer", "any", "--target", "any"];
  const refused = await admin(...rule);
  expect([refused.status, refused.err]).toEqual([1, expect.stringContaining("a test of the policy fails")]);
});

test("a packet is explained with three words, all that passes between two nodes with two", async () => {
  const { status, out } = await policy("test", "acme", "web1", "db1", "tcp/5432");
  expect([status, out]).toEqual([1, "Refused: The node web1 is pending.\n"]);
  const all = await policy("test", "acme", "web1", "db1");
  expect([all.status, all.out]).toEqual([1, "Refused: The node web1 is pending.\n"]);
  expect((await policy("test", "acme", "web1", "db1", "5432x")).status).toBe(2);
});

test("confirm, revert and update say what they did", async () => {
  const more = text.replace("ports: 5432", "ports: 5432-5440");
  writeFileSync(`${file}.more`, more);
  const applied = await policy("apply", "acme", `${file}.more`, "--prune", "--confirm", "10m");
  expect(applied.err).toContain("admin policy confirm acme");
  expect((await admin("group", "create", "acme", "spare")).err).toContain(
    "A policy that the operator has applied goes back at ",
  );
  expect((await policy("revert", "acme")).status).toBe(0);
  expect((await policy("get", "acme")).out).toBe(text);
  await policy("apply", "acme", `${file}.more`, "--prune", "--confirm", "10m");
  expect((await policy("confirm", "acme")).status).toBe(0);
  expect((await policy("get", "acme")).out).toBe(more);
  expect((await policy("confirm", "acme")).status).toBe(1);
  expect((await policy("update", "acme", "--by-file", "on")).status).toBe(0);
  expect((await admin("group", "create", "acme", "spare")).err).toContain("by its file only");
  expect((await policy("update", "acme", "--by-file", "off")).status).toBe(0);
});

test("faults name their line, a missing file its path", async () => {
  writeFileSync(`${file}.typo`, text.replace("target: group:db", "target: group:bd"));
  const { status, err } = await policy("plan", "acme", `${file}.typo`);
  expect([status, err]).toEqual([
    1,
    expect.stringContaining("Line 7, column 51: rules.1.target: There is no group bd"),
  ]);
  expect(await policy("plan", "acme", "/nowhere.yaml")).toMatchObject({
    status: 2,
    err: expect.stringContaining("There is no file /nowhere.yaml"),
  });
});

test("one fault of a file is said once, several each on a line of their own", async () => {
  const broken = join(directory.path, "broken.yaml");
  writeFileSync(broken, "rulez: []\n");
  const one = await policy("plan", "acme", broken);
  expect(one.err.match(/rulez: This key is unknown/g)).toHaveLength(1);
  writeFileSync(broken, "rulez: []\nroutez: []\n");
  const two = await policy("plan", "acme", broken);
  expect(two.err).toMatch(
    /^ {2}policy: Line 1, column 1: rulez: .*\n {2}policy: Line 2, column 1: routez: .*$/m,
  );
});

test("what names a deleted node is said in comments of the file, and by name in the list of rules", async () => {
  await admin("node", "create", "acme", "old");
  writeFileSync(
    `${file}.old`,
    `${text}  - deny: {from: node:old, to: group:db, protocol: udp, port: 53}\n`.replace(
      "tests:",
      "  - {protocol: tcp, ports: 22, peer: node:old, target: group:web}\ntests:",
    ),
  );
  expect((await policy("apply", "acme", `${file}.old`, "--prune")).status).toBe(0);
  expect((await policy("get", "acme")).out).not.toContain("Left out");
  await admin("node", "revoke", "acme", "old");
  const { out } = await policy("get", "acme");
  const why = "# Left out, because a node or member that it names is gone: ";
  expect(out).toMatch(
    new RegExp(`^${why}rule \\d+, inbound tcp/22 from node:old \\(deleted, id \\d+\\) to group:web$`, "m"),
  );
  expect(out).toMatch(
    new RegExp(`^${why}the test deny udp/53 from node:old \\(deleted, id \\d+\\) to group:db$`, "m"),
  );
  expect((await admin("rule", "list", "acme")).out).toContain("node:old (revoked)");
  // The file is still one that can be applied.
  writeFileSync(`${file}.state`, out);
  expect((await policy("plan", "acme", `${file}.state`)).status).toBe(0);
});
