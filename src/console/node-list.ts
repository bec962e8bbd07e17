// The machines of an organization. The list may have ten thousand: it is shown from its first page on, and afterwards an
// event changes the one machine that it names. All of it is read again only when many change, and once a minute, because
// check-ins are no events.

import { signal, type Signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Node } from "../protocol.ts";
import { ApiError, ask, awaySince, get, org, type Answer } from "./api.ts";
import { isLive, onEvent, type AuditEvent } from "./live.ts";
import { slug } from "./me.ts";

export type NodeList = {
  data: readonly Node[] | undefined;
  /** On the control plane; `data` has fewer while its pages arrive. */
  total: number;
  error: ApiError | undefined;
};

type List = {
  slug: string;
  isRevoked: boolean;
  state: Signal<NodeList>;
  users: number;
  readAt: number;
  reading: Promise<void> | undefined;
  /** It changed while it was read. */
  isStale: boolean;
  changed: Set<number>;
  timer: ReturnType<typeof setTimeout> | undefined;
};

const pageSize = 1000;
/** More changes at once are one reading of the whole list. */
const maxSingle = 10;
/** Between two readings of the whole list. */
const restMs = 10_000;
const settleMs = 200;
/** Online or away, times of check-ins. */
const lookEveryMs = 60_000;
/** A short list costs no more than one machine. */
const lookEveryMsWhenShort = 20_000;

const lists = new Map<string, List>();

function listOf(own: string, isRevoked: boolean): List {
  const key = `${own} ${isRevoked}`;
  const known = lists.get(key);
  if (known !== undefined) return known;
  // What other organizations have is not kept.
  for (const [other, list] of lists) if (list.slug !== own && list.users === 0) lists.delete(other);
  const made: List = {
    slug: own,
    isRevoked,
    state: signal<NodeList>({ data: undefined, total: 0, error: undefined }),
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

/** Members, or those that are revoked; current while the component is mounted. */
export function useNodes(isRevoked = false): NodeList {
  const list = listOf(slug.value ?? "", isRevoked);
  useEffect(() => {
    list.users++;
    if (list.isStale || Date.now() - list.readAt > lookEveryMs) void read(list);
    return () => {
      list.users--;
      list.isStale = true;
    };
  }, [list]);
  return list.state.value;
}

/** Reads the whole list. The first time, pages are shown as they arrive. */
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
  const revoked = list.isRevoked ? "&revoked=true" : "";
  const nodes: Node[] = [];
  try {
    for (let page = 1; ; page++) {
      const path = org(list.slug, `nodes/?page_size=${pageSize}&page=${page}${revoked}`);
      const { data, headers }: Answer<Node[]> = await ask("GET", path);
      for (const node of data) nodes.push(node);
      const isLast = headers.get("link")?.includes('rel="next"') !== true;
      const total = Number(headers.get("x-total-count") ?? nodes.length);
      if (isLast || isFirst) list.state.value = { data: [...nodes], total, error: undefined };
      if (isLast) return;
    }
  } catch (error) {
    list.isStale = true;
    if (!(error instanceof ApiError)) throw error;
    list.state.value = { ...list.state.value, error };
  }
}

/** Reads the machines that changed, or the whole list if they are many. */
async function catchUp(list: List): Promise<void> {
  list.timer = undefined;
  if (list.users === 0) return;
  // What changed while the list was read may be in none of its pages.
  await list.reading;
  const ids = [...list.changed];
  list.changed.clear();
  if (list.isStale || ids.length > maxSingle) {
    const rest = list.readAt + restMs - Date.now();
    if (rest <= 0) return read(list);
    list.isStale = true;
    list.timer = setTimeout(() => void catchUp(list), rest);
    return;
  }
  try {
    const found = await Promise.all(ids.map((id) => readOne(list.slug, id)));
    put(list, new Map(ids.map((id, at) => [id, found[at]])));
  } catch (error) {
    list.isStale = true;
    if (!(error instanceof ApiError)) throw error;
  }
}

/** Undefined: it was deleted, or ended. */
async function readOne(own: string, id: number): Promise<Node | undefined> {
  try {
    return await get<Node>(org(own, `nodes/${id}/`));
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return undefined;
    throw error;
  }
}

function put(list: List, changed: ReadonlyMap<number, Node | undefined>): void {
  const { data, error } = list.state.value;
  if (data === undefined || changed.size === 0) return;
  const kept = data.filter(({ id }) => !changed.has(id));
  const fresh = [...changed.values()].filter(
    (node) => node !== undefined && (node.state === "revoked") === list.isRevoked,
  );
  const next = [...kept, ...fresh].filter((node) => node !== undefined).sort((a, b) => a.id - b.id);
  list.state.value = { data: next, total: next.length, error };
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

setInterval(() => {
  if (document.visibilityState === "hidden" || awaySince.value !== undefined) return;
  for (const list of lists.values()) {
    const isShort = list.state.value.total <= pageSize;
    const due = list.readAt + (isShort ? lookEveryMsWhenShort : lookEveryMs);
    if (list.users > 0 && due <= Date.now()) void read(list);
  }
}, 5000);

/** What happened before the stream of events was open, or while the control plane was away, came by no event. */
isLive.subscribe((isOpen) => {
  if (!isOpen) return;
  for (const list of lists.values()) {
    list.isStale = true;
    soon(list);
  }
});
