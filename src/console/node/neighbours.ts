// The nodes before and behind one, in the list that led to it.

import { useEffect } from "preact/hooks";
import { currentSlug } from "../contact/me.ts";
import { go, pathOf } from "../frame/router.ts";

/** The nodes in the order in which a list showed them last. */
export const lastShown: { ids: readonly number[] } = { ids: [] };

/** With j and k to the next and the previous node of the list that led here. */
export function useNeighbours(id: string): boolean {
  const at = lastShown.ids.indexOf(Number(id));
  useEffect(() => {
    if (at === -1) return undefined;
    const press = (event: KeyboardEvent) => {
      const { key, target, ctrlKey, metaKey, altKey } = event;
      const isTyping = target instanceof HTMLElement && target.matches("input, select, textarea");
      if (isTyping || ctrlKey || metaKey || altKey || document.querySelector("dialog[open]") !== null) return;
      const next = key === "j" ? lastShown.ids[at + 1] : key === "k" ? lastShown.ids[at - 1] : undefined;
      if (key !== "j" && key !== "k") return;
      // Otherwise they lead to the rows of the tables.
      event.stopPropagation();
      if (next !== undefined) go(pathOf(currentSlug.value ?? "", "nodes", next), { replace: true });
    };
    addEventListener("keydown", press, { capture: true });
    return () => removeEventListener("keydown", press, { capture: true });
  }, [at]);
  return at !== -1;
}
