import { describe, expect, test } from "bun:test";
import { allCommands } from "../../src/cli/commands.ts";
import { globalFlags } from "../../src/cli/settings.ts";
import { flagsOf, type Args, type Flags } from "../../src/cli/values.ts";
import { findCommand, parseFlags } from "../../src/cli/parse.ts";
import { editDistance } from "../../src/cli/suggest.ts";
import { AppError } from "../../src/base/errors.ts";
import { realSystem } from "../../src/base/system.ts";

const globals: Flags = {
  verbose: { type: "boolean", alias: "v", description: "" },
  "config-root": { type: "string", description: "" },
  autostart: { type: "boolean", default: true, description: "" },
};
const flags: Flags = {
  ...globals,
  "node-name": { type: "string", valueHint: "NAME", description: "" },
  group: { type: "string", repeatable: true, description: "" },
  "api-token": { type: "string", secret: true, description: "" },
};
const clearing: Flags = { ...flags, domain: { type: "string", clears: true, description: "" } };
const names = ["register", "overlay check", "overlay install", "admin org create"];

function usage(act: () => unknown): AppError {
  try {
    act();
  } catch (error) {
    if (error instanceof AppError) return error;
  }
  throw new Error("No usage error was thrown");
}

describe("findCommand()", () => {
  test.each([
    [["register", "--node-name", "a"], "register", ["--node-name", "a"]],
    [["--config-root", "register", "overlay", "check"], "overlay check", ["--config-root", "register"]],
    [["-v", "admin", "org", "create", "acme"], "admin org create", ["-v", "acme"]],
    [["overlay", "--verbose", "install", "x"], "overlay install", ["--verbose", "x"]],
    [["--config-root=/x", "register"], "register", ["--config-root=/x"]],
    [[], "", []],
    [["overlay"], "overlay", []],
  ])("%j", (argv, name, rest) => {
    expect(findCommand(argv, names, globals)).toEqual({ name, rest });
  });

  test.each([
    ["registre", "register"],
    ["constructor", ""],
    ["toString", ""],
  ])("refuses %s and names the nearest word", (word, nearest) => {
    const error = usage(() => findCommand([word], names, globals));
    expect(error.exitStatus).toBe(2);
    expect(error.details.hint ?? "").toContain(nearest === "" ? "--help" : `"${nearest}"`);
  });

  test("names the nearest word below a group", () => {
    expect(usage(() => findCommand(["overlay", "instal"], names, globals)).details.hint).toContain(
      '"overlay install"',
    );
  });
});

describe("parseFlags()", () => {
  const parse = (tokens: string[], env: Record<string, string> = {}) =>
    parseFlags(tokens, { ORG: { type: "positional", required: false }, ...flags }, env);

  test("reads flags, attached values, negations, repeated flags and words", () => {
    const { values, words } = parse([
      "--node-name=a=b",
      "--no-autostart",
      "--group",
      "x",
      "--group=y",
      "acme",
      "-v",
    ]);
    expect(Object.fromEntries(values)).toEqual({
      "node-name": ["a=b"],
      autostart: ["false"],
      group: ["x", "y"],
      verbose: ["true"],
    });
    expect(words).toEqual(["acme"]);
  });

  test.each([
    [["--typo"], "Unknown flag --typo"],
    [["-x"], "Unknown flag -x"],
    [["--__proto__=1"], "Unknown flag --__proto__"],
    [["--no-node-name"], "Unknown flag --no-node-name"],
    [["--verbose", "-v"], "--verbose is given twice"],
    [["--node-name", "a", "--node-name", "b"], "--node-name is given twice"],
    [["--node-name"], "--node-name needs a value: NAME"],
    [["--node-name", "--verbose"], "--node-name needs a value: NAME"],
    [["--verbose=banana"], '--verbose must be true or false, not "banana"'],
    [["one", "two"], 'Unexpected word "two"'],
    [["--ORG", "one"], "Unknown flag --ORG"],
  ])("refuses %j", (tokens, message) => {
    const error = usage(() => parse(tokens));
    expect(error.message).toBe(message);
    expect(error.exitStatus).toBe(2);
  });

  test("refuses a missing word", () => {
    const args: Args = { ORG: { type: "positional", description: "a slug" } };
    expect(usage(() => parseFlags([], args, {})).message).toBe("Missing ORG: a slug");
  });

  test("names the nearest flag", () => {
    expect(usage(() => parse(["--nod-name", "a"])).details.hint).toContain('"--node-name"');
  });

  test("names a longer flag with the same word, and no unlike flag of equal dashes", () => {
    const hintOf = (given: string, names: string[]) =>
      usage(() =>
        parseFlags(
          [given, "x"],
          Object.fromEntries(names.map((name) => [name, { type: "string" as const }])),
          {},
        ),
      ).details.hint;
    expect(hintOf("--group", ["otp", "add-group", "remove-group"])).toBe(
      'Did you mean "--add-group"? See --help.',
    );
    expect(hintOf("--group", ["otp"])).toBe("See --help.");
  });

  test("a variable counts if its flag is missing", () => {
    const env = { AGENT_NODE_NAME: "env", AGENT_VERBOSE: "1", AGENT_CONFIG_ROOT: "", NODE_NAME: "no" };
    expect(Object.fromEntries(parse([], env).values)).toEqual({ "node-name": ["env"], verbose: ["true"] });
    expect(parse(["--node-name", "flag"], env).values.get("node-name")).toEqual(["flag"]);
  });

  test("an invalid boolean variable is named in the error", () => {
    expect(usage(() => parse([], { AGENT_VERBOSE: "maybe" })).message).toBe(
      'AGENT_VERBOSE must be true or false, not "maybe"',
    );
  });

  test("everything after -- is a word", () => {
    expect(parse(["--", "--verbose"]).words).toEqual(["--verbose"]);
  });
});

test("editDistance() counts insertions, deletions and substitutions", () => {
  expect(editDistance("kitten", "sitting")).toBe(3);
  expect(editDistance("", "abc")).toBe(3);
});

describe("an empty value", () => {
  test("is refused, attached or not, unless it clears something", () => {
    for (const line of [
      ["--config-root", ""],
      ["--config-root="],
      ["--api-token", ""],
      ["--group", "a", "--group="],
    ])
      expect(usage(() => parseFlags(line, clearing, {})).message).toContain("is empty");
    expect(parseFlags(["--domain", ""], clearing, {}).values.get("domain")).toEqual([""]);
    // A variable that is empty counts as not set.
    expect(parseFlags([], clearing, { AGENT_CONFIG_ROOT: "" }).values.has("config-root")).toBe(false);
  });

  test("is refused for every flag of every command, unless its help says what it clears", async () => {
    const globals = globalFlags(realSystem());
    for (const [name, command] of Object.entries(await allCommands())) {
      const args = { ...globals, ...(await command.args()) };
      const { notes = "" } = await command.load();
      for (const [flag, definition] of Object.entries(flagsOf(args))) {
        if (definition.type !== "string") continue;
        if (definition.clears === true) {
          expect([name, flag, `${definition.description} ${notes}`]).toEqual([
            name,
            flag,
            expect.stringMatching(/""/),
          ]);
          continue;
        }
        const { message } = usage(() => parseFlags([`--${flag}`, "", "--help"], args, {}));
        expect([name, message]).toEqual([name, expect.stringContaining(`--${flag} is empty`)]);
      }
    }
  });
});
