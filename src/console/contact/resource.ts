// Answers of the API that pages show: kept by path, read again when something changed, shown at once on the way back.

import type { Path } from "../../api/endpoint.ts";
import { computed, signal, type Signal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { ApiError, ask, awaySince, get, getAll, isSignedOut } from "./api.ts";
import { isLive, onEvent } from "./live.ts";

export type Resource<T> = {
  data: T | undefined;
  error: ApiError | undefined;
  /** When the data was read, ms since 1970. */
  readAt: number | undefined;
};

type Entry = {
  state: Signal<Resource<unknown>>;
  /** How many components show it. */
  users: number;
  /** How many of them want each change at once. */
  eager: number;
  read(): Promise<void>;
};

const none: Resource<unknown> = { data: undefined, error: undefined, readAt: undefined };
/** It was deleted, or the rights ended: the former answer is not shown any more. */
export const isGone = ({ status }: ApiError): boolean => status === 403 || status === 404;

export const entries = new Map<string, Entry>();
/** Beyond so many answers, those that no page shows are dropped, the oldest first. */
const maxKept = 50;

function entryOf(path: string, read: () => Promise<unknown>): Entry {
  const known = entries.get(path);
  if (known !== undefined) return known;
  const state = signal<Resource<unknown>>(none);
  let running: Promise<void> | undefined;
  let isWanted = false;
  const once = async () => {
    try {
      state.value = { data: await read(), error: undefined, readAt: Date.now() };
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      state.value = { ...(isGone(error) ? none : state.value), error };
    }
  };
  const entry: Entry = {
    state,
    users: 0,
    eager: 0,
    /** A change came while it was read: read it once more. */
    async read() {
      isWanted = true;
      running ??= (async () => {
        while (isWanted) {
          isWanted = false;
          await once();
        }
        running = undefined;
      })();
      await running;
    },
  };
  entries.set(path, entry);
  for (const [old, { users }] of entries) {
    if (entries.size <= maxKept) break;
    if (users === 0) entries.delete(old);
  }
  return entry;
}

/**
 * The empty path sends no request. `isCalm`: read every 20 seconds, not after each event: for values that every page
 * counts, and for those that change without an event.
 */
type Use = { isCalm?: boolean };

/** The answer to a GET, current while the component is mounted. */
export function useResource<T>(path: Path<T> | string, { isCalm = false }: Use = {}): Resource<T> {
  return use(path, () => get<T>(path), isCalm) as Resource<T>;
}

/** All pages of a list. */
export function useList<T>(path: Path<T[]> | string, { isCalm = false }: Use = {}): Resource<readonly T[]> {
  return use(path, () => getAll<T>(path), isCalm) as Resource<readonly T[]>;
}

/** How many items a list has, without reading them. */
export function useTotal<T>(path: Path<T[]> | string): number | undefined {
  const read = async () => Number((await ask("GET", path)).headers.get("x-total-count") ?? 0);
  return use(path, read, false).data as number | undefined;
}

function use(path: string, read: () => Promise<unknown>, isCalm: boolean): Resource<unknown> {
  const entry = entryOf(path, read);
  // Before the browser draws: an effect after it would cost a frame.
  useLayoutEffect(() => {
    if (path === "") return undefined;
    // Whether another component keeps it as current as this one needs.
    const isCurrent = isCalm ? entry.users > 0 : entry.eager > 0;
    entry.users++;
    if (!isCalm) entry.eager++;
    if (!isCurrent) void entry.read();
    return () => {
      entry.users--;
      if (!isCalm) entry.eager--;
    };
  }, [entry, isCalm, path]);
  return entry.state.value;
}

/** Begins to read an answer before a component needs it, if there is none. */
export function readAheadOf(path: string): void {
  const entry = entryOf(path, () => get(path));
  if (entry.state.peek().data === undefined) void entry.read();
}

/** Reads again what is shown and begins with the path; the rest when it is shown next. */
export async function refresh(prefix = ""): Promise<void> {
  const shown = [...entries].filter(([path, { users }]) => path.startsWith(prefix) && users > 0);
  await Promise.all(shown.map(([, entry]) => entry.read()));
}

let timer: ReturnType<typeof setTimeout> | undefined;
/** Changes are read after a pause of so long, and at the latest this long after the first one. */
const settleMs = 200;
const longestMs = 1000;
/** When the first change came that is not read yet, ms. */
let since: number | undefined;

/** Many changes at once are one reading: at most once a second while they go on. */
function refreshSoon(): void {
  since ??= Date.now();
  clearTimeout(timer);
  const left = Math.max(0, since + longestMs - Date.now());
  timer = setTimeout(
    () => {
      since = undefined;
      for (const [, entry] of entries)
        if (entry.eager > 0 || (entry.users > 0 && isOld(entry))) void entry.read();
    },
    Math.min(settleMs, left),
  );
}

onEvent(refreshSoon);

/** Check-ins and paths are no events of the audit log: what pages show is read again while they are open. */
const lookEveryMs = 20_000;
/** For calm entries: those that are due within `longestMs` are read along with others. */
const isOld = ({ state }: Entry) => Date.now() - (state.peek().readAt ?? 0) >= lookEveryMs - longestMs;
setInterval(() => {
  if (document.visibilityState === "visible" && awaySince.value === undefined) void refresh();
}, lookEveryMs);

/** The stream has no events from before it was open. */
isLive.subscribe((isOpen) => {
  if (isOpen) refreshSoon();
});

/** After the control plane was away, or the session had ended, everything that is shown is read again. */
computed(() => awaySince.value === undefined && !isSignedOut.value).subscribe((isReadable) => {
  if (isReadable && entries.size > 0) refreshSoon();
});
