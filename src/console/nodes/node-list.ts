// The nodes of an organization. The list may have ten thousand: it is shown from its first thousand on, each node is kept
// as a compact record, and an event changes only the node that it names. All of it is read again only when very many
// change, and once a minute, because check-ins are not events of the audit log.

import { nodesApi } from "../../api/nodes.ts";
import { apiPath } from "../../api/endpoint.ts";
import { signal, type Signal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import type { Node } from "../../protocol/node.ts";
import { ApiError, ask, awaySince, getAll } from "../contact/api.ts";
import type { Event as AuditEvent } from "../../api/events.ts";
import { isLive, onEvent, onSeen } from "../contact/live.ts";
import { currentSlug } from "../contact/me.ts";
import { isGone } from "../contact/resource.ts";
import { afterContacts, changedBy, listedOf, withoutSilent, type ListedNode } from "./listed-nodes.ts";

export type NodeList = {
  data: readonly ListedNode[] | undefined;
  /** How many the control plane has; `data` has fewer while its pages arrive. */
  total: number;
  /** All pages were read. */
  isWhole: boolean;
  error: ApiError | undefined;
  /** When the data was asked for, ms since 1970. */
  readAt: number | undefined;
};

type CachedList = {
  slug: string;
  isRevoked: boolean;
  state: Signal<NodeList>;
  /** How many mounted components show it. */
  users: number;
  /** When the last reading of the whole list began, ms since 1970; 0 before the first. */
  readAt: number;
  /** The reading of the whole list that is under way. */
  reading: Promise<void> | undefined;
  /** The whole list has to be read again. */
  isStale: boolean;
  /** Ids of nodes that have to be read again. */
  changed: Set<number>;
  /** Of the next `catchUp`. */
  timer: ReturnType<typeof setTimeout> | undefined;
};

const pageSize = 1000;
/** Nodes that one request names. The API takes at most 200. */
const perRequest = 200;
/** If more change at once, the whole list is read. */
const maxChanged = 1000;
/** The least time between two readings of the whole list. */
const leastPauseMs = 10_000;
/** Changes of this time are read together, so that a busy organization is shown twice a second. */
const settleMs = 400;
/** The whole list is read so often: with several servers, the stream does not name nodes that are in contact with another one. */
const readEveryMs = 60_000;
/** A list of one page costs no more to read than one node. */
const readEveryMsIfShort = 20_000;

const emptyList: NodeList = {
  data: undefined,
  total: 0,
  isWhole: false,
  error: undefined,
  readAt: undefined,
};
/** How far the clock of the control plane is ahead of this browser's. Undefined: unknown. */
let aheadMs: number | undefined;
/** By slug and whether it is the list of revoked nodes: "acme false". */
export const lists = new Map<string, CachedList>();

function listOf(slug: string, isRevoked: boolean): CachedList {
  const key = `${slug} ${isRevoked}`;
  const known = lists.get(key);
  if (known !== undefined) return known;
  // Lists of other organizations are not kept.
  for (const [other, { slug: its, users }] of lists) if (its !== slug && users === 0) lists.delete(other);
  const list: CachedList = {
    slug,
    isRevoked,
    state: signal<NodeList>(emptyList),
    users: 0,
    readAt: 0,
    reading: undefined,
    isStale: true,
    changed: new Set(),
    timer: undefined,
  };
  lists.set(key, list);
  return list;
}

/**
 * The nodes of an organization (by default that of the address), or its revoked ones. Kept current while the component is
 * mounted.
 */
export function useNodes(isRevoked = false, slug = currentSlug.value ?? ""): NodeList {
  const list = listOf(slug, isRevoked);
  // Before the browser draws: an effect after it would cost a frame.
  useLayoutEffect(() => {
    list.users++;
    const isOld = Date.now() - list.readAt > leastPauseMs;
    // Events mark the list as stale even while no page shows it.
    if (list.isStale || isOld) void read(list);
    return () => {
      list.users--;
    };
  }, [list]);
  return list.state.value;
}

/** The nodes of an organization as far as pages have read them; reads none. */
export const knownNodes = (slug: string): NodeList => lists.get(`${slug} false`)?.state.value ?? emptyList;

/** Begins to read the nodes of an organization before a page needs them, if none were read. */
export function readAhead(slug: string): void {
  const list = listOf(slug, false);
  if (list.state.peek().data === undefined) void read(list);
}

/** Reads the whole list. The first time, it is shown as soon as there is something to see. */
function read(list: CachedList): Promise<void> {
  list.reading ??= readPages(list).finally(() => {
    list.reading = undefined;
  });
  return list.reading;
}

async function readPages(list: CachedList): Promise<void> {
  list.isStale = false;
  list.changed.clear();
  list.readAt = Date.now();
  const isFirst = list.state.value.data === undefined;
  try {
    const nodes: ListedNode[] = [];
    for (let page = 1; ; page++) {
      const { isLast, total } = await readPage(list, page, nodes);
      // While the list is read again, what was read before is shown until all of it is there.
      if (isLast || (isFirst && page === 1))
        list.state.value = {
          data: [...nodes],
          total,
          isWhole: isLast,
          error: undefined,
          readAt: list.readAt,
        };
      if (isLast) return;
    }
  } catch (error) {
    list.isStale = true;
    if (!(error instanceof ApiError)) throw error;
    list.state.value = { ...(isGone(error) ? emptyList : list.state.value), error };
  }
}

const revokedIn = ({ isRevoked }: CachedList) => (isRevoked ? { revoked: "true" as const } : {});

/** Appends a page to `nodes`. Frees each answer before the next request. */
async function readPage(
  list: CachedList,
  page: number,
  nodes: ListedNode[],
): Promise<{ isLast: boolean; total: number }> {
  // As in server/console/shell.ts, which lets browsers ask for the first page early.
  const query = { page_size: `${pageSize}`, page: `${page}`, ...revokedIn(list) };
  const { data, headers } = await ask("GET", apiPath(nodesApi.list, list, query));
  for (const node of data) nodes.push(listedOf(node));
  const servedAt = Date.parse(headers.get("date") ?? "");
  if (!Number.isNaN(servedAt)) aheadMs = servedAt - Date.now();
  const isLast = headers.get("link")?.includes('rel="next"') !== true;
  return { isLast, total: Number(headers.get("x-total-count") ?? nodes.length) };
}

/** Reads the nodes that changed; the whole list if they are many, or if it is stale. */
async function catchUp(list: CachedList): Promise<void> {
  list.timer = undefined;
  if (list.users === 0) {
    list.isStale = true;
    return;
  }
  // Waits for a reading in progress: nodes may have changed after their page was read.
  await list.reading;
  const ids = [...list.changed];
  list.changed.clear();
  if (list.isStale || ids.length > maxChanged) {
    const waitMs = list.readAt + leastPauseMs - Date.now();
    if (waitMs <= 0) return read(list);
    list.isStale = true;
    list.timer = setTimeout(() => void catchUp(list), waitMs);
    return;
  }
  try {
    for (let at = 0; at < ids.length; at += perRequest) {
      const asked = ids.slice(at, at + perRequest);
      replaceNodes(list, new Set(asked), await readNodes(list, asked));
    }
  } catch (error) {
    list.isStale = true;
    if (!(error instanceof ApiError)) throw error;
  }
}

/** Reads nodes by their ids. Those that do not come were deleted, or are in the other list: of revoked or not revoked nodes. */
async function readNodes(list: CachedList, ids: readonly number[]): Promise<Node[]> {
  const query = { page_size: `${pageSize}`, ids: ids.join(","), ...revokedIn(list) };
  return getAll(apiPath(nodesApi.list, list, query));
}

/** Replaces the nodes with the ids `asked` by those that were found of them. */
function replaceNodes(list: CachedList, asked: ReadonlySet<number>, found: readonly Node[]): void {
  const { data } = list.state.value;
  if (data === undefined) return;
  const kept = data.filter(({ id }) => !asked.has(id));
  const next = [...kept, ...found.map(listedOf)].sort((a, b) => a.id - b.id);
  list.state.value = { ...list.state.value, data: next, total: next.length };
}

function scheduleCatchUp(list: CachedList): void {
  if (list.users > 0) list.timer ??= setTimeout(() => void catchUp(list), settleMs);
  else list.isStale = true;
}

onEvent((event: AuditEvent) => {
  const changed = changedBy(event);
  if (changed?.length === 0) return;
  for (const list of lists.values()) {
    // The event does not say which nodes it changed.
    if (changed === undefined) list.isStale = true;
    for (const id of changed ?? []) list.changed.add(id);
    scheduleCatchUp(list);
  }
});

/** Check-ins are not events of the audit log; the stream names the nodes that were in contact. */
onSeen((contacts) => {
  for (const list of lists.values()) {
    const { data } = list.state.value;
    if (data === undefined || list.isRevoked) continue;
    const { nodes, changed } = afterContacts(data, contacts);
    if (nodes !== data) list.state.value = { ...list.state.value, data: nodes };
    for (const id of changed) list.changed.add(id);
    if (changed.length > 0) scheduleCatchUp(list);
  }
});

/** The control plane sends no event when a node falls silent: after `onlineMs` it is away. */
function markSilent(): void {
  if (aheadMs === undefined || !isLive.value) return;
  for (const list of lists.values()) {
    const { data } = list.state.value;
    const nodes = withoutSilent(data ?? [], Date.now() + aheadMs);
    if (data !== undefined && nodes !== data) list.state.value = { ...list.state.value, data: nodes };
  }
}
setInterval(markSilent, 1000);

/** Reads the lists that a page shows and that were read long ago. */
function readDueLists(): void {
  if (document.visibilityState === "hidden" || awaySince.value !== undefined) return;
  for (const list of lists.values()) {
    const isShort = list.state.value.total <= pageSize;
    const dueAt = list.readAt + (isShort ? readEveryMsIfShort : readEveryMs);
    if (list.users > 0 && dueAt <= Date.now()) void read(list);
  }
}
setInterval(readDueLists, 5000);

/** The stream has no events from before it was open, nor from while the control plane was away. */
isLive.subscribe((isOpen) => {
  for (const list of lists.values()) {
    list.isStale = true;
    if (isOpen) scheduleCatchUp(list);
  }
});
