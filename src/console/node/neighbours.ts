// The nodes before and after one, in the list that led to its page.

import { useEffect } from "preact/hooks";
import { currentSlug } from "../contact/me.ts";
import { go, pathOf } from "../frame/router.ts";

/** The nodes in the order in which a list showed them last. */
export const lastShown: { ids: readonly number[] } = { ids: [] };

/** Makes j and k lead to the next and the previous node of the list that led here. Returns whether there was such a list. */
export function useNeighbours(id: string): boolean {
  const place = lastShown.ids.indexOf(Number(id));
  useEffect(() => {
    if (place === -1) return undefined;
    const press = (event: KeyboardEvent) => {
      const { key, target, ctrlKey, metaKey, altKey } = event;
      const isTyping = target instanceof HTMLElement && target.matches("input, select, textarea");
      if (isTyping || ctrlKey || metaKey || altKey || document.querySelector("dialog[open]") !== null) return;
      if (key !== "j" && key !== "k") return;
      // Otherwise the keys would also lead to rows of the page's tables.
      event.stopPropagation();
      const next = lastShown.ids[place + (key === "j" ? 1 : -1)];
      if (next !== undefined) go(pathOf(currentSlug.value ?? "", "nodes", next), { replace: true });
    };
    addEventListener("keydown", press, { capture: true });
    return () => removeEventListener("keydown", press, { capture: true });
  }, [place]);
  return place !== -1;
}
