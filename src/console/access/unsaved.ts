// What was edited in this tab and not saved: the organization's slug for its rules, acme/settings for its settings. The browser
// asks before the tab forgets it.

import { effect, signal } from "@preact/signals";

export const unsaved = signal<readonly string[]>([]);

export function setUnsaved(slug: string, isUnsaved: boolean): void {
  const others = unsaved.peek().filter((each) => each !== slug);
  unsaved.value = isUnsaved ? [...others, slug] : others;
}

export const hold = (event: Event) => event.preventDefault();
// Only while it is needed: some browsers keep no page with this listener for the way back.
effect(() => {
  if (unsaved.value.length > 0) addEventListener("beforeunload", hold);
  else removeEventListener("beforeunload", hold);
});
