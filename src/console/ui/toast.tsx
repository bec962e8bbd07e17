// A sentence about a change that was made, for some seconds; screen readers say it, too.

import { signal } from "@preact/signals";
import { unturned } from "../words/foreign-words.ts";

const shownMs = 6000;
const shown = signal<{ sentence: string; isFailure: boolean }>();
let timer: ReturnType<typeof setTimeout> | undefined;

/** Shows a sentence in place of the last one. `unturned`: a name in it cannot change the direction of the other words. */
export function tell(sentence: string, isFailure = false): void {
  shown.value = { sentence: unturned(sentence), isFailure };
  clearTimeout(timer);
  timer = setTimeout(() => {
    shown.value = undefined;
  }, shownMs);
}

/** The element is in the page before there is a sentence: otherwise screen readers would not read it out. */
export function Told() {
  const now = shown.value;
  return (
    <div role="status" class={now && `told ${now.isFailure ? "bad" : "good"}`}>
      {now?.sentence}
    </div>
  );
}
