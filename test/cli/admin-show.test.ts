// `agent admin node show`, `org show` and `ca show` on a terminal: names instead of numbers, and marks for what needs a look.
// `--json` is the API's answer.

import { afterEach, beforeEach, expect, test } from "bun:test";
import type { Event as AuditEvent } from "../../src/api/events.ts";
import { organizationSettings } from "../../src/api/organizations.ts";
import { flagWords, type Setting } from "../../src/protocol/settings.ts";
import { run } from "../../src/cli/run.ts";
import { readableChanges } from "../../src/console/activity/event-words.ts";
import { makeHostKey } from "../../src/pki/keys.ts";
import { signInBrowser } from "../support/browser-session.ts";
import { makeNodeWorld, registerByCommand, type NodeWorld } from "../support/node.ts";

let world: NodeWorld;
beforeEach(async () => {
  world = await makeNodeWorld();
  await registerByCommand(world);
});
afterEach(() => world[Symbol.asyncDispose]());

/** On a terminal with colors. */
async function shown(line: string, laterMs = 0): Promise<string> {
  let out = "";
  const stream = { write: (text: string) => void (out += text), isTerminal: true, columns: 80 };
  const words = [
    "admin",
    ...line.split(" "),
    "--api-base",
    "https://control.example",
    "--access-token-file",
    "-",
  ];
  const env = { HOME: world.root, TERM: "xterm" };
  const now = () => world.server.clock.ms + laterMs;
  const own = { ...world.system, env, now, stdout: stream, stderr: { ...stream, write: () => {} } };
  const status = await run(words, { ...own, readStdin: () => Promise.resolve(world.owner) });
  expect([line, status]).toEqual([line, 0]);
  return out;
}

test("a node is shown with its owner's address, its state, and what it has applied", async () => {
  const text = await shown("node show acme alpha");
  expect(
    Bun.stripANSI(text)
      .split("\n")
      .map((line) => line.slice(0, 15).trim()),
  ).toEqual([
    "name",
    "state",
    "address",
    "role",
    "groups",
    "subnets",
    "owner",
    "certificate",
    "fingerprint",
    "configuration",
    "last check-in",
    "mode",
    "engine",
    "agent",
    "platform",
    "created",
    "number",
    "",
  ]);
  expect(text).toContain("state          \u001b[2moffline\u001b[0m\n");
  expect(text).toContain("owner          the organization\n");
  expect(text).toMatch(/certificate {4}until \S+Z \(\d+ days left\), version 1\n/);
  for (const line of Bun.stripANSI(text).split("\n")) expect(line.length).toBeLessThanOrEqual(80);
});

test("an owner and an expired certificate are said", async () => {
  await world.api("POST", "/api/org/acme/nodes/1/transfer/", { owner: "owner@company.example" });
  const text = await shown("node show acme alpha", 100 * 86_400_000);
  expect(text).toContain("state          \u001b[31mcertificate expired\u001b[0m\n");
  expect(text).toContain("owner          owner@company.example\n");
  expect(text).toContain("certificate    \u001b[31muntil ");
  expect(text).toContain(" (expired), version 1\u001b[0m\n");
});

/** Another value of each setting: as a word of the flag, and as the API has it. */
function another({ takes, words, values, none, range, hint }: Setting, present: unknown): [string, unknown] {
  if (hint === "RULE=VALUE") return ["node=30", ["node=30"]];
  const all = values ?? (takes.type === "boolean" ? [false, true] : words);
  const at = [1, 0].find((each) => all?.[each] !== present) ?? 0;
  if (words !== undefined) return [words[at] ?? "", all?.[at]];
  if (range !== undefined) return [String(range.min), range.min];
  if (none !== undefined && present !== null) return [none, null];
  const text = { N: "Another", CIDR: "fd77::/64", DOMAIN: "corp.example" }[hint ?? ""] ?? "";
  return [text, text];
}

test("each setting of an organization is changed by its flag, stored, shown, and recorded with its word", async () => {
  await world.api("PATCH", "/api/org/acme/", { node_approval: "none" });
  const settings = Object.entries<Setting>(organizationSettings).filter(
    // The owner, who has no second factor, could not go on.
    ([field, { hint }]) => hint !== "FILE" && field !== "second_factor_required",
  );
  expect(settings.length).toBeGreaterThan(13);
  for (const [field, setting] of settings) {
    const before = Object(await world.api("GET", "/api/org/acme/"));
    const [word, value] = another(setting, before[field]);
    expect(flagWords(organizationSettings, { [field]: value })).toEqual([`--${setting.flag}`, word]);
    const out = Bun.stripANSI(await shown(`org update acme --${setting.flag} ${word}`));
    const says = setting.unit === undefined ? word : `${word} ${setting.unit}`;
    expect([field, out]).toEqual([field, `acme: ${setting.flag} is now ${says}\n`]);
    const after = Object(await world.api("GET", "/api/org/acme/"));
    expect([field, after]).toEqual([
      field,
      { ...before, [field]: value, config_version: after.config_version },
    ]);
    expect(Bun.stripANSI(await shown("org show acme"))).toContain(`\n${setting.flag.padEnd(21)}${says}\n`);
    const event = (await world.api("GET", "/api/org/acme/events/?before=999999&limit=1")) as AuditEvent[];
    expect(event[0]).toMatchObject({ type: "organization.updated", after: { [field]: value } });
    const known = {
      names: new Map(),
      things: new Map(),
      words: new Map(),
      settings: { "organization.updated": organizationSettings },
    };
    const [change] = event.flatMap((each) => readableChanges(each, known));
    expect([field, change]).toMatchObject([
      field,
      field === "name" ? { field } : { field: setting.flag, added: [word] },
    ]);
    if (setting.none === undefined) continue;
    await shown(`org update acme --${setting.flag} ${setting.none}`);
    expect(await world.api("GET", "/api/org/acme/")).toMatchObject({ [field]: null });
  }
});

test("events and CAs fit the terminal", async () => {
  const events = await shown("events acme");
  expect(events).toMatch(/^TIME +TYPE +SUBJECT +BY +CHANGES\n/);
  for (const line of events.split("\n")) expect(Bun.stringWidth(line)).toBeLessThanOrEqual(80);
  const text = await shown("ca show acme");
  for (const line of text.split("\n")) expect(Bun.stringWidth(line)).toBeLessThanOrEqual(80);
  expect(text).toContain("rotation: none");
});

test("a phone is no offline node, and says when it has to be imported again", async () => {
  const browser = await signInBrowser(world.server, "owner@company.example");
  const body = { name: "pixel", system: "android", host_public_key: makeHostKey().publicPem };
  const made = await browser.send("POST", `/api/org/acme/phones/`, { body });
  expect([made.status, made.text.slice(0, 200)]).toEqual([201, expect.any(String)]);
  const lineOf = async (line: string, laterMs = 0) =>
    /^.*pixel.*$/m.exec(Bun.stripANSI(await shown(line, laterMs)))?.[0];
  expect(await lineOf("node list acme")).toMatch(/10\.\d+\.\d+\.\d+ +phone  /);
  expect(await lineOf("node list acme", 70 * 86_400_000)).toContain("phone, import");
  expect(await lineOf("node list acme --offline")).toBeUndefined();
  const text = Bun.stripANSI(await shown("node show acme pixel"));
  expect(text).toMatch(/^configuration +of the import at 20/m);
  expect(text).toMatch(/^import again +before 20/m);
});
