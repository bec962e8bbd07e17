// What the server keeps in maps while it runs has a maximum, or is keyed by what the database holds: no caller can fill the
// memory. Enumerates every Map and Set in the scope of a module, of a function that makes something lasting, or of a class.

import { expect, test } from "bun:test";
import { join } from "node:path";
import { parseSync, Visitor } from "oxc-parser";

const root = join(import.meta.dir, "../../src/server");

/**
 * `row`: keyed by ids of rows. `waiting`: an entry ends with its request, work or connection. `program`: keyed by what stands in the
 * program. `max`: compares its size with a maximum. `part`: belongs to one call, or to a value that has a bound itself.
 */
type Bound = "row" | "waiting" | "program" | "max" | "part";
const bounds: Record<string, Record<string, Bound>> = {
  "alarms/evaluate.ts": { brokenBefore: "max", foundBefore: "max" },
  "background-loop.ts": { warnedAt: "max" },
  "certificates/authorities.ts": { opened: "row" },
  "certificates/demanded-ca.ts": { known: "max" },
  "config/bounded-cache.ts": { kept: "max" },
  "config/held-polls.ts": { open: "row" },
  "config/renderings.ts": { logged: "max" },
  "config/organization-views.ts": { kept: "max", loading: "waiting" },
  "console/files.ts": { imports: "program" },
  "docs/assets.ts": { cached: "program" },
  "flows/narrow-rules.ts": { known: "part" },
  "history/past-rows.ts": { present: "part", rows: "part" },
  "http/backlog.ts": { lines: "waiting", ownerOf: "waiting" },
  "http/deadlines.ts": { open: "waiting" },
  "http/fair-queue.ts": { lines: "waiting" },
  "http/meters.ts": { byRoute: "program" },
  "http/throttle.ts": { kinds: "program" },
  "names/organization-names.ts": { aliases: "part", classes: "part", nodes: "part", removedNodes: "part" },
  "names/names-cache.ts": { cached: "row", loading: "waiting", askedAgainAt: "row" },
  "names/wake-together.ts": { resting: "row" },
  "names/visibility.ts": { classes: "part", pairs: "part" },
  "nodes/contact/plane-fallback.ts": { engines: "row" },
  "nodes/contact/clones.ts": { machines: "max", changed: "max" },
  "nodes/contact/node-clocks.ts": { known: "max" },
  "nodes/contact/confirmations.ts": { waiting: "waiting" },
  "nodes/contact/live-nodes.ts": { nodes: "row", versions: "row", reading: "row" },
  "nodes/owner-groups.ts": { noGroups: "program" },
  "nodes/contact/refused-by-seal.ts": { noted: "max" },
  "nodes/contact/refused-engine.ts": { noted: "max" },
  "nodes/lifecycle/renewal.ts": { running: "waiting" },
  "nodes/contact/reports.ts": { watched: "row", written: "row" },
  "nodes/lifecycle/upkeep.ts": { running: "waiting", waiting: "waiting" },
  "nodes/contact/version-ages.ts": { all: "row" },
  "oidc/outgoing.ts": { underWay: "waiting" },
  "oidc/routes.ts": { explainedCodes: "program" },
  "paths/peer-addresses.ts": { calls: "max", kept: "max", reading: "waiting" },
  "paths/batches.ts": { wanted: "max" },
  "paths/group-paths.ts": { kept: "max" },
  "paths/healings.ts": { recorded: "max" },
  "paths/relayed.ts": { known: "max" },
  "paths/path-reports.ts": { lastAt: "max" },
  "users/sessions/callers.ts": { families: "max", knownUsers: "max", tokens: "max" },
  "users/token-scopes.ts": { noted: "max" },
  "users/sign-in/password-queue.ts": { lastTurns: "max" },
  "policy-files/import-names.ts": { sections: "program" },
  "policy-files/import-policy.ts": { importedKeys: "program" },
  "policy-files/import-rules.ts": { "#groups": "part" },
  "policy-files/import-words.ts": { protocols: "program" },
  "policy-files/render.ts": { names: "part", emails: "part" },
  "policy-files/rollback.ts": { refusals: "program" },
  "policy/yaml-weights.ts": { blanks: "program" },
  "policy/yaml-document.ts": { "#known": "part", "#entryMarks": "part", offsets: "part" },
  "policy/read-policy.ts": { words: "program" },
  "policy/node-classes.ts": { nodes: "part", numbers: "part" },
  "policy/policy-tests.ts": { compared: "part" },
  "policy/reach.ts": { byText: "part" },
  "policy/resolve.ts": { providerGroups: "part" },
  "rollout/drills.ts": { open: "row" },
  "rollout/live-drills.ts": { running: "row" },
  "retention/budget.ts": { known: "row", measuring: "waiting" },
  "store/copy.ts": { copied: "program" },
  "store/intern.ts": { known: "max" },
  "store/migrations.ts": { tableKeys: "program" },
  "store/notices.ts": { channels: "program", listeners: "program" },
  "store/table.ts": { texts: "program" },
  "store/postgres/notices.ts": { gaps: "waiting", own: "waiting" },
  "store/shared-throttle.ts": { unsent: "max" },
  "store/sqlite/connection.ts": { statements: "program" },
  "store/sqlite/memory.ts": { row: "part" },
  "store/sqlite/schema.ts": { statistics: "program" },
  "store/write-queue.ts": { busy: "waiting", lines: "waiting", running: "waiting" },
  "stream/streams.ts": { openStreams: "waiting" },
  "stream/event-tail.ts": { loops: "waiting" },
  "stream/send-events.ts": { contacts: "row" },
  "import-export/engine-keys.ts": {
    fates: "program",
    formerSettings: "program",
    overrides: "program",
    sections: "program",
    withValueKeys: "program",
  },
  "import-export/import-files.ts": { encodings: "program" },
  "import-export/import.ts": { different: "part" },
  "import-export/placed-yaml.ts": { "#anchors": "part" },
  "webhooks/deliveries.ts": { served: "row", underWay: "waiting" },
};

/** What the file must have for a bound, where that can be seen. */
const signs: Record<Bound, (name: string, value: string, text: string) => boolean> = {
  row: (_, value) => /^new (Map|Set)<number\b/.test(value),
  waiting: (name, _, text) => text.includes(`${name}.delete(`),
  program: () => true,
  max: (name, _, text) => new RegExp(`\\b(${name}\\.size|sum) (>=?|<=?) \\w+`).test(text),
  part: () => true,
};

test("every lasting map is keyed by rows, or has a maximum", async () => {
  const found: Record<string, Record<string, Bound | undefined>> = {};
  const unsigned: string[] = [];
  for (const file of [...new Bun.Glob("**/*.{ts,tsx}").scanSync(root)].sort()) {
    const text = await Bun.file(join(root, file)).text();
    for (const [name, value] of lastingMaps(file, text)) {
      const bound = bounds[file]?.[name];
      (found[file] ??= {})[name] = bound;
      if (bound !== undefined && !signs[bound](name, value, text)) unsigned.push(`${file} ${name}: ${bound}`);
    }
  }
  // Strictly: a map without a bound is undefined here.
  expect(found).toStrictEqual(bounds);
  expect(unsigned).toEqual([]);
});

/** Functions whose variables outlive the call. */
const lasting = /^(cached|connect$|(make|open|remember|share|start|watch)[A-Z])/;

/** The names of variables and properties that hold a lasting Map or Set, with the expression. */
function lastingMaps(file: string, text: string): [name: string, value: string][] {
  const found: [string, string][] = [];
  const functions: boolean[] = [];
  const enter = (isLasting: boolean) => void functions.push(isLasting);
  const leave = () => void functions.pop();
  const keep = (name: string, value: { start: number; end: number } | null | undefined) => {
    const expression = text.slice(value?.start ?? 0, value?.end ?? 0);
    if (functions.every(Boolean) && /^new (Map|Set)\b/.test(expression)) found.push([name, expression]);
  };
  const { program } = parseSync(file, text);
  new Visitor({
    FunctionDeclaration: (node) => enter(lasting.test(node.id?.name ?? "")),
    "FunctionDeclaration:exit": leave,
    ArrowFunctionExpression: () => enter(false),
    "ArrowFunctionExpression:exit": leave,
    FunctionExpression: () => enter(false),
    "FunctionExpression:exit": leave,
    VariableDeclarator: (node) => node.id.type === "Identifier" && keep(node.id.name, node.init),
    PropertyDefinition: (node) =>
      node.key.type !== "TemplateLiteral" && keep(text.slice(node.key.start, node.key.end), node.value),
  }).visit(program);
  return found;
}
