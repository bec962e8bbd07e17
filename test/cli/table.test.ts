// Lists for people: they fit the terminal, and no text of a server or node can steer it.

import { describe, expect, test } from "bun:test";
import { unprintable } from "../../src/base/unprintable.ts";
import { makeOutput } from "../../src/cli/output.ts";
import { renderFacts, renderTable, type Table } from "../../src/cli/table.ts";

const table = (rows: Table["rows"]): Table => ({ columns: ["NAME", "STATE"], rows, none: "No nodes." });
const plain = { width: undefined, color: false };

describe("a table", () => {
  test("has a header and columns of equal width, and is not cut in a pipe", () => {
    const long = "x".repeat(300);
    expect(
      renderTable(
        table([
          ["a", "online"],
          [long, null],
        ]),
        plain,
      ).split("\n"),
    ).toEqual([`NAME${" ".repeat(298)}STATE`, `a${" ".repeat(301)}online`, `${long}  -`, ""]);
  });

  test("fits the terminal: the widest column is cut, and says so", () => {
    const lines = renderTable(
      table([
        ["x".repeat(300), "online"],
        ["b", "offline"],
      ]),
      { width: 40, color: false },
    );
    for (const line of lines.split("\n")) expect(Bun.stringWidth(line)).toBeLessThanOrEqual(40);
    expect(lines).toContain("xxx…  online");
    // A terminal that is too narrow for all columns gets them in their least width.
    expect(renderTable(table([["x".repeat(30), "y".repeat(30)]]), { width: 5, color: false })).toContain(
      "xxxxxxx…",
    );
  });

  test("counts the columns of wide characters, and halves none", () => {
    const lines = renderTable(table([["日本語日本語日本語", "online"]]), { width: 20, color: false }).split(
      "\n",
    );
    for (const line of lines) expect(Bun.stringWidth(line)).toBeLessThanOrEqual(20);
    expect(lines[1]).toMatch(/^日本.*…\s+online$/);
  });

  test("colors a marked cell, and nothing that a cell contains", () => {
    const rows = [
      ["\u001b[31mevil\u001b[0m\u009b2J\nnext\u202e", { text: "off\u001bline", mark: "bad" }],
    ] as const;
    const colored = renderTable(table(rows), { width: 80, color: true });
    expect(colored.split("\n")).toHaveLength(3);
    expect(colored).toContain("\u001b[31moff line\u001b[0m");
    // Two escapes: the ones of the mark.
    expect(colored.split("\u001b")).toHaveLength(3);
    expect(renderTable(table(rows), plain).split("\n").join("")).not.toMatch(unprintable);
  });
});

describe("output", () => {
  const written = (settings: { json: boolean; color: boolean }, isTerminal: boolean) => {
    const [out, err]: [string[], string[]] = [[], []];
    const stdout = { write: (text: string) => void out.push(text), isTerminal, columns: 20 };
    const stderr = { write: (text: string) => void err.push(text), isTerminal, columns: 20 };
    return { output: makeOutput(settings, { stdout, stderr }), out, err };
  };
  const rows = [["a-node-with-a-long-name", { text: "online", mark: "good" }]] as const;

  test("cuts and colors only for a terminal", () => {
    const terminal = written({ json: false, color: true }, true);
    terminal.output.list({}, table(rows));
    expect(terminal.out.join("")).toContain("…");
    expect(terminal.out.join("")).toContain("\u001b[32monline");
    const pipe = written({ json: false, color: false }, false);
    pipe.output.list({}, table(rows));
    expect(pipe.out.join("")).toContain("a-node-with-a-long-name  online\n");
  });

  test("of an empty list is a sentence beside the data; --json prints the empty list", () => {
    const pipe = written({ json: false, color: false }, false);
    pipe.output.list({ nodes: [] }, table([]));
    expect([pipe.out, pipe.err]).toEqual([[], ["No nodes.\n"]]);
    const json = written({ json: true, color: false }, false);
    json.output.list({ nodes: [] }, table([]));
    expect([json.out, json.err]).toEqual([['{"nodes":[]}\n'], []]);
  });

  test("of --json escapes what steers a terminal, and stays the same object", () => {
    const { output, out } = written({ json: true, color: false }, true);
    const object = { name: "\u001b]0;x\u0007 \u009b2J \u202e \u2028 ü 日" };
    output.result(object, "");
    expect(out.join("").trimEnd()).not.toMatch(unprintable);
    expect(JSON.parse(out.join(""))).toEqual(object);
  });
});

describe("what one thing has", () => {
  test("is aligned, and goes on in the column of the values where the terminal is narrow", () => {
    const facts = [
      ["name", "web"],
      ["groups", "one two three four"],
      ["owner", null],
    ] as const;
    expect(renderFacts(facts, plain)).toBe("name    web\ngroups  one two three four\nowner   -\n");
    expect(renderFacts(facts, { width: 18, color: false })).toBe(
      "name    web\ngroups  one two\n        three four\nowner   -\n",
    );
  });

  test("has colors only for what is marked, and no control characters of others", () => {
    const facts = [
      ["state", { text: "offline", mark: "faint" }],
      ["platform", "\u001b]0;owned\u0007"],
    ] as const;
    const text = renderFacts(facts, { width: undefined, color: true });
    expect(text).toBe("state     \u001b[2moffline\u001b[0m\nplatform  ]0;owned\n");
    expect(
      renderFacts(facts, plain)
        .split("")
        .filter((each) => unprintable.test(each)),
    ).toEqual(["\n", "\n"]);
  });
});
