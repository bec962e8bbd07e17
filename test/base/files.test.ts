import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { allCommands } from "../../src/cli/commands.ts";
import { AppError } from "../../src/base/errors.ts";
import { readTextIfThere, writeFileAtomic, writeNewFile } from "../../src/base/files.ts";
import { agentHere } from "../support/in-process.ts";

const directory = mkdtempSync(join(tmpdir(), "files-"));
afterAll(() => rmSync(directory, { recursive: true }));

describe("writeFileAtomic()", () => {
  test("replaces the content with exactly this mode under any umask, and leaves no other file", () => {
    const path = join(directory, "a", "key");
    mkdirSync(join(directory, "a"));
    const before = process.umask(0);
    try {
      writeFileAtomic(path, "one", 0o600);
      process.umask(0o777);
      writeFileAtomic(path, new Uint8Array([50]), 0o644);
    } finally {
      process.umask(before);
    }
    expect(readFileSync(path, "utf8")).toBe("2");
    expect(statSync(path).mode & 0o7777).toBe(0o644);
    expect(readdirSync(join(directory, "a"))).toEqual(["key"]);
  });

  test("replaces a symbolic link, never its target", () => {
    const target = join(directory, "target");
    writeFileSync(target, "untouched");
    symlinkSync(target, join(directory, "link"));
    writeFileAtomic(join(directory, "link"), "new", 0o600);
    expect(readFileSync(target, "utf8")).toBe("untouched");
  });

  test("an error names the file and the reason", () => {
    expect(() => writeFileAtomic(join(directory, "missing", "x"), "", 0o600)).toThrow(AppError);
  });
});

test("writeNewFile() refuses an existing file or link", () => {
  symlinkSync("/etc/passwd", join(directory, "planted"));
  expect(() => writeNewFile(join(directory, "planted"), "x", 0o600)).toThrow("EEXIST");
});

test("readTextIfThere() distinguishes a missing file from an unreadable one", () => {
  expect(readTextIfThere(join(directory, "absent"))).toBeUndefined();
  expect(() => readTextIfThere(directory)).toThrow("it is a directory, not a file");
});

describe("what a command makes where its user says", () => {
  const at = (name: string) => join(directory, "outputs", name);
  const data = at("data");
  const asked = (words: string, path: string) => [
    ...`admin policy ${words} --at 0s --data-dir ${data} --report`.split(" "),
    path,
  ];
  const makers = {
    "admin backup": (path: string) => ["admin", "backup", path, "--data-dir", data],
    "admin export": (path: string) => ["admin", "export", "acme", path, "--plain", "--data-dir", data],
    "admin policy get": (path: string) => asked("get acme", path),
    "admin policy test": (path: string) => asked("test acme any db tcp/5432", path),
    doctor: (path: string) => ["doctor", "--bundle", path, "--config-root", at("root")],
  };
  const exported = () =>
    agentHere(["admin", "events", "acme", "--type", "ca.exported", "--json", "--data-dir", data]);

  beforeAll(async () => {
    mkdirSync(at("data"), { recursive: true, mode: 0o700 });
    mkdirSync(at("root"));
    expect(
      (await agentHere(["admin", "org", "create", "acme", "--network", "10.77.0.0/16", "--data-dir", data]))
        .status,
    ).toBe(0);
    writeFileSync(at("file"), "mine");
    mkdirSync(at("empty"));
    symlinkSync("file", at("link to a file"));
    symlinkSync("nothing", at("link to nothing"));
    symlinkSync("empty", at("link to a directory"));
    expect(Bun.spawnSync(["mkfifo", at("fifo")]).exitCode).toBe(0);
  });

  test("each argument that is a path is read, the program's own, or made by a command of this test", async () => {
    // `names --prepare` is the unit's: it writes below /run.
    const own = /^(data-dir|secret-key-file|config-root|state-db-path|prepare)$/;
    const read =
      /^((admin (import|restore|policy (apply|import|plan|test))) (FILE|DIR)|(install-tap|overlay (install|update)) file|admin audit verify archive|admin seal \w+ \w+|admin (node|org) update config-overrides|admin rollout create settings|admin user password current-password-file|(admin oidc (create|update)|serve|setup) (\w+-ca|tls-(cert|key)|releases|config))$/;
    const made: string[] = [];
    for (const [name, command] of Object.entries(await allCommands()))
      for (const [key, arg] of Object.entries(await command.args())) {
        const isPath =
          /^(FILE|DIR|PATH)$/.test(key) ||
          /^(FILE|DIR|PATH)\b/.test(("valueHint" in arg && arg.valueHint) || "");
        const isRead =
          own.test(key) || (arg.description ?? "").startsWith("Read ") || read.test(`${name} ${key}`);
        if (isPath && !isRead) made.push(name);
      }
    expect(made.sort()).toEqual(Object.keys(makers).sort());
  });

  const kinds = ["link to a file", "link to nothing", "link to a directory", "fifo"];
  test.each(Object.keys(makers).flatMap((name) => kinds.map((kind) => [name, kind] as const)))(
    "%s leaves a %s there, and says so",
    async (name, kind) => {
      const before = readdirSync(at(""));
      const made = makers[name as keyof typeof makers](at(kind));
      for (const args of [made, [...made, "--dry-run"]]) {
        const { status, err } = await agentHere(args);
        const what = kind === "fifo" ? "a FIFO" : "a symbolic link to ";
        expect([status, err]).toEqual([
          1,
          expect.stringContaining(`Cannot create ${at(kind)}: there is ${what}`),
        ]);
        expect(err).toContain("\nName another place");
      }
      expect(readdirSync(at(""))).toEqual(before);
      expect(readdirSync(at("empty"))).toEqual([]);
      expect(readFileSync(at("file"), "utf8")).toBe("mine");
      expect((await exported()).out).not.toContain("ca.exported");
    },
  );

  test("a file is no directory, and a directory no file", async () => {
    for (const [args, sentence] of [
      [makers["admin export"](at("file")), "there is a file already"],
      [makers["admin backup"](at("empty")), "there is a directory already"],
      [makers.doctor(at("empty")), "there is a directory already"],
    ] as const) {
      const { status, err } = await agentHere(args);
      expect([status, err]).toEqual([1, expect.stringContaining(sentence)]);
    }
    expect((await exported()).out).not.toContain("ca.exported");
  });
});
