// Shows the control plane's errors about rules or their tests.

import { html } from "../html.ts";
import { spaced } from "./class-words.ts";

export function Faults({ title, lines }: { title: string; lines: readonly string[] }) {
  return html`<div class="failure" role="alert">
    <p>${title}:</p>
    <ul>
      ${lines.map((line) => html`<li key=${line}><bdi>${spaced(line)}</bdi></li>`)}
    </ul>
  </div>`;
}
