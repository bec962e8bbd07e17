// The table of pages. Each is a file in the folder of its subject, else in pages/, loaded when it is first shown.

import { signal } from "@preact/signals";
import type { FunctionComponent } from "preact";
import type { IconName } from "./ui/drawings.ts";
import { parts } from "./ui/lazy-parts.ts";

/** Which dialog of the palette is open. Here, because its file is loaded later. */
export const opened = signal<PaletteProps["kind"]>();

export type View = FunctionComponent<{ rest: readonly string[] }>;
export type Page = {
  title: string;
  /** Words that the palette finds it by, too. */
  also?: string;
  icon?: IconName | undefined;
  /** The letter that opens it after `g`. */
  letter?: string;
  /** Hidden from members, whom the control plane refuses. */
  isForAdmins?: boolean;
  load(): Promise<View>;
};

/** Files of several pages, and of parts of others. */
const administration = () => import("./pages/administration.ts");
const operation = () => import("./pages/operation.ts");
const joining = () => import("./joining/joining.ts");
const nodePages = () => import("./node/node.ts");
const activity = () => import("./pages/activity.tsx");
const editing = () => import("./node/editing.ts");

/** Below an organization, by the segment behind its slug; "" is the first page. In the order of the navigation. */
export const organizationPages: Readonly<Record<string, Page>> = {
  "": {
    title: "Overview",
    icon: "overview",
    letter: "o",
    load: async () => (await import("./pages/overview.tsx")).Overview,
  },
  nodes: {
    title: "Nodes",
    icon: "machines",
    letter: "n",
    load: async () => (await editing()).NodeList,
  },
  map: {
    title: "Map",
    icon: "map",
    letter: "x",
    load: async () => {
      const { MapPage, readMapAhead } = await import("./pages/map.tsx");
      readMapAhead();
      return MapPage;
    },
  },
  access: {
    title: "Access",
    icon: "access",
    letter: "a",
    load: async () => (await import("./pages/access.tsx")).Access,
  },
  routes: {
    title: "Routes",
    icon: "routes",
    letter: "r",
    isForAdmins: true,
    load: async () => (await editing()).Routes,
  },
  activity: {
    title: "Activity",
    icon: "activity",
    letter: "v",
    load: async () => (await activity()).Activity,
  },
  certificates: {
    title: "Certificates",
    icon: "certificates",
    letter: "c",
    load: async () => (await operation()).Certificates,
  },
  rollouts: {
    title: "Rollouts",
    also: "updates, engine settings, mtu",
    icon: "refresh",
    letter: "u",
    load: async () => (await operation()).Rollouts,
  },
  people: {
    title: "Members",
    icon: "people",
    letter: "p",
    load: async () => (await administration()).People,
  },
  tokens: {
    title: "Keys and tokens",
    icon: "keys",
    letter: "t",
    isForAdmins: true,
    load: async () => (await administration()).Tokens,
  },
  alarms: {
    title: "Alarms",
    also: "rules, webhooks, mail",
    icon: "webhooks",
    letter: "w",
    load: async () => (await administration()).Alarms,
  },
  settings: {
    title: "Settings",
    icon: "settings",
    letter: "s",
    load: async () => (await administration()).Settings,
  },
};

// For pages that use a part of another page's file.
parts.node = nodePages;
parts.editing = editing;
parts.activity = activity;
parts.administration = administration;
parts.qr = joining;
parts.joining = joining;

/** One node, by its number. */
const nodePage: Page = {
  title: "Nodes",
  load: async () => (await nodePages()).NodePage,
};

/** Below an organization, too, but not in the navigation: other pages lead there. */
const sidePages: Readonly<Record<string, Page>> = {
  "nodes/add": {
    title: "Add a node",
    load: async () => (await joining()).AddNode,
  },
  flows: { title: "Flows", load: async () => (await operation()).FlowsPage },
  past: { title: "At a moment", load: async () => (await operation()).PastPage },
  // One webhook: `webhooks/7`.
  webhooks: { title: "Alarms", load: async () => (await administration()).Alarms },
  phones: { title: "Phones", load: async () => (await joining()).Phones },
};

/** Below /console/-/: of the control plane, for staff. */
export const staffPages: Readonly<Record<string, Page>> = {
  organizations: {
    title: "Organizations",
    icon: "organizations",
    load: async () => (await operation()).Organizations,
  },
  users: { title: "Users", icon: "users", load: async () => (await operation()).Users },
  "audit-log": {
    title: "Audit log",
    icon: "log",
    load: async () => (await activity()).AuditLog,
  },
  servers: {
    title: "Servers",
    icon: "servers",
    load: async () => (await operation()).Servers,
  },
};

/** Below /console/-/: what belongs to no organization. */
export const otherPages = {
  ...staffPages,
  account: { title: "Account", load: async () => (await administration()).Account },
  "command-line": {
    title: "Sign in the command line",
    load: async () => (await administration()).CommandLine,
  },
  join: { title: "Let a machine join", load: async () => (await administration()).Join },
} satisfies Readonly<Record<string, Page>>;

const views = new Map<Page, View>();

/** Loads the file of a page, if it was not. */
export async function loadView(page: Page): Promise<View> {
  const view = views.get(page) ?? (await page.load());
  views.set(page, view);
  return view;
}

/** The view of a page whose file is loaded, as it is while the pointer is on a link: it can be drawn at once. */
export const loadedView = (page: Page): View | undefined => views.get(page);

/** `rest`: the segments behind those that chose the page. `key` changes when another page is shown. */
export function findPage(
  segments: readonly string[],
): { page: Page; rest: readonly string[]; key: string } | undefined {
  const [first, second = "", third] = segments;
  const table: Readonly<Record<string, Page>> =
    first === "-" ? otherPages : { ...organizationPages, ...sidePages };
  // `nodes/add` is a page of its own; any other third segment of `nodes` is the number of a node.
  const both = `${second}/${third}`;
  const name = Object.hasOwn(table, both) ? both : second;
  if (first !== "-" && name === "nodes" && third !== undefined)
    return { page: nodePage, rest: segments.slice(2), key: `${first}/nodes/` };
  const page = Object.hasOwn(table, name) ? table[name] : undefined;
  const rest = segments.slice(name === both ? 3 : 2);
  return page === undefined ? undefined : { page, rest, key: `${first}/${name}` };
}

/** The palette gets these as a property: if it imported this file, the bundler would put this file into a chunk of its own. */
const tables = { organizationPages, otherPages, staffPages };
export type Tables = typeof tables;
export type PaletteProps = { kind: "palette" | "keys"; pages: Tables; close(): void };
export const paletteProps = (kind: PaletteProps["kind"]): PaletteProps => ({
  kind,
  pages: tables,
  close: () => {
    opened.value = undefined;
  },
});
