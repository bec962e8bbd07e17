// The pages with edits in this tab that are not saved, such as acme/access. The browser asks before the tab forgets them.

import { effect, signal } from "@preact/signals";

export const unsaved = signal<readonly string[]>([]);

/** `page`: a name for the edits, such as acme/access. */
export function setUnsaved(page: string, isUnsaved: boolean): void {
  const others = unsaved.peek().filter((each) => each !== page);
  unsaved.value = isUnsaved ? [...others, page] : others;
}

const hold = (event: Event) => event.preventDefault();
// Only while it is needed: some browsers keep no page with this listener for the way back.
effect(() => {
  if (unsaved.value.length > 0) addEventListener("beforeunload", hold);
  else removeEventListener("beforeunload", hold);
});
