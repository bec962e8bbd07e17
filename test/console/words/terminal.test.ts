// Lines that pages show for a terminal, in a real shell: whatever others chose stays one word.

import { expect, test } from "bun:test";
import fc from "fast-check";
import { join } from "node:path";
import { callText, commandText, item } from "../../../src/console/words/terminal.ts";

/** The words that the program of the line gets, a line each; of several, one after the other. */
function wordsIn(line: string): string[] {
  // A shell refuses the byte 0 in every word.
  const { stdout, stderr } = Bun.spawnSync(
    ["/bin/sh", "-c", `agent() { shift; printf '%s\\0' "$@"; }; PATCH() { agent admin "$@"; }; ${line}`],
    {
      env: { PATH: "/nowhere" },
    },
  );
  expect(stderr.toString()).toBe("");
  return stdout.toString().split("\0").slice(0, -1);
}

const hostile = [
  "bob$(reboot)@example.org",
  "`reboot`",
  "a; reboot",
  'it\'s "$HOME" & <b>',
  "",
  "*",
  "~",
  "two words",
  "a\nb",
  "\u202e",
  "$each",
  "!!",
];

test("a command passes hostile words on as they are", () => {
  const word = fc
    .string({ unit: "grapheme", maxLength: 12 })
    .filter((text) => !text.includes("\0") && text !== item);
  const lists = fc.array(fc.oneof(word, fc.constantFrom(...hostile)), { minLength: 1, maxLength: 6 });
  fc.assert(
    fc.property(lists, (words) => {
      expect(wordsIn(commandText({ command: ["member", ...words] }))).toEqual(["member", ...words]);
    }),
    { numRuns: 200, examples: hostile.map((each): [string[]] => [[each]]) },
  );
});

test("one command for each item, and several commands in a row", () => {
  const loop = {
    command: ["node", "revoke", "acme", item, "--reason", "it's lost"],
    each: ["a b", "$(reboot)", 7],
  };
  expect(wordsIn(commandText(loop))).toEqual(
    ["a b", "$(reboot)", "7"].flatMap((each) => ["node", "revoke", "acme", each, "--reason", "it's lost"]),
  );
  expect(
    commandText({
      command: [
        ["token", "revoke", 1],
        ["token", "revoke", 2],
      ],
    }),
  ).toBe("agent admin token revoke 1 && agent admin token revoke 2");
});

test("the body of a call is one word", () => {
  const body = { email: "bob$(reboot)@example.org", name: "it's" };
  const [path, sent] = wordsIn(callText(["PATCH", "/api/users/3/?x=1&y=2", body]));
  expect(path).toBe("/api/users/3/?x=1&y=2");
  expect(JSON.parse(sent ?? "")).toEqual(body);
});

test("a call shows no password and no secret of a client", () => {
  const body = { email: "ada@example.org", password: "hidden", client_secret: undefined };
  const [, sent] = wordsIn(callText(["PATCH", "/api/users/", body]));
  expect(JSON.parse(sent ?? "")).toEqual({ email: "ada@example.org", password: "…" });
  expect(callText(["PATCH", "/", { client_secret: "hidden" }])).not.toContain("hidden");
});

test("a line that a page writes itself has no value but the slug of an organization", async () => {
  const root = join(import.meta.dir, "../../../src/console");
  let lines = 0;
  for (const file of new Bun.Glob("**/*.{ts,tsx}").scanSync(root)) {
    if (file === "words/terminal.ts") continue;
    const source = await Bun.file(join(root, file)).text();
    for (const [line] of source.matchAll(/`(?:sudo )?agent [^`]*`/g)) {
      lines++;
      const values = [...line.matchAll(/\$\{([^}]*)\}/g)].map(([, value = ""]) => value);
      const others = values.filter(
        (value) => !/^(slug|location\.origin|token\.join_key|currentSlug\.value \?\? "")$/.test(value),
      );
      expect([file, others]).toEqual([file, []]);
    }
  }
  expect(lines).toBeGreaterThan(1);
});
