// Lines that we print for an administrator to paste: a value from outside stays one word of its line, and names that
// reach files, units and commands hold no character that means anything there.

import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import fc from "fast-check";
import * as v from "valibot";
import { AppError } from "../src/base/errors.ts";
import { openOrganization } from "../src/node/files/organizations.ts";
import { quoteWord } from "../src/base/quote.ts";
import { engineUnit } from "../src/platform/systemd/systemd.ts";
import { NodeName, Slug } from "../src/protocol/values.ts";
import { operator } from "../src/server/audit/record.ts";
import { registerLine } from "../src/server/nodes/joining/registration-tokens.ts";
import { addMember } from "../src/server/users/members.ts";
import { findUser } from "../src/server/users/users.ts";
import { Email } from "../src/api/values.ts";
import { runSync } from "./support/debian.ts";
import { makeTestServer } from "./support/server.ts";

/** The words that a shell gives to `agent`; commands that the line hides would fail, or print more words. */
function wordsOf(line: string): string[] {
  const script = `agent() { printf '%s\\n' "$@"; }\n${line}`;
  return runSync(["/bin/sh", "-euc", script]).trimEnd().split("\n");
}

async function hintOf(work: Promise<unknown>): Promise<string> {
  const error = await work.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (!(error instanceof AppError)) throw new Error(`no failure: ${String(error)}`);
  return error.details.hint ?? "";
}

/** The text between the first backtick and the last: the value may hold some too. */
const lineIn = (hint: string) => hint.slice(hint.indexOf("`") + 1, hint.lastIndexOf("`"));

const hostile = "$(id)`id`&id|(id)@example.org";

describe("a hostile address", () => {
  test("is accepted as an address, so every line must quote it", () => {
    expect(v.parse(Email, hostile)).toBe(hostile);
  });

  test("stays one word in the lines for members and users", async () => {
    await using server = await makeTestServer();
    const org = await server.organization("acme");
    await server.person(hostile);
    const add = () =>
      addMember(
        server.app.services,
        org,
        { email: hostile, role: "member" },
        { role: "owner", actor: operator },
      );
    await add();
    const member = lineIn(await hintOf(add()));
    expect(wordsOf(member)).toEqual(["admin", "member", "update", "acme", hostile, "--role", "ROLE"]);
    const user = lineIn(await hintOf(findUser(server.db, `x${hostile}`)));
    expect(wordsOf(user)).toEqual(["admin", "user", "create", `x${hostile}`]);
  });

  test("never begins with a dash: a command would take it for a flag", () => {
    for (const address of ["--data-dir=/tmp/x@example.org", "-x@example.org"])
      expect(v.safeParse(Email, address).success).toBe(false);
  });
});

test("the line to register a machine keeps a strange public URL one word", () => {
  const publicUrl = "https://control.example/$(id)";
  const line = registerLine({ publicUrl }, "acme", { is_lighthouse: false }, "oat_token");
  expect(wordsOf(line)).toEqual([
    "register",
    "--api-base",
    publicUrl,
    "--org-slug",
    "acme",
    "--registration-token-file",
    "-",
  ]);
  const lighthouse = registerLine({ publicUrl }, "acme", { is_lighthouse: true }, "oat_token");
  expect(wordsOf(lighthouse)).toEqual(expect.arrayContaining(["--is-lighthouse", "--is-relay"]));
});

test("an organization's name from the command line stays one word in the hint", async () => {
  const hint = await hintOf((async () => openOrganization("/nowhere", "$(id)"))());
  expect(hint).toContain("register --org-slug '$(id)' …");
});

test("names of organizations and nodes need no quotes, are no flags, and are plain systemd instances", () => {
  const text = fc.oneof(
    fc.string({ unit: "binary", maxLength: 12 }),
    fc.stringMatching(/^[a-z0-9 $`;&|'"%\\/\n-]{1,12}$/),
  );
  const names = fc.property(text, (name) => {
    for (const schema of [Slug, NodeName]) {
      if (!v.is(schema, name)) continue;
      expect(quoteWord(name)).toBe(name);
      expect(name).toMatch(/^[a-z0-9][a-z0-9-]*$/);
      expect(engineUnit(name)).toBe(`overlay-agent@${name}.service`);
    }
  });
  fc.assert(names, { numRuns: 5000 });
  for (const name of ["a\n", "a\nProxyCommand id", "-a", "a%i", "$(id)", "../a", "a b", ""])
    for (const schema of [Slug, NodeName]) expect(v.is(schema, name)).toBe(false);
});

/** Expressions that may stand in a line as they are: our own words, numbers, checked slugs, and lines quoted before. */
const safe = new Set([
  "claim.slug",
  "command",
  "flag",
  "line",
  "listing",
  "made.id",
  "org",
  "org.slug",
  "other.slug",
  "row.id",
  "rule.id",
  "slug",
  "userId",
  'prefix === "" ? "" : ` ${prefix}`',
]);

test("every line of the source that is printed for pasting quotes its values", async () => {
  const root = join(import.meta.dir, "../src");
  const found: string[] = [];
  let lines = 0;
  for (const file of new Bun.Glob("**/*.{ts,tsx}").scanSync(root)) {
    const source = await Bun.file(join(root, file)).text();
    const marked = source.matchAll(/\\`\$\{(?:brand\.executable|run)\}((?:(?!\\`)[^\n])*)\\`/g);
    const named = source.matchAll(/const line = `\$\{brand\.executable\}([^\n]*)`;/g);
    for (const [, line = ""] of [...marked, ...named]) {
      lines += 1;
      for (const [, expression = ""] of line.matchAll(/\$\{((?:[^{}]|\{[^{}]*\})*)\}/g))
        if (!safe.has(expression) && !expression.includes("quoteWord")) found.push(`${file}: ${expression}`);
    }
  }
  expect(lines).toBeGreaterThan(20);
  expect(found).toEqual([]);
});
