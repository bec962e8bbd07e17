// Whether the window is as narrow as a phone: lists become cards.

import { signal } from "@preact/signals";

const narrow = matchMedia("(max-width: 599px)");
export const isNarrow = signal(narrow.matches);
narrow.addEventListener("change", () => {
  isNarrow.value = narrow.matches;
});
