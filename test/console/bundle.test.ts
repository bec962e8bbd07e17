// The files that browsers load.

import { expect, test } from "bun:test";
import { bundleConsole } from "../../src/server/console/bundle.ts";

const files = new Map(
  Object.entries(bundleConsole())
    .filter(([name]) => name.endsWith(".js"))
    .map(([name, base64]) => {
      const packed = Buffer.from(base64, "base64");
      return [name, { bytes: packed.length, text: Buffer.from(Bun.gunzipSync(packed)).toString() }] as const;
    }),
);
const named = (stem: string) => [...files.keys()].filter((name) => name.startsWith(`${stem}-`));
const found = (name: string, pattern: RegExp) =>
  [...(files.get(name)?.text ?? "").matchAll(pattern)].map(([, file = ""]) => file);
/** What a script loads when it is needed. */
const later = (name: string) => found(name, /\bimport\(["`]\.\/([^"`]+)["`]\)/g);

/** The scripts, and those that they need at once. */
function withImports(names: readonly string[], all = new Set<string>()): Set<string> {
  for (const name of names.filter((each) => !all.has(each))) {
    all.add(name);
    withImports(found(name, /\b(?:from|import)"\.\/([^"]+)"/g), all);
  }
  return all;
}
const bytesOf = (names: Iterable<string>) =>
  [...names].reduce((sum, name) => sum + (files.get(name)?.bytes ?? 0), 0);

test("all scripts of the console are at most 170 KB, compressed", () => {
  expect(bytesOf(files.keys())).toBeGreaterThan(50_000);
  expect(bytesOf(files.keys())).toBeLessThanOrEqual(170 * 1024);
});

test("the worker is one file, because its policy lets it load no script", () => {
  const workers = named("worker");
  expect(workers).toHaveLength(1);
  expect([...withImports(workers)]).toEqual(workers);
});

test("the style is at most 40 KB, minified, and says what its files say", () => {
  const [style = ""] = Object.entries(bundleConsole())
    .filter(([name]) => name.endsWith(".css"))
    .map(([, base64]) => Buffer.from(Bun.gunzipSync(Buffer.from(base64, "base64"))).toString());
  expect(style.length).toBeGreaterThan(20_000);
  expect(style.length).toBeLessThanOrEqual(40 * 1024);
  expect(style).not.toMatch(/\/\*|@import|\n| {2}/);
  // Blanks that mean something stay.
  for (const part of ['content:attr(data-title) " "', "calc(100vw - 32px)", "@media (max-width:719px){"])
    expect([part, style.includes(part)]).toEqual([part, true]);
});

test("whichever page is shown first, a browser loads at most 60 KB, compressed", () => {
  const start = [...named("main"), ...named("worker")];
  // The table of pages is in a file of its own where pages load parts by it.
  const frame = withImports(start);
  const pages = [...new Set([...frame].flatMap(later))];
  expect(start).toHaveLength(2);
  expect(pages.length).toBeGreaterThan(8);
  for (const page of pages) {
    // With what the page loads when it is shown, such as its plot.
    const needed = withImports([...start, page]);
    const own = [...withImports([page])].filter((name) => !frame.has(name));
    const shown = withImports(own.flatMap(later), needed);
    expect([page, bytesOf(shown) <= 60 * 1024, bytesOf(shown) > 15_000]).toEqual([page, true, true]);
    // A browser has six connections. Without src/server/console/shared-files.ts, these are about twenty small files.
    expect([page, needed.size <= 10]).toEqual([page, true]);
  }
});
