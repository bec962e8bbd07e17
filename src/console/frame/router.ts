// Which page the address names. Every object has one address; filters, order and selection are in its query, so that a
// link shows the same and the way back returns to it.

import { computed, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";

/** Pages are below this path. The next segment is an organization's slug, or "-", which no slug can be, for what belongs to none. */
export const root = "/console/";
const address = signal(readAddress());

/**
 * The present path of a page. Mails, documents and bookmarks may have a former one: nodes were at machines/, and those that wait at
 * waiting/ below it. These are a filter now, which is set in `words`.
 */
function presentPath(path: string, words: URLSearchParams): string {
  // `former`: the beginning that is replaced, `/console/acme/machines`; `organization`: `/console/acme/`; `waiting`: `/waiting/` or "".
  const [former = "", organization = "", waiting = ""] =
    /^(\/console\/[^/]+\/)(?:machines|nodes)(?=\/)(\/waiting\/)?/.exec(path) ?? [];
  if (waiting !== "") words.set("show", "waiting");
  return former === ""
    ? path
    : `${organization}nodes${waiting === "" ? "" : "/"}${path.slice(former.length)}`;
}

function readAddress(): { path: string; query: URLSearchParams } {
  const words = new URLSearchParams(location.search);
  const path = presentPath(location.pathname, words);
  if (path !== location.pathname) history.replaceState(null, "", withQuery(path, words) + location.hash);
  return { path, query: words };
}

/** While a dialog has unsaved input, it sets `ask`: going back then stays on the page and calls this. */
export const staying: { ask?: (() => void) | undefined } = {};

addEventListener("popstate", () => {
  if (staying.ask === undefined) {
    address.value = readAddress();
    return;
  }
  // The browser has left the page's address: put it back.
  const { path, query: words } = address.value;
  history.pushState(null, "", withQuery(path, words));
  staying.ask();
});

function withQuery(path: string, words: URLSearchParams): string {
  return [path, words].filter(String).join("?");
}

/** Segments below /console/: `["acme", "nodes", "7"]`. */
export const segments = computed(() => segmentsOf(address.value.path));

/** The parts of a path below /console/, decoded. One that is not valid stays as it is. */
export function segmentsOf(path: string): string[] {
  return path
    .slice(root.length)
    .split("/")
    .filter((each) => each !== "")
    .map(decoded);
}

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

export const query = computed(() => address.value.query);

/** The name of the object that the page shows, for the title of the window. */
export const shownName = signal("");

/** Puts a name into the title of the window while the component is mounted. */
export function useShownName(name: string): void {
  useEffect(() => {
    shownName.value = name;
    return () => {
      shownName.value = "";
    };
  }, [name]);
}

/** `pathOf("acme", "nodes", 7)` is `/console/acme/nodes/7/`. */
export function pathOf(...parts: readonly (string | number)[]): string {
  return root + parts.map((part) => `${encodeURIComponent(part)}/`).join("");
}

/** Opens a page of the console. `replace`: the way back leads to the page before this one. */
export function go(path: string, { replace = false }: { replace?: boolean } = {}): void {
  if (replace) history.replaceState(null, "", path);
  else history.pushState(null, "", path);
  const before = address.value.path;
  address.value = readAddress();
  if (address.value.path !== before) scrollTo(0, 0);
}

type QueryChanges = Readonly<Record<string, string | undefined>>;

/** The address of this page with other words of the query; undefined and "" remove one. */
export function hrefWith(changes: QueryChanges): string {
  const next = new URLSearchParams(address.value.query);
  for (const [key, value] of Object.entries(changes)) {
    if (value === undefined || value === "") next.delete(key);
    else next.set(key, value);
  }
  return withQuery(address.value.path, next);
}

/** Changes some words of the query. Typing in a filter makes no step of the way back. */
export const setQuery = (changes: QueryChanges): void => go(hrefWith(changes), { replace: true });

/** Clicks on links within the console change the page without loading it; the browser does the others. */
export function followLinks(target: EventTarget): void {
  target.addEventListener("click", (event) => {
    if (!(event instanceof MouseEvent) || event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (link === null || link.target !== "" || link.hasAttribute("download")) return;
    // The browser scrolls to a section of this page.
    if (link.getAttribute("href")?.startsWith("#") === true) return;
    if (link.origin !== location.origin || !link.pathname.startsWith(root)) return;
    event.preventDefault();
    go(link.pathname + link.search + link.hash);
  });
}
