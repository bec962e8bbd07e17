// `bun bundler.ts DIRECTORY`: bundles the console for browsers into the directory. A program of its own, because it runs
// while the executable is built, and one bundler waits for the other (bundle.ts).

import { basename, join } from "node:path";
import { compileTemplates } from "./templates.ts";

const source = join(import.meta.dir, "../../console");
/** The page loads the first two; the shared worker is its own script. */
const entries = ["main.ts", "style.css", "worker.ts"];

const templates: Bun.BunPlugin = {
  name: "templates",
  setup(builder) {
    builder.onLoad({ filter: /[\\/]src[\\/]console[\\/].*\.ts$/ }, async ({ path }) => ({
      contents:
        basename(path) === "html.ts"
          ? `export { h as html } from "preact";`
          : compileTemplates(await Bun.file(path).text(), path),
      loader: "ts",
    }));
  },
};

await Bun.build({
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
