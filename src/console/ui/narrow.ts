// How much room the window has.

import { signal, type ReadonlySignal } from "@preact/signals";

/** Whether the window matches a media query; follows its size. */
function matching(query: string): ReadonlySignal<boolean> {
  const list = matchMedia(query);
  const isMatching = signal(list.matches);
  list.addEventListener("change", () => {
    isMatching.value = list.matches;
  });
  return isMatching;
}

/** As narrow as a phone: lists become cards, and the tabs are at the bottom. */
export const isNarrow = matching("(max-width: 719px)");
/** As wide as a list with a panel beside it needs. */
export const isWide = matching("(min-width: 960px)");
