// docs/commands.md, made from what `agent … --help` prints. After a change of a command:
// GOLDEN=write bun test test/docs-commands.test.ts

import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { helpOf, sections } from "./support/documents.ts";
import { expectGolden } from "./support/golden.ts";

/**
 * The keys that each command's object has at least: its own, and after a colon those of each element of its list. `?`: not
 * in every one.
 */
const jsonKeys: Readonly<Record<string, readonly [own: string, each?: string]>> = {
  register: ["org_slug node_id name ip_address mode directory started"],
  "sync-config": ["organizations", "org_slug result config_version reason?"],
  "check-auth": ["organizations", "org_slug result action reason?"],
  checkin: ["organizations", "org_slug last_checkin_at config_version config_changed certificate_not_after"],
  doctor: ["ok checks", "id verdict evidence org_slug? remedy?"],
  status: ["daemon teams", "team state wanted mode ip_address certificate_not_after pid? uptime_s? message?"],
  logs: ["logs", "team lines"],
  "overlay check": ["installed path version source advisories", "id severity fixed_in"],
  "overlay install": ["from to source changed organizations", "org_slug path version running current"],
  "overlay update": ["from to source changed organizations", "org_slug path version running current"],
  "self-update": ["from to source changed"],
  "check-port": ["ports", "port family available reason? process?"],
  version: ["version target commit update"],
  demo: ["register_ms first_handshake_ms first_ping_ms revocation_to_last_ping_ms engine_version"],
};

const jsonRows = Object.entries(jsonKeys).map(
  ([name, [own, each]]) =>
    `| \`${name}\` | \`${own}\`${each === undefined ? "" : `; each of \`${own.split(" ").at(-1)}\`: \`${each}\``} |`,
);

const head = `# Commands

<!-- Generated from the help texts: GOLDEN=write bun test test/docs-commands.test.ts -->

Flags stand before or after the command. A flag beats its environment variable: \`AGENT_\` and the flag in capitals, so
\`AGENT_CONFIG_ROOT\` for \`--config-root\`. Each flag that takes a secret has a second one, \`…-file\`, which reads the
secret from a file, or from standard input if the file is \`-\`. Use it: arguments of a program are visible to all users
of a machine.

An unknown command, an unknown or repeated flag, a missing value or a word too many is an error (exit status 2) that names
the nearest valid word.

| exit status | meaning |
|---|---|
| 0 | done |
| 1 | failed |
| 2 | wrong use of the command line |
| 3 | the daemon is not reachable |
| 4 | not registered, or credentials are missing |
| 5 | permission denied |
| 6 | the control plane is not reachable, or cannot answer now |
| 7 | access was revoked |
| 10 | an update is available (\`--check\`) |
| 78 | bad configuration |
| 130, 143 | \`demo\`, or a question, was ended by Ctrl-C; \`demo\` by SIGTERM |

With several organizations (\`--all\`) the worst result counts: 7, then 6, then the highest number.

## JSON

Data goes to standard output, sentences to standard error. With \`--json\` standard output is one JSON object, also for
an error: \`{"error":{"code","message","hint"}}\`, with the same exit status. Times are RFC 3339 in UTC, keys ending in
\`_s\` are seconds and in \`_ms\` milliseconds. These keys are there at least (\`?\`: not always); keys are added, never
removed:

| command | keys |
|---|---|
${jsonRows.join("\n")}
| \`--dry-run\`, any command | \`plan\`: files, programs and requests in order; nothing is changed |
`;

const fenced = (text: string) => `\`\`\`text\n${text.replace(/^\n+/, "").trimEnd()}\n\`\`\`\n`;

test("the keys that docs/commands.md names are in the golden documents", () => {
  const seen = new Set<string>();
  for (const file of ["documents.txt", "daemon.txt", "self-update.txt"]) {
    const text = readFileSync(join(import.meta.dir, "golden", file), "utf8");
    const printed = /^\$ agent (.*) --json.*\n(\{\n[^]*?\n\})\nexit status (\d+)$/gm;
    for (const [, line = "", json = "", status] of text.matchAll(printed)) {
      const name = Object.keys(jsonKeys).find((each) => `${line} `.startsWith(`${each} `));
      if (status !== "0" || line.includes("--check")) continue;
      const object: unknown = JSON.parse(json.replace(/: NUMBER/g, ": 0"));
      if (name === undefined || !isObject(object) || "plan" in object) continue;
      const [own = "", each] = jsonKeys[name] ?? [];
      expect(Object.keys(object)).toEqual(expect.arrayContaining(own.split(" ")));
      const list = object[own.split(" ").at(-1) ?? ""];
      const always = each?.split(" ").filter((key) => !key.endsWith("?")) ?? [];
      for (const element of Array.isArray(list) ? list : []) {
        expect(Object.keys(element)).toEqual(expect.arrayContaining(always));
      }
      seen.add(name);
    }
  }
  expect(seen.size).toBeGreaterThanOrEqual(9);
});

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}

test("docs/commands.md is what the commands say", async () => {
  const all = await sections();
  const helps = new Map<string, string>();
  for (const { name } of all.flatMap(({ commands }) => commands))
    helps.set(name, await helpOf(name.split(" ")));
  const [globals, target] = [await helpOf(["help", "flags"]), await helpOf(["help", "target"])];

  const parts = all.flatMap(({ title, commands }) => [
    `## ${title.slice(0, 1)}${title.slice(1).toLowerCase()}\n`,
    ...commands.map(({ name }) => {
      const own = (helps.get(name) ?? "").replace(/\nGLOBAL OPTIONS\n[^]*$/, "");
      return `### agent ${name}\n\n${fenced(own.replace(/ \(agent [^)]*\)$/m, ""))}`;
    }),
  ]);
  const everywhere = `## Options of every command\n\n${fenced(globals)}`;
  const admin = `## Options of \`agent admin\` commands\n\n${fenced(target)}`;
  expectGolden("../../docs/commands.md", [head, everywhere, admin, ...parts].join("\n"));
});
