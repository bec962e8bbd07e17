// What is wrong with the rules or their tests, as the control plane says it.

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
