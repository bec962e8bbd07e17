// The files of the console, embedded in the executable.

import { bundleConsole } from "./bundle.ts" with { type: "macro" };

/** Each file by its name with its hash: gzip, in base64. */
const packed: Readonly<Record<string, string>> = bundleConsole();

const types: Readonly<Record<string, string>> = {
  js: "text/javascript; charset=utf-8",
  css: "text/css; charset=utf-8",
};

/** The name with its hash: `nameOf("main", "js")` is `main-1a2b3c4d.js`. */
export function nameOf(stem: string, extension: "js" | "css"): string {
  const name = Object.keys(packed).find(
    (each) => each.startsWith(`${stem}-`) && each.endsWith(`.${extension}`),
  );
  if (name === undefined) throw new Error(`The console has no ${stem}.${extension}`);
  return name;
}

const imports = new Map<string, readonly string[]>();

/** The files that a script needs before it runs, with those that they need. */
export function importsOf(name: string): readonly string[] {
  const known = imports.get(name);
  if (known !== undefined) return known;
  const found = new Set<string>();
  for (let newest = [name]; newest.length > 0;) {
    newest = newest.flatMap(directImportsOf).filter((file) => !found.has(file));
    for (const file of newest) found.add(file);
  }
  imports.set(name, [...found]);
  return [...found];
}

/** Of a bundled, minified script. Not `import("./…")`, which is loaded on demand. */
function directImportsOf(name: string): string[] {
  const script = new TextDecoder().decode(Bun.gunzipSync(Buffer.from(packed[name] ?? "", "base64")));
  return [...script.matchAll(/\b(?:from|import)"\.\/([a-z0-9.-]+)"/g)].flatMap(([, file]) => file ?? []);
}

/** The file, compressed with gzip; undefined if there is none of this name. */
export function readFile(name: string): { gzip: Uint8Array<ArrayBuffer>; type: string } | undefined {
  const text = Object.hasOwn(packed, name) ? packed[name] : undefined;
  if (text === undefined) return undefined;
  const type = types[name.slice(name.lastIndexOf(".") + 1)] ?? "application/octet-stream";
  return { gzip: Uint8Array.from(Buffer.from(text, "base64")), type };
}
