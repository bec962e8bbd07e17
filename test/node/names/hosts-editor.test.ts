// The file itself: replaced as a whole, with its owner and mode, and left alone where it is not an ordinary file of root,
// or where another program is at it.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import {
  appendFileSync,
  chmodSync,
  closeSync,
  linkSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { makeHostsEditor, type HostsEditor } from "../../../src/node/names/hosts-editor.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const usual = "127.0.0.1 localhost\n";
const names = () => ["10.77.0.3 beta.acme.internal"];
const owner = process.getuid?.() ?? 0;

describe.skipIf(process.platform !== "linux")("the hosts file", () => {
  let directory: ReturnType<typeof temporaryDirectory>;
  let path: string;
  let editor: HostsEditor;
  /** As if the file had not changed for a minute. */
  const settle = () => utimesSync(path, new Date(Date.now() - 60_000), new Date(Date.now() - 60_000));
  const read = () => readFileSync(path, "latin1");
  const foreign = (text: string) => {
    writeFileSync(path, text);
    settle();
  };

  beforeEach(() => {
    directory = temporaryDirectory();
    path = join(directory.path, "hosts");
    foreign(usual);
    editor = makeHostsEditor(path, { now: Date.now, owner });
  });
  afterEach(() => {
    editor.close();
    directory[Symbol.dispose]();
  });

  test("gets the block, keeps its mode, and is as before without names", () => {
    chmodSync(path, 0o640);
    expect(editor.update(names)).toBe("written");
    expect(read()).toContain("\n10.77.0.3 beta.acme.internal\n");
    expect(statSync(path).mode & 0o777).toBe(0o640);
    settle();
    expect(editor.update(names)).toBe("same");
    expect(editor.update(() => [])).toBe("written");
    expect(read()).toBe(usual);
    expect(readdirSync(directory.path)).toEqual(["hosts"]);
  });

  test("is told which names its other lines have", () => {
    foreign(`${usual}10.0.0.9 beta.acme.internal\n`);
    editor.update((taken) => (taken.has("beta.acme.internal") ? [] : names()));
    expect(read()).not.toContain("BEGIN");
  });

  test("is left alone while another program writes it: just changed, or empty", () => {
    writeFileSync(path, usual);
    expect(editor.update(names)).toBe("later");
    truncateSync(path);
    settle();
    expect(editor.update(names)).toBe("later");
    expect(editor.update(() => [])).toBe("same");
    expect(read()).toBe("");
  });

  test("that another program replaces gets the block again", () => {
    editor.update(names);
    foreign("127.0.0.1 other\n");
    expect(editor.update(names)).toBe("written");
    expect(read()).toStartWith("127.0.0.1 other\n# BEGIN");
  });

  test("keeps what a program writes late, which had opened the former file", () => {
    const late = openSync(path, "a");
    editor.update(names);
    writeSync(late, "10.0.0.9 late\n");
    closeSync(late);
    settle();
    expect(editor.update(names)).toBe("written");
    expect(read()).toStartWith(`${usual}10.0.0.9 late\n# BEGIN`);
    settle();
    expect(editor.update(names)).toBe("same");
  });

  test("that a third program changed meanwhile is not replaced by the former one", () => {
    const late = openSync(path, "a");
    editor.update(names);
    writeSync(late, "10.0.0.9 late\n");
    closeSync(late);
    foreign("127.0.0.1 newest\n");
    editor.update(names);
    expect(read()).toStartWith("127.0.0.1 newest\n# BEGIN");
  });

  test("that changes between reading and replacing is read again later", () => {
    const added = (): string[] => {
      appendFileSync(path, "10.0.0.9 added\n");
      return names();
    };
    expect(editor.update(added)).toBe("later");
    expect(read()).toBe(`${usual}10.0.0.9 added\n`);
    expect(readdirSync(directory.path)).toEqual(["hosts"]);
  });

  test("loses what a killed run left beside it", () => {
    writeFileSync(join(directory.path, ".hosts.overlay-agent.1.tmp"), "part");
    writeFileSync(join(directory.path, ".hosts.mine"), "mine");
    makeHostsEditor(path, { now: Date.now, owner }).close();
    expect(readdirSync(directory.path).sort()).toEqual([".hosts.mine", "hosts"]);
  });

  test("is refused as a link, a hard link, a directory, another user's, and if it is missing", () => {
    const at = (name: string) => join(directory.path, name);
    const why =
      (name: string, user = owner) =>
      () =>
        makeHostsEditor(at(name), { now: Date.now, owner: user }).update(names);
    symlinkSync(path, at("link"));
    expect(why("link")).toThrow("it is a link");
    mkdirSync(at("directory"));
    expect(why("directory")).toThrow("it is no file");
    expect(why("hosts", owner + 1)).toThrow("it belongs to the user");
    linkSync(path, at("second"));
    expect(why("hosts")).toThrow("hard link");
    expect(why("missing")).toThrow("missing");
    expect(read()).toBe(usual);
  });
});
