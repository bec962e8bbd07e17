// The console starts here.

import { render } from "preact";
import { ApiError, isSignedOut } from "./api.ts";
import { App } from "./app.ts";
import { html } from "./html.ts";
import { startLive } from "./live.ts";
import { readMe } from "./me.ts";
import { findPage, organizationPages } from "./pages.ts";
import { followLinks, root, segments, segmentsOf } from "./router.ts";
import { startStepUp } from "./step-up.ts";

const place = document.getElementById("console");
if (place !== null && !location.pathname.startsWith(root)) {
  const { Links } = await import("./pages/links.ts");
  render(html`<${Links} />`, place);
} else if (place !== null) {
  followLinks(document);
  loadAhead();
  startLive();
  startStepUp();
  // Without a session there is nothing to ask for.
  if (place.dataset["session"] === undefined) isSignedOut.value = true;
  else {
    readMe().catch((error: unknown) => {
      // The page shows what is wrong: signed out, or no answer.
      if (!(error instanceof ApiError)) throw error;
    });
    // While the answers are on their way. Without an organization in the address, it is that of the only one.
    const { page } = findPage(segments.peek()) ?? { page: organizationPages[""] };
    // If its file does not arrive, the page says so.
    page?.load().catch(() => undefined);
  }
  render(html`<${App} />`, place);
}

/** A page's file is loaded while the pointer, or the focus, is on a link to it. */
function loadAhead(): void {
  const look = ({ target }: Event) => {
    const link = target instanceof Element ? target.closest("a") : null;
    if (link === null || link.origin !== location.origin || !link.pathname.startsWith(root)) return;
    // If it does not arrive, the page says so when it is opened.
    findPage(segmentsOf(link.pathname))
      ?.page.load()
      .catch(() => undefined);
  };
  addEventListener("pointerover", look, { passive: true });
  addEventListener("focusin", look, { passive: true });
}
