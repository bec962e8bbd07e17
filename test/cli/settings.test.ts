// Each global flag before, inside and after the command, and as a variable: the settings are the same, and a flag wins over
// its variable.

import { describe, expect, test } from "bun:test";
import { resolve } from "node:path";
import { profilesDirectory } from "../../src/brand.ts";
import { Values } from "../../src/cli/values.ts";
import { commands } from "../../src/cli/commands.ts";
import { findCommand, parseFlags } from "../../src/cli/parse.ts";
import { dataFlagsOf, readDataOptions } from "../../src/cli/server/server-flags.ts";
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
  const { values } = parseFlags(rest, globals, env);
  const settings = readSettings(new Values(values, system(env)), system(env));
  return { ...settings, name };
}

/** Flag, its value, another value for the variable, and the expected settings. */
const table: [flag: string, value: string, other: string, wanted: Partial<Settings>][] = [
  ["verbose", "true", "false", { verbose: true }],
  ["log-file", "/l", "/m", { logFile: "/l" }],
  ["log-format", "json", "text", { logFormat: "json" }],
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

test("a relative --config-root becomes absolute, because config.yml and units name files below it", () => {
  expect(settingsOf(["--config-root", "here/../root", "checkin"]).configRoot).toBe(resolve("root"));
  expect(settingsOf(["checkin"], { AGENT_CONFIG_ROOT: "root" }).configRoot).toBe(resolve("root"));
});

for (const [flag, value, other, wanted] of table) {
  describe(`--${flag}`, () => {
    const variable = `AGENT_${flag.toUpperCase().replaceAll("-", "_")}`;
    const given = `--${flag}=${value}`;
    // Without "=".
    const apart =
      value === "true" ? [`--${flag}`] : value === "false" ? [`--no-${flag}`] : [`--${flag}`, value];

    test("has the same effect at every position", () => {
      const forms = [
        [...apart, "overlay", "check"],
        ["overlay", ...apart, "check"],
        ["overlay", "check", ...apart],
        [given, "overlay", "check"],
        ["overlay", "check", given],
      ];
      for (const argv of forms) expect(settingsOf(argv)).toMatchObject({ ...wanted, name: "overlay check" });
    });

    test("can be given as a variable, and wins over it", () => {
      expect(settingsOf(["overlay", "check"], { [variable]: value })).toMatchObject(wanted);
      expect(settingsOf(["overlay", "check", given], { [variable]: other })).toMatchObject(wanted);
    });
  });
}

test("no colors without a terminal, with NO_COLOR or with TERM=dumb", () => {
  expect(settingsOf(["status"]).color).toBe(true);
  expect(settingsOf(["status"], { NO_COLOR: "1" }).color).toBe(false);
  expect(settingsOf(["status"], { NO_COLOR: "" }).color).toBe(true);
  expect(settingsOf(["status"], { TERM: "dumb" }).color).toBe(false);
});

test("an invalid --database-url is refused without being repeated: it may hold a password", async () => {
  const read = (url: string) =>
    readDataOptions(new Values(new Map([["database-url", [url]]]), system({})), {
      env: { HOME: "/home/a" },
      isRoot: false,
    });
  for (const url of ["control", "mysql://me:pass-word@db/control", "postgres//me:pass-word@db"]) {
    const error: unknown = await read(url).catch((met: unknown) => met);
    expect(error).toMatchObject({ code: "usage", message: expect.stringContaining("postgres://USER") });
    expect(String(error)).not.toContain("pass-word");
  }
  const url = "postgres://me@localhost/control?host=/run/postgresql";
  expect((await read(url)).databaseUrl).toBe(url);
});

test("dataFlagsOf() quotes for a shell and never shows the database's password", () => {
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

test("the control plane's data and the profiles are in the user's home; without a home there is no default", async () => {
  const dataOf = async (env: Record<string, string>, isRoot = false) =>
    (await readDataOptions(new Values(new Map(), system({})), { env, isRoot })).dataDirectory;
  expect(await dataOf({}, true)).toBe("/var/lib/overlay-agent/server/");
  expect(await dataOf({ HOME: "/home/a" })).toBe("/home/a/.local/share/overlay-agent/server/");
  expect(await dataOf({ HOME: "/home/a", XDG_DATA_HOME: "" })).toBe(
    "/home/a/.local/share/overlay-agent/server/",
  );
  expect(await dataOf({ XDG_DATA_HOME: "/data" })).toBe("/data/overlay-agent/server/");
  for (const env of [{}, { HOME: "" }, { XDG_DATA_HOME: "" }])
    expect(await dataOf(env).catch((error: unknown) => error)).toMatchObject({ code: "bad_configuration" });
  expect(profilesDirectory("linux", { HOME: "/home/a", XDG_CONFIG_HOME: "" })).toBe(
    "/home/a/.config/overlay-agent/profiles",
  );
  expect(profilesDirectory("linux", { HOME: "" })).toBeUndefined();
});
