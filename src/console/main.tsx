// The console starts here.

import { render } from "preact";
import { isSignedOut } from "./contact/api.ts";
import { App } from "./frame/app.tsx";
import { startLive } from "./contact/live.ts";
import { start } from "./contact/me.ts";
import { readAhead } from "./nodes/node-list.ts";
import { findPage, loadView, organizationPages, type Page } from "./pages.ts";
import { followLinks, root, segments, segmentsOf } from "./frame/router.ts";
import { startStepUp } from "./frame/step-up.tsx";

/** The live stream starts this long after the first drawing at the latest. */
const liveAfterMs = 500;
/** Pages that begin with the list of nodes. */
const listing: ReadonlySet<string> = new Set(["nodes", "map"]);

const place = document.getElementById("console");
// Elsewhere are the pages that links with a secret open.
if (place !== null && !location.pathname.startsWith(root)) {
  const { Links } = await import("./frame/signed-out-pages.ts");
  render(<Links />, place);
} else if (place !== null) {
  followLinks(document);
  loadAhead();
  startStepUp();
  // Without a session, send no requests.
  if (place.dataset["session"] === undefined) isSignedOut.value = true;
  else {
    start();
    readListAhead(segments.peek());
    // While the answers are on their way. Without an organization in the address, it is that of the only one.
    const { page } = findPage(segments.peek()) ?? { page: organizationPages[""] };
    loadAheadOf(page);
  }
  render(<App />, place);
  whenIdle(startLive);
}

/** The worker costs a thread of its own: first the page is shown. */
function whenIdle(work: () => void): void {
  // Safari lacks it.
  const { requestIdleCallback } = globalThis as Partial<Pick<Window, "requestIdleCallback">>;
  if (requestIdleCallback === undefined) setTimeout(work, liveAfterMs);
  else requestIdleCallback(work, { timeout: liveAfterMs });
}

function readListAhead([slug, section = "", ...rest]: readonly string[]): void {
  if (slug !== undefined && slug !== "-" && listing.has(section) && rest.length === 0) readAhead(slug);
}

function loadAheadOf(page: Page | undefined): void {
  // If its file does not arrive, the page says so when it is opened.
  if (page !== undefined) loadView(page).catch(() => undefined);
}

/** A page's file, and the list that it begins with, are loaded while the pointer, or the focus, is on a link to it. */
function loadAhead(): void {
  const look = ({ target }: Event) => {
    const link = target instanceof Element ? target.closest("a") : null;
    if (link === null || link.origin !== location.origin || !link.pathname.startsWith(root)) return;
    const asked = segmentsOf(link.pathname);
    readListAhead(asked);
    loadAheadOf(findPage(asked)?.page);
  };
  addEventListener("pointerover", look, { passive: true });
  addEventListener("focusin", look, { passive: true });
}
