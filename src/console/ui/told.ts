// A sentence about a change that was made, for some seconds; screen readers say it, too.

import { signal } from "@preact/signals";
import { html } from "../html.ts";

const shownMs = 6000;
const told = signal<string | undefined>(undefined);
let timer: ReturnType<typeof setTimeout> | undefined;

export function tell(sentence: string): void {
  told.value = sentence;
  clearTimeout(timer);
  timer = setTimeout(() => {
    told.value = undefined;
  }, shownMs);
}

/** The place is in the page before there is a sentence: otherwise it would not be read out. */
export function Told() {
  const sentence = told.value;
  return html`<div role="status" class=${sentence === undefined ? "" : "told"}><bdi>${sentence}</bdi></div>`;
}
