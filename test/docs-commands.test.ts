// docs/commands.md, made from what `agent … --help` prints. After a change of a command:
// GOLDEN=write bun test test/docs-commands.test.ts

import { test } from "bun:test";
import { helpOf, sections } from "./support/documents.ts";
import { expectGolden } from "./support/golden.ts";

const head = `# Commands

<!-- Generated from the help texts: GOLDEN=write bun test test/docs-commands.test.ts -->

Flags stand before or after the command. A flag beats its environment variable: \`AGENT_\` and the flag in capitals, so
\`AGENT_CONFIG_ROOT\` for \`--config-root\`. Each flag that takes a secret has a second one, \`…-file\`, which reads the
secret from a file, or from standard input if the file is \`-\`. Use it: arguments of a program are visible to all users
of a machine.

Data goes to standard output, sentences to standard error. With \`--json\` standard output is one JSON object, also for
an error: \`{"error":{"code","message","hint"}}\`. Keys are added, never removed. \`--dry-run\` prints each file, program
and request of a command in order, and changes nothing.

| exit status | meaning |
|---|---|
| 0 | done |
| 1 | failed |
| 2 | wrong use of the command line |
| 3 | the daemon is not reachable |
| 4 | not registered, or credentials are missing |
| 5 | permission denied |
| 6 | the control plane is not reachable |
| 7 | access was revoked |
| 10 | an update is available (\`--check\`) |
| 78 | bad configuration |
`;

/** The lines of the options in a help text. */
function optionLines(help: string): string[] {
  return (/\nOPTIONS\n\n([^]*?)(\n\n|$)/.exec(help)?.[1] ?? "").split("\n").map((line) => line.trim());
}

/** Without the options that stand elsewhere; the others move to the left together. */
function without(help: string, shared: ReadonlySet<string>): string {
  const [, before = help, options = "", after = ""] =
    /^([^]*\nOPTIONS\n\n)([^]*?)(\n\n[^]*|$)/.exec(help) ?? [];
  const own = options.split("\n").filter((line) => !shared.has(line.trim()));
  if (options === "") return help;
  if (own.length === 0) return `${before.replace(/\nOPTIONS\n\n$/, "").trimEnd()}${after}`;
  const indent = Math.min(...own.map((line) => line.length - line.trimStart().length)) - 2;
  return `${before}${own.map((line) => line.slice(indent)).join("\n")}${after}`;
}

const fenced = (text: string) => `\`\`\`text\n${text.replace(/^\n+/, "").trimEnd()}\n\`\`\`\n`;

test("docs/commands.md is what the commands say", async () => {
  const all = await sections();
  const helps = new Map<string, string>();
  for (const { name } of all.flatMap(({ commands }) => commands))
    helps.set(name, await helpOf(name.split(" ")));
  const admin = [...helps].filter(([name]) => name.startsWith("admin ")).map(([, help]) => optionLines(help));
  const shared = new Set(admin.reduce((common, lines) => common.filter((line) => lines.includes(line))));
  const globals = /\nGLOBAL OPTIONS\n([^]*)$/.exec(helps.get("version") ?? "")?.[1] ?? "";

  const parts = all.flatMap(({ title, commands }) => [
    `## ${title.slice(0, 1)}${title.slice(1).toLowerCase()}\n`,
    ...commands.map(({ name }) => {
      const own = (helps.get(name) ?? "").replace(/\nGLOBAL OPTIONS\n[^]*$/, "");
      const text = name.startsWith("admin ") ? without(own, shared) : own;
      return `### agent ${name}\n\n${fenced(text.replace(/ \(agent [^)]*\)$/m, ""))}`;
    }),
  ]);
  const everywhere = `## Options of every command\n\n${fenced(globals)}`;
  const width = Math.max(...[...shared].map((line) => line.indexOf("  ")));
  const aligned = [...shared].map((line) =>
    line.replace(/^(.*?)  /, (_, label: string) => `${label.padStart(width)}  `),
  );
  const data = `## Options of every \`agent admin\` command\n\n${fenced(aligned.join("\n"))}`;
  expectGolden("../../docs/commands.md", [head, everywhere, data, ...parts].join("\n"));
});
