// Every global flag before the command, between its words, after it, and by its variable: the same settings each time, and
// a flag beats its variable.

import { describe, expect, test } from "bun:test";
import { resolve } from "node:path";
import { Values } from "../../src/cli/values.ts";
import { commands } from "../../src/cli/commands.ts";
import { findCommand, parseFlags } from "../../src/cli/parse.ts";
import { dataFlagsOf, readDataOptions } from "../../src/cli/server-flags.ts";
import { globalFlags, readSettings, type Settings } from "../../src/cli/settings.ts";

const system = (env: Record<string, string>) => ({
  platform: "linux" as const,
  env,
  stdout: { write: () => {}, isTerminal: true, columns: 80 },
  readStdin: () => Promise.resolve(""),
});

function settingsOf(argv: readonly string[], env: Record<string, string> = {}): Settings & { name: string } {
  const globals = globalFlags(system(env));
  const { name, rest } = findCommand(argv, Object.keys(commands), globals);
  const { values } = parseFlags(rest, globals, [], env);
  const settings = readSettings(new Values(values, system(env)), system(env));
  return { ...settings, name };
}

/** Flag → what is given, another value for the variable, and what the settings then say. */
const table: [flag: string, value: string, other: string, wanted: Partial<Settings>][] = [
  ["verbose", "true", "false", { verbose: true }],
  ["log-file", "/l", "/m", { logFile: "/l" }],
  ["dry-run", "true", "false", { dryRun: true }],
  ["json", "true", "false", { json: true }],
  ["no-color", "true", "false", { color: false }],
  ["config-root", "/c", "/d", { configRoot: "/c" }],
  ["ipc-mode", "socket", "pipe", { ipcMode: "socket" }],
  ["socket-path", "/s", "/t", { socketPath: "/s" }],
  ["pipe-name", "p", "q", { pipeName: "p" }],
  ["state-db-path", "/b", "/e", { stateDb: "/b" }],
  ["autostart", "false", "true", { autostart: false }],
  ["overlay-binary", "/o", "/r", { overlayBinary: "/o", overlayBinaryGiven: true }],
];

test("the table holds every global flag but --help", () => {
  const flags = Object.keys(globalFlags(system({}))).filter((name) => name !== "help");
  expect(table.map(([flag]) => flag)).toEqual(flags);
});

test("a relative --config-root is made absolute: config.yml and units name files below it", () => {
  expect(settingsOf(["--config-root", "here/../root", "checkin"]).configRoot).toBe(resolve("root"));
  expect(settingsOf(["checkin"], { AGENT_CONFIG_ROOT: "root" }).configRoot).toBe(resolve("root"));
});

for (const [flag, value, other, wanted] of table) {
  describe(`--${flag}`, () => {
    const variable = `AGENT_${flag.toUpperCase().replaceAll("-", "_")}`;
    const given = `--${flag}=${value}`;
    // Apart, where that is how the flag is written.
    const apart =
      value === "true" ? [`--${flag}`] : value === "false" ? [`--no-${flag}`] : [`--${flag}`, value];

    test("says the same wherever it stands", () => {
      const forms = [
        [...apart, "overlay", "check"],
        ["overlay", ...apart, "check"],
        ["overlay", "check", ...apart],
        [given, "overlay", "check"],
        ["overlay", "check", given],
      ];
      for (const argv of forms) expect(settingsOf(argv)).toMatchObject({ ...wanted, name: "overlay check" });
    });

    test("by its variable, which a flag beats", () => {
      expect(settingsOf(["overlay", "check"], { [variable]: value })).toMatchObject(wanted);
      expect(settingsOf(["overlay", "check", given], { [variable]: other })).toMatchObject(wanted);
    });
  });
}

test("no colour without a terminal, with NO_COLOR, with TERM=dumb", () => {
  expect(settingsOf(["status"]).color).toBe(true);
  expect(settingsOf(["status"], { NO_COLOR: "1" }).color).toBe(false);
  expect(settingsOf(["status"], { NO_COLOR: "" }).color).toBe(true);
  expect(settingsOf(["status"], { TERM: "dumb" }).color).toBe(false);
});

test("a --database-url of another kind is refused, without saying what may hold a password", async () => {
  const read = (url: string) =>
    readDataOptions(new Values(new Map([["database-url", [url]]]), system({})), { env: {}, isRoot: false });
  for (const url of ["control", "mysql://me:pass-word@db/control", "postgres//me:pass-word@db"]) {
    const error: unknown = await read(url).catch((met: unknown) => met);
    expect(error).toMatchObject({ code: "usage", message: expect.stringContaining("postgres://USER") });
    expect(String(error)).not.toContain("pass-word");
  }
  const url = "postgres://me@localhost/control?host=/run/postgresql";
  expect((await read(url)).databaseUrl).toBe(url);
});

test("the way to the same data is told without the database's password, and so that a shell can read it", () => {
  const values = (given: [string, string][]) =>
    dataFlagsOf(new Values(new Map(given.map(([name, value]) => [name, [value]])), system({})));
  expect(values([])).toBe("");
  expect(
    values([
      ["data-dir", "/srv/a b's"],
      ["secret-key-file", "/etc/key"],
    ]),
  ).toBe(` --data-dir '/srv/a b'\\''s' --secret-key-file /etc/key`);
  expect(values([["database-url-file", "/etc/url"]])).toBe(" --database-url-file /etc/url");
  expect(values([["database-url", "postgres://u:secret@h/d"]])).toBe(" --database-url URL");
});
