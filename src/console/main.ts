// The console starts here.

import { render } from "preact";
import { ApiError, isSignedOut } from "./api.ts";
import { App } from "./app.ts";
import { html } from "./html.ts";
import { startLive } from "./live.ts";
import { readMe } from "./me.ts";
import { followLinks, root } from "./router.ts";
import { startStepUp } from "./step-up.ts";

const place = document.getElementById("console");
if (place !== null && !location.pathname.startsWith(root)) {
  const { Links } = await import("./pages/links.ts");
  render(html`<${Links} />`, place);
} else if (place !== null) {
  followLinks(document);
  startLive();
  startStepUp();
  // Without a session there is nothing to ask for.
  if (place.dataset["session"] === undefined) isSignedOut.value = true;
  else
    readMe().catch((error: unknown) => {
      // The page shows what is wrong: signed out, or no answer.
      if (!(error instanceof ApiError)) throw error;
    });
  render(html`<${App} />`, place);
}
