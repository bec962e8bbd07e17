// The one way in which files are opened: never waiting, plain files only, bounded. The first test finds any other way.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { thrown } from "../pki/thrown.ts";
import { AppError } from "../../src/base/errors.ts";
import { readTextIfThere, syncDirectory } from "../../src/base/files.ts";
import { appendText, openPlain, readBytes, readText, refuseOddFile } from "../../src/base/open-file.ts";
import { lockFile } from "../../src/platform/file-lock.ts";
import { sourceFiles, sourceRoot, withoutComments } from "../support/imports.ts";

/** What opens a file by its path, of node:fs and of Bun. Asking whether one exists opens nothing. */
const openers =
  /\b(readFileSync|openSync|createReadStream|createWriteStream|copyFileSync|cpSync|appendFileSync|writeFileSync|truncateSync|openAsBlob|Bun\.write|Bun\.mmap)\b|\bBun\.file\((?!.*\)\.exists\(\))|"(?:node:)?fs\/promises"/;

/** Other files that open some, each with its reason. */
const others: Record<string, string> = {
  "base/open-file.ts": "the gate",
  "base/files.ts": "creates files, and fails if there is one (O_EXCL)",
  "server/retention/archive-file.ts": "writes archives asynchronously, after refuseOddFile",
  "server/retention/budget.ts": "asks for sizes asynchronously, and opens none",
  "server/releases/routes.ts": "looks that it is plain, and lets Bun send it",
  "platform/standard-input.ts": "descriptor 0 on Windows",
  "release/publish.ts": "the build alone",
  "server/console/bundle.ts": "the build alone",
  "server/console/bundler.ts": "the build alone",
  "server/docs/assets.ts": "the build alone",
};

describe("ways to open a file", () => {
  const found = sourceFiles().filter((file) =>
    withoutComments(readFileSync(join(sourceRoot, file), "utf8"))
      .split("\n")
      .some((line) => openers.test(line)),
  );

  test("every file opens files by src/base/open-file.ts", () => {
    expect(found.filter((file) => others[file] === undefined)).toEqual([]);
  });

  test("every exception is still one", () => {
    expect(Object.keys(others).filter((file) => !found.includes(file))).toEqual([]);
  });
});

describe("what is no plain file", () => {
  const directory = mkdtempSync(join(tmpdir(), "open-"));
  const at = (name: string) => join(directory, name);
  const kinds = ["fifo", "device", "directory", "link to a fifo", "socket"] as const;
  let listener: { stop(): void };

  beforeAll(() => {
    expect(Bun.spawnSync(["mkfifo", at("fifo")]).exitCode).toBe(0);
    symlinkSync("/dev/zero", at("device"));
    mkdirSync(at("directory"));
    symlinkSync("fifo", at("link to a fifo"));
    listener = Bun.listen({ unix: at("socket"), socket: { data() {} } });
  });
  afterAll(() => {
    listener.stop();
    rmSync(directory, { recursive: true });
  });

  for (const kind of kinds) {
    test(`a ${kind} is refused at once, whatever it is opened for`, () => {
      const words = { fifo: "a FIFO", "link to a fifo": "a FIFO" } as Record<string, string>;
      const reason = `Cannot open ${at(kind)}: it is ${words[kind] ?? `a ${kind}`}, not a file`;
      for (const open of [
        () => readBytes(at(kind)),
        () => readText(at(kind)),
        () => readTextIfThere(at(kind)),
        () => openPlain(at(kind), "update"),
        () => openPlain(at(kind), "append"),
        () => lockFile(at(kind)),
        () => refuseOddFile(at(kind)),
      ])
        expect(open).toThrow(new AppError("bad_configuration", reason));
    });
  }

  test("a device stays where it is: the remedy is a file", () => {
    const { details } = thrown(() => readText(at("device")));
    expect(details.hint).toBe("Name a regular file, or put one in its place.");
    expect(thrown(() => readText(at("fifo"))).details.hint).toContain("move it away");
  });

  test("a directory is synced, and a FIFO in its place does not hang", () => {
    syncDirectory(directory);
    expect(() => syncDirectory(at("fifo"))).toThrow("ENOTDIR");
  });

  test("a loop of links is no file", () => {
    symlinkSync("loop", at("loop"));
    expect(readTextIfThere(at("loop"))).toBeUndefined();
  });

  test("a file of any size is read up to the maximum", () => {
    writeFileSync(at("plain"), "12345");
    expect(readText(at("plain"), 5)).toBe("12345");
    expect(() => readText(at("plain"), 4)).toThrow(`Cannot read ${at("plain")}: it is larger than 4 bytes`);
    truncateSync(at("plain"), 2 ** 40);
    expect(() => readText(at("plain"))).toThrow(`Cannot read ${at("plain")}: it is larger than 64 MiB`);
  });

  test("a file of /proc, whose size is 0, is read whole", () => {
    expect(readText("/proc/self/status")).toContain("CapBnd");
  });

  test("a pipe that the shell made for a flag is read", () => {
    const script = `import { readText } from "${join(sourceRoot, "base/open-file.ts")}"; process.stdout.write(readText(process.argv[1]));`;
    const shell = `exec "$0" -e '${script}' <(sleep 0.1; echo hello)`;
    expect(Bun.spawnSync(["bash", "-c", shell, process.execPath]).stdout.toString()).toBe("hello\n");
  });

  test("a log on a pipe that no process reads fails, and a device takes it", () => {
    expect(() => appendText(at("fifo"), "line\n", 0o640)).toThrow("ENXIO");
    appendText("/dev/null", "line\n", 0o640);
  });
});
