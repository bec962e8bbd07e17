// Which modules of the console share a file. The bundler makes a file for every set of pages that share something, so each
// page is given the imports of whole groups: the sets become few. A browser has six connections.

import { dirname, join, relative } from "node:path";

/**
 * Modules that only some pages need; a page that needs one loads its group. What else two pages share is in the file of the
 * frame, which every page needs.
 */
const groups: readonly (readonly string[])[] = [
  // Tables.
  ["console/ui/lists/list.tsx", "console/ui/lists/rows.tsx", "console/ui/lists/time-column.ts"],
  // Events in words.
  [
    "api/events.ts",
    "console/activity/event-changes.ts",
    "console/activity/event-filter.ts",
    "console/activity/event-words.ts",
    "console/activity/recent-events.tsx",
  ],
  // Rules in words, and whom they let in.
  [
    "console/access/class-words.ts",
    "console/access/group-cells.ts",
    "console/access/sides.ts",
    "console/access/rules.ts",
    "console/access/sentence.tsx",
    "console/access/rules-of-node.ts",
    "console/access/test-text.ts",
    "console/activity/rule-change.ts",
    "console/node/rule-words.ts",
  ],
  // Drawings.
  [
    "console/map/group-link.ts",
    "console/map/groups.ts",
    "console/map/places-on-ring.ts",
    "console/ui/figures/bars.tsx",
    "console/ui/figures/fleet.tsx",
    "console/ui/figures/tile.tsx",
    "console/ui/figures/time-line.tsx",
  ],
  // Nodes and CAs that need attention, and the live log of events.
  [
    "console/certificates/authorities.ts",
    "console/activity/log.ts",
    "console/activity/read-back.ts",
    "console/joining/due-phones.tsx",
    "console/nodes/awaited-nodes.tsx",
    "console/nodes/own-nodes.tsx",
  ],
  // Nodes in rows, and actions on several.
  [
    "console/node/neighbours.ts",
    "console/node/path-drawings.tsx",
    "console/node/path-shapes.ts",
    "console/pages/groups-field.tsx",
    "console/ui/bulk.tsx",
  ],
  // Users; settings of organizations and of their providers.
  [
    "api/organizations.ts",
    "api/providers/providers.ts",
    "api/webhooks/alarms.ts",
    "api/webhooks/webhooks.ts",
    "console/pages/removed-words.ts",
    "console/pages/user-fields.tsx",
    "console/providers/leaving.ts",
  ],
];

/**
 * The import lines that each page gets, by the path of its file. `root`: the directory of the sources. `main`: the module that every
 * page begins with. `contentsOf`: the text of a module as it is bundled.
 */
export function sharedFiles(
  root: string,
  main: string,
  contentsOf: (path: string) => string,
): ReadonlyMap<string, string> {
  const [ts, tsx] = (["ts", "tsx"] as const).map(
    (loader) => new Bun.Transpiler({ loader, trimUnusedImports: true }),
  );
  const imports = new Map<string, Bun.Import[]>();
  const importsOf = (path: string) => {
    const transpiler = path.endsWith("x") ? tsx : ts;
    return imports
      .getOrInsertComputed(path, () => transpiler?.scanImports(contentsOf(path)) ?? [])
      .filter((imported) => imported.path.startsWith("."))
      .map((imported) => ({ kind: imported.kind, path: join(dirname(path), imported.path) }));
  };
  /** The module, and all that it needs before it runs. Collected in `reached`. */
  const reachedFrom = (path: string, reached = new Set<string>()): Set<string> => {
    if (reached.has(path)) return reached;
    reached.add(path);
    for (const each of importsOf(path)) if (each.kind === "import-statement") reachedFrom(each.path, reached);
    return reached;
  };
  const frame = reachedFrom(main);
  // The frame loads each page on demand.
  const pages = new Set(
    [...frame].flatMap(importsOf).flatMap(({ kind, path }) => (kind === "dynamic-import" ? [path] : [])),
  );
  const needs = new Map([main, ...pages].map((page) => [page, reachedFrom(page)]));
  const grouped = groups.map((group) => group.map((file) => join(root, file)));
  const inGroups = new Set(grouped.flat());
  /** By module, one entry for each page that needs it. */
  const uses = Map.groupBy(
    [...needs.values()].flatMap((files) => [...files]),
    (file) => file,
  );
  /** What every page imports: the frame, and what several pages need outside the groups. */
  const common = new Set(
    [
      ...frame,
      ...[...uses].flatMap(([file, { length }]) => (length > 1 && !inGroups.has(file) ? [file] : [])),
    ].filter((file) => file !== main && !pages.has(file)),
  );
  return new Map(
    [...needs].map(([page, needed]) => {
      const shared = grouped.filter((group) => group.some((file) => needed.has(file))).flat();
      const lines = [...common, ...shared].map(
        (file) => `import ${JSON.stringify(relativeTo(page, file))};\n`,
      );
      return [page, lines.join("")];
    }),
  );
}

function relativeTo(page: string, file: string): string {
  const path = relative(dirname(page), file);
  return path.startsWith(".") ? path : `./${path}`;
}
