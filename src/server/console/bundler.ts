// `bun bundler.ts DIRECTORY`: bundles the console for browsers into the directory. A program of its own, because it runs
// while the executable is built, and one bundler waits for the other (bundle.ts).

import { readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { minifySync } from "oxc-minify";
import { compileTemplates } from "./templates.ts";

const source = join(import.meta.dir, "../../console");
/** The page loads the first two; the shared worker is its own script. */
const entries = ["main.ts", "style.css", "worker.ts"];

/** What takes the place of a file of the console. */
const inBrowsers: Record<string, string> = {
  "html.ts": `export { h as html } from "preact";`,
  "checked.ts": "export const checked = (data) => data;",
};

const templates: Bun.BunPlugin = {
  name: "templates",
  setup(builder) {
    builder.onLoad({ filter: /[\\/]src[\\/]console[\\/].*\.ts$/ }, async ({ path }) => ({
      contents: inBrowsers[basename(path)] ?? compileTemplates(await Bun.file(path).text(), path),
      loader: "ts",
    }));
    builder.onLoad({ filter: /[\\/]src[\\/]api[\\/](?!endpoint)[a-z-]+\.ts$/ }, async ({ path }) => ({
      contents: withoutSchemas(await import(path)),
      loader: "js",
    }));
    // The bundler keeps the library's static properties, such as kinds of lines that no plot uses: a ninth of it.
    builder.onLoad({ filter: /[\\/]uPlot\.esm\.js$/ }, async ({ path }) => {
      const [library = "", statics] = (await Bun.file(path).text()).split("\nuPlot.assign = assign;\n");
      if (statics === undefined) throw new Error(`${path} has another end than the console expects`);
      return {
        contents: `${library}\nuPlot.pxRatio = pxRatio;\nexport { uPlot as default };\n`,
        loader: "js",
      };
    });
  },
};

/** Of the contract, browsers take methods, paths and plain values. */
function withoutSchemas(module: Record<string, unknown>): string {
  return Object.entries(module)
    .map(([name, value]) => {
      const isSubject = name.endsWith("Api");
      const shown = isSubject ? JSON.stringify(value, methodsAndPaths) : isPlain(value) ? JSON.stringify(value) : undefined;
      return shown === undefined ? "" : `export const ${name} = ${shown};\n`;
    })
    .join("");
}

const methodsAndPaths = (_: string, value: object) =>
  "path" in Object(value) ? { method: Object(value).method, path: Object(value).path } : value;
const isPlain = (value: unknown) => typeof value !== "function" && !("kind" in Object(value));

const { outputs } = await Bun.build({
  entrypoints: entries.map((entry) => join(source, entry)),
  outdir: process.argv[2] ?? "",
  root: source,
  target: "browser",
  minify: true,
  splitting: true,
  naming: { entry: "[name]-[hash].[ext]", chunk: "chunk-[name]-[hash].[ext]" },
  define: { "process.env.NODE_ENV": '"production"' },
  plugins: [templates],
});

// Compressed, the scripts are smaller by 2.9 % after this.
for (const { path } of outputs) {
  if (!path.endsWith(".js")) continue;
  const { code, errors } = minifySync(path, readFileSync(path, "utf8"), { module: true });
  if (errors.length > 0)
    throw new Error(`Cannot make ${path} smaller: ${errors.map(({ message }) => message).join(", ")}`);
  writeFileSync(path, code);
}
