// How much room the window has.

import { signal, type ReadonlySignal } from "@preact/signals";

function matching(query: string): ReadonlySignal<boolean> {
  const list = matchMedia(query);
  const found = signal(list.matches);
  list.addEventListener("change", () => {
    found.value = list.matches;
  });
  return found;
}

/** As narrow as a phone: lists become cards, and the tabs are at the bottom. */
export const isNarrow = matching("(max-width: 719px)");
/** A panel has room beside a list. */
export const isWide = matching("(min-width: 960px)");
