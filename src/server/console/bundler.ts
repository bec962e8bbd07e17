// `bun bundler.ts DIRECTORY`: bundles the console for browsers into the directory. A program of its own, because it runs
// while the executable is built: in one process, the bundler of the executable would wait for this one, and never run it (bundle.ts).

import { readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { minifySync } from "oxc-minify";
import { brand } from "../../brand.ts";
import { sharedFiles } from "./shared-files.ts";

const source = join(import.meta.dir, "../../console");
const api = join(import.meta.dir, "../../api");
/** A bundle each: Firefox lets a shared worker import nothing, because the policy of the worker's own file has no scripts. */
const bundles = [["main.tsx", "style.css"], ["contact/worker.ts"]];

/** By name, what a file of the console is replaced by: browsers do not check answers (checked.ts). */
const inBrowsers: Record<string, string> = {
  "checked.ts": "export const checkAnswer = () => {};",
};

/**
 * Elements become calls with the children as arguments, which are smaller than objects that name them. `JSON.stringify`: the test of
 * the architecture would take the plain text for an import of this file.
 */
const elements = `/** @jsxRuntime classic @jsx createElement @jsxFrag Fragment */
import { createElement, Fragment } from ${JSON.stringify("preact")};`;

// Modules of the console and of protocol/ get the imports of shared files (shared-files.ts), and the values of the contract that they
// name. Modules of the contract lose their schemas: all but endpoint.ts, whose functions pages call, and delivery-formats.ts, which has none.
/** Gives the bundler modules that are smaller than the sources. */
const smallerModules: Bun.BunPlugin = {
  name: "smaller-modules",
  setup(builder) {
    builder.onLoad({ filter: /[\\/]src[\\/](?:console|protocol)[\\/].*\.tsx?$/ }, ({ path }) => ({
      contents: (shared.get(path) ?? "") + contentsOf(path),
      loader: path.endsWith("x") ? "tsx" : "ts",
    }));
    builder.onLoad(
      {
        filter:
          /[\\/]src[\\/]api[\\/](?!endpoint|webhooks[\\/]delivery-formats)(?:[a-z-]+[\\/])?[a-z-]+\.ts$/,
      },
      async ({ path }) => ({
        contents: withoutSchemas(await import(path)),
        loader: "js",
      }),
    );
  },
};

/** What browsers get of a module of the contract: methods and paths, plain values, and settings without schemas and help. */
function withoutSchemas(module: Record<string, unknown>): string {
  return Object.entries(module)
    .map(([name, value]) => ({ name, text: textOfExport(name, value) }))
    .map(({ name, text }) => (text === undefined ? "" : `export const ${name} = ${text};\n`))
    .join("");
}

/**
 * An export of the contract as text; undefined: browsers do not get it. Its name tells what it is. A value with `kind` is a schema of
 * valibot.
 */
function textOfExport(name: string, value: unknown): string | undefined {
  if (name.endsWith("Api")) return JSON.stringify(value, methodAndPath);
  if (name.endsWith("Settings")) return JSON.stringify(value, settingsInForms);
  if (name === "eventKinds") return JSON.stringify(value, wordsAlone);
  return typeof value === "function" || "kind" in Object(value) ? undefined : JSON.stringify(value);
}

/** For JSON.stringify: of an endpoint, what requests need. */
const methodAndPath = (_: string, value: object) => {
  const { method, path } = Object(value);
  return path === undefined ? value : { method, path };
};

/** For JSON.stringify: kinds of events with their words alone. */
const wordsAlone = (key: string, value: unknown) =>
  key === "subjects" || key === "since" ? undefined : value;

/** Members of a setting that only commands need. */
const ofCommands = ["takes", "sends", "help", "removal", "hint", "range", "describes", "whole", "file"];
/** For JSON.stringify: settings as forms need them, and of those that no form has only what names them. */
const settingsInForms = (key: string, value: unknown) => {
  const { takes, section, flag, words, none, file } = Object(value);
  if (key !== "" && takes !== undefined && section === undefined)
    return file !== undefined ? undefined : { flag, words, none };
  return ofCommands.includes(key) ? undefined : value;
};

/** In place of `nodesApi.list`: a page has the endpoints, settings, members of these and words that it names, not all of their subject. */
const contract: Record<string, Record<string, unknown>> = Object.assign(
  { brand },
  ...(await Promise.all([...new Bun.Glob("**/*.ts").scanSync(api)].map((file) => import(join(api, file))))),
);
const withContract = (source: string) =>
  source.replaceAll(
    /(?<!typeof )(\bapiPath\(\s*)?\b(\w+(?:Api|Settings)|brand)\.(\w+)(?:\.(path|flag|label|choices|words))?\b/g,
    (text, pathOnly: string | undefined, subject: string, name: string, member: string | undefined) => {
      const found = contract[subject]?.[name];
      if (found === undefined) return text;
      if (member !== undefined) return JSON.stringify(Object(found)[member]);
      if (pathOnly !== undefined) return `${pathOnly}${JSON.stringify(found, ["path"])}`;
      return `(${textOfExport(subject, found)})`;
    },
  );

/** The text of a module as it is bundled. */
function contentsOf(path: string): string {
  // Asked only by sharedFiles, for what a module imports: modules of the contract import nothing once they are bundled.
  if (path.startsWith(api)) return "";
  const text = inBrowsers[basename(path)] ?? withContract(readFileSync(path, "utf8"));
  return path.endsWith("x") ? elements + text : text;
}

const shared = sharedFiles(join(source, ".."), join(source, "main.tsx"), contentsOf);

const bundled = async (entries: readonly string[]) =>
  await Bun.build({
    entrypoints: entries.map((entry) => join(source, entry)),
    outdir: process.argv[2] ?? "",
    root: source,
    target: "browser",
    minify: true,
    minChunkSize: 16_384,
    splitting: true,
    // The page names the files of the page that it shows (shell.ts): a table of all files would be 0.9 KB of each first view.
    modulePreload: false,
    // `c`: a chunk. The whole word would cost a hundred bytes, because every file names those that it imports.
    naming: { entry: "[name]-[hash].[ext]", chunk: "c-[name]-[hash].[ext]" },
    define: { "process.env.NODE_ENV": '"production"' },
    plugins: [smallerModules],
  });
const outputs = (await Promise.all(bundles.map(bundled))).flatMap((each) => each.outputs);

/** The style without comments and blanks. The bundler adds rules and values for browsers that the console does not support. */
const smallerStyle = (file: string): string =>
  readFileSync(file, "utf8")
    .replaceAll(/\/\*[^]*?\*\//g, "")
    .replaceAll(/@import "(.+)";/g, (_, name: string) => smallerStyle(join(source, name)))
    .replaceAll(/\s+/g, " ")
    .replaceAll(/ ?([{};,>]) ?/g, "$1")
    .replaceAll(/(?<=[\w)%]): /g, ":")
    .replaceAll(/(?<![\w.])0\./g, ".")
    .replaceAll(/="([a-z]+)"\]/g, "=$1]")
    .replaceAll("transparent", "#0000")
    .replaceAll(";}", "}")
    .trim();

/** Names that files give each other are short already. Renamed, each import would have two: 1.1 % of all scripts. */
const exchangedNames = (script: string) =>
  [...script.matchAll(/\b(?:import|export)\{([^}]*)\}/g)].flatMap(([, names = ""]) => names.split(","));

// Sorted, so that every machine builds the same files.
const sources = [...new Bun.Glob("**/*.{ts,tsx}").scanSync(source)]
  .sort()
  .map((file) => readFileSync(join(source, file), "utf8"));
/**
 * Members of the console's own types that say yes or no, such as `isSmall`. Members of browsers' objects, such as `isConnected`,
 * are declared in no file of the console, and those of the API are in snake case.
 */
const flags = [...new Set(sources.join("").match(/\b(?:is|has)[A-Z]\w*(?=\??:)/g))];
/** Their names in all scripts: A to Z, A1 to Z1 and so on. No object of ours has another member of such a name. */
const shortNames = flags.map((flag, at) => [
  flag,
  String.fromCharCode(65 + (at % 26)) + (Math.floor(at / 26) || ""),
]);
const mangleProps = {
  include: new RegExp(`^(?:${flags.join("|")})$`),
  cache: Object.fromEntries(shortNames),
};
const flagAsText = new RegExp(`(["'\`])(?:${flags.join("|")})\\1`);

// Compressed, the scripts are smaller by 3.3 % after this.
for (const { path } of outputs) {
  if (path.endsWith(".css")) writeFileSync(path, smallerStyle(join(source, "style.css")));
  if (!path.endsWith(".js")) continue;
  const script = readFileSync(path, "utf8");
  const mangle = { toplevel: true, reserved: exchangedNames(script) };
  const { code, errors } = minifySync(path, script, { module: true, mangle, mangleProps });
  if (errors.length > 0)
    throw new Error(`Cannot make ${path} smaller: ${errors.map(({ message }) => message).join(", ")}`);
  const [text] = flagAsText.exec(code) ?? [];
  if (text !== undefined)
    throw new Error(`${path} names a member by the text ${text}, but scripts have a short name for it`);
  writeFileSync(path, code);
}
