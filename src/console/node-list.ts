// The machines of an organization. The list may have ten thousand: it is shown from its first thousand on, each machine is
// kept as a compact record, and an event changes only the machine that it names. All of it is read again only when very
// many change, and once a minute, because check-ins are no events.

import { nodesApi } from "../api/nodes.ts";
import { apiPath } from "../api/endpoint.ts";
import { signal, type Signal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import type { Node } from "../protocol/node.ts";
import { ApiError, ask, awaySince, getAll } from "./api.ts";
import type { Event as AuditEvent } from "../api/events.ts";
import { isLive, onEvent, onSeen } from "./live.ts";
import { slug } from "./me.ts";
import { isGone } from "./resource.ts";
import { afterContacts, machineOf, withoutSilent, type Machine } from "./machines.ts";

export type NodeList = {
  data: readonly Machine[] | undefined;
  /** On the control plane; `data` has fewer while its pages arrive. */
  total: number;
  /** All pages were read. */
  isWhole: boolean;
  error: ApiError | undefined;
  /** When the data was asked for, ms since 1970. */
  readAt: number | undefined;
};

type List = {
  slug: string;
  isRevoked: boolean;
  state: Signal<NodeList>;
  users: number;
  readAt: number;
  reading: Promise<void> | undefined;
  /** Set if the list changed while it was read. */
  isStale: boolean;
  changed: Set<number>;
  timer: ReturnType<typeof setTimeout> | undefined;
};

const pageSize = 1000;
/** Machines that one request names. The API takes at most 200. */
const perRequest = 200;
/** More changes at once are one reading of the whole list. */
const maxChanged = 1000;
/** Between two readings of the whole list. */
const restMs = 10_000;
/** Changes of this time are read together, so that a busy organization is shown twice a second. */
const settleMs = 400;
/** With several servers, the stream does not name machines that are in contact with another one. */
const lookEveryMs = 60_000;
/** A short list costs no more than one machine. */
const lookEveryMsWhenShort = 20_000;

const none: NodeList = { data: undefined, total: 0, isWhole: false, error: undefined, readAt: undefined };
export const lists = new Map<string, List>();

function listOf(own: string, isRevoked: boolean): List {
  const key = `${own} ${isRevoked}`;
  const known = lists.get(key);
  if (known !== undefined) return known;
  // Lists of other organizations are not kept.
  for (const [other, list] of lists) if (list.slug !== own && list.users === 0) lists.delete(other);
  const made: List = {
    slug: own,
    isRevoked,
    state: signal<NodeList>(none),
    users: 0,
    readAt: 0,
    reading: undefined,
    isStale: true,
    changed: new Set(),
    timer: undefined,
  };
  lists.set(key, made);
  return made;
}

/** Members of the organization, by default that of the address, or those that are revoked; current while the component is mounted. */
export function useNodes(isRevoked = false, own = slug.value ?? ""): NodeList {
  const list = listOf(own, isRevoked);
  // Before the browser draws: an effect after it would cost a frame.
  useLayoutEffect(() => {
    list.users++;
    const isOld = Date.now() - list.readAt > restMs;
    // Events mark the list as stale even while no page shows it.
    if (list.isStale || isOld) void read(list);
    return () => {
      list.users--;
    };
  }, [list]);
  return list.state.value;
}

/** The nodes of an organization as far as pages have read them; reads none. */
export const knownNodes = (own: string): NodeList => lists.get(`${own} false`)?.state.value ?? none;

/** Begins to read the machines of an organization before a page needs them, if none were read. */
export function readAhead(own: string): void {
  const list = listOf(own, false);
  if (list.state.peek().data === undefined) void read(list);
}

/** Reads the whole list. The first time, it is shown as soon as there is something to see. */
function read(list: List): Promise<void> {
  list.reading ??= readPages(list).finally(() => {
    list.reading = undefined;
  });
  return list.reading;
}

async function readPages(list: List): Promise<void> {
  list.isStale = false;
  list.changed.clear();
  list.readAt = Date.now();
  const isFirst = list.state.value.data === undefined;
  try {
    const machines: Machine[] = [];
    for (let page = 1; ; page++) {
      const { isLast, total } = await readPage(list, page, machines);
      // While the list is read again, the former one is shown until all of it is there.
      if (isLast || (isFirst && page === 1))
        list.state.value = {
          data: [...machines],
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
    list.state.value = { ...(isGone(error) ? none : list.state.value), error };
  }
}

const revokedIn = ({ isRevoked }: List) => (isRevoked ? { revoked: "true" as const } : {});

/** Appends a page to `machines`. Frees each answer before the next request. */
async function readPage(
  list: List,
  page: number,
  machines: Machine[],
): Promise<{ isLast: boolean; total: number }> {
  // As in server/console/shell.ts, which lets browsers ask for the first page early.
  const query = { page_size: `${pageSize}`, page: `${page}`, ...revokedIn(list) };
  const { data, headers } = await ask("GET", apiPath(nodesApi.list, list, query));
  for (const node of data) machines.push(machineOf(node));
  const served = Date.parse(headers.get("date") ?? "");
  if (!Number.isNaN(served)) aheadMs = served - Date.now();
  const isLast = headers.get("link")?.includes('rel="next"') !== true;
  return { isLast, total: Number(headers.get("x-total-count") ?? machines.length) };
}

/** Reads the machines that changed, or the whole list if they are many. */
async function catchUp(list: List): Promise<void> {
  list.timer = undefined;
  if (list.users === 0) {
    list.isStale = true;
    return;
  }
  // Read changes again: they may have been missed by all pages.
  await list.reading;
  const ids = [...list.changed];
  list.changed.clear();
  if (list.isStale || ids.length > maxChanged) {
    const rest = list.readAt + restMs - Date.now();
    if (rest <= 0) return read(list);
    list.isStale = true;
    list.timer = setTimeout(() => void catchUp(list), rest);
    return;
  }
  try {
    for (let at = 0; at < ids.length; at += perRequest) {
      const asked = ids.slice(at, at + perRequest);
      put(list, new Set(asked), await readThese(list, asked));
    }
  } catch (error) {
    list.isStale = true;
    if (!(error instanceof ApiError)) throw error;
  }
}

/** Those of the machines that the list has; the others were deleted, or belong to the other list. */
async function readThese(list: List, ids: readonly number[]): Promise<Node[]> {
  const query = { page_size: `${pageSize}`, ids: ids.join(","), ...revokedIn(list) };
  return getAll(apiPath(nodesApi.list, list, query));
}

function put(list: List, asked: ReadonlySet<number>, found: readonly Node[]): void {
  const { data } = list.state.value;
  if (data === undefined) return;
  const kept = data.filter(({ id }) => !asked.has(id));
  const next = [...kept, ...found.map(machineOf)].sort((a, b) => a.id - b.id);
  list.state.value = { ...list.state.value, data: next, total: next.length };
}

function soon(list: List): void {
  if (list.users > 0) list.timer ??= setTimeout(() => void catchUp(list), settleMs);
  else list.isStale = true;
}

/** These say nothing about a machine of the list. */
const otherSubjects = /^(user|session|token|webhook|registration|member|rule|security|policy|events|ca)\b/;

onEvent(({ subject, type }: AuditEvent) => {
  const id = /^node\/(\d+)$/.exec(subject)?.[1];
  if (id === undefined && otherSubjects.test(type)) return;
  for (const list of lists.values()) {
    if (id === undefined) list.isStale = true;
    else list.changed.add(Number(id));
    soon(list);
  }
});

/** How far the clock of the control plane is ahead of this browser's. Undefined: unknown. */
let aheadMs: number | undefined;

/** Check-ins are no events of the audit log; the stream names the machines that were in contact. */
onSeen((contacts) => {
  for (const list of lists.values()) {
    const { data } = list.state.value;
    if (data === undefined || list.isRevoked) continue;
    const { machines, changed } = afterContacts(data, contacts);
    if (machines !== data) list.state.value = { ...list.state.value, data: machines };
    for (const id of changed) list.changed.add(id);
    if (changed.length > 0) soon(list);
  }
});

setInterval(() => {
  if (aheadMs === undefined || !isLive.value) return;
  for (const list of lists.values()) {
    const { data } = list.state.value;
    const machines = withoutSilent(data ?? [], Date.now() + aheadMs);
    if (data !== undefined && machines !== data) list.state.value = { ...list.state.value, data: machines };
  }
}, 1000);

setInterval(() => {
  if (document.visibilityState === "hidden" || awaySince.value !== undefined) return;
  for (const list of lists.values()) {
    const isShort = list.state.value.total <= pageSize;
    const due = list.readAt + (isShort ? lookEveryMsWhenShort : lookEveryMs);
    if (list.users > 0 && due <= Date.now()) void read(list);
  }
}, 5000);

/** The stream has no events from before it was open, nor from while the control plane was away. */
isLive.subscribe((isOpen) => {
  for (const list of lists.values()) {
    list.isStale = true;
    if (isOpen) soon(list);
  }
});
