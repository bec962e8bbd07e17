// The style sheet of the console: what its color schemes may differ in.

import { expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

const folder = join(import.meta.dir, "../../src/console/style");
const files = [...readFileSync(`${folder}.css`, "utf8").matchAll(/^@import ".\/style\/([a-z]+\.css)";$/gm)];
const sheet = files.map(([, name = ""]) => readFileSync(join(folder, name), "utf8")).join("\n");

test("every file of the style is part of it", () => {
  expect(new Set(files.map(([, name]) => name))).toEqual(new Set(readdirSync(folder)));
});

test("the place of a page's scroll bar is kept, so that a dialog moves no page", () => {
  expect(sheet).toMatch(/^html \{\n  scrollbar-gutter: stable;\n\}$/m);
});

test("every measure and colour that the console names is declared", () => {
  const sources = readdirSync(join(folder, ".."), { recursive: true, encoding: "utf8" })
    .filter((name) => /\.(css|tsx?)$/.test(name))
    .map((name) => readFileSync(join(folder, "..", name), "utf8"))
    .join("\n");
  const declared = new Set([...sources.matchAll(/(--[a-z0-9-]+)["']?\s*:/g)].map(([, name]) => name));
  const used = new Set([...sources.matchAll(/var\((--[a-z0-9-]+)/g)].map(([, name]) => name));
  expect(used.size).toBeGreaterThan(20);
  expect([...used].filter((name) => !declared.has(name))).toEqual([]);
});

/** Pages are checked whole in the light scheme, and by their colors alone in the dark one (test/support/console.ts). */
test("the dark scheme gives other values to the colors of the light one, and changes nothing else", () => {
  const [dark = "", ...more] = [
    ...sheet.matchAll(/@media \(prefers-color-scheme: dark\) \{([^@]*?)\n\}/g),
  ].map(([, inside = ""]) => inside);
  expect([sheet.match(/prefers-color-scheme/g)?.length, more]).toEqual([1, []]);
  const colors = (text: string) =>
    [...text.matchAll(/^ *(--[a-z0-9-]+): oklch\([^)]*\);$/gm)].map(([, name]) => name);
  const rest = dark.replaceAll(/^ *--[a-z0-9-]+: oklch\([^)]*\);$/gm, "").replaceAll(/\s/g, "");
  expect(rest).toBe(":root{}");
  const light = colors(sheet.slice(0, sheet.indexOf("@media")));
  expect(colors(dark)).toEqual(light);
});
