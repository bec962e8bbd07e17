// After another page is opened, the focus is on its heading: a screen reader reads it, and Tab goes on from there.

import { useLayoutEffect } from "preact/hooks";

let last: string | undefined;

/** `page`: the key of the shown page; undefined while none is shown. On the first page, the browser places the focus. */
export function useHeadingFocus(page: string | undefined): void {
  // Before the browser draws: a key that is pressed as soon as the page is seen may move the focus on.
  useLayoutEffect(() => {
    const isFirst = last === undefined;
    if (page === undefined || page === last) return undefined;
    last = page;
    if (isFirst) return undefined;
    const start = document.activeElement;
    const watch = new MutationObserver(look);
    let focused: HTMLElement | undefined;
    function look() {
      const { activeElement: now } = document;
      if (focused?.isConnected === true && now === focused) return;
      // A field or a dialog has the focus, or the user has moved on.
      const isTaken =
        focused?.isConnected === true ||
        (now !== start && now !== document.body) ||
        now?.matches("dialog *, input, select, textarea") === true;
      const heading = document.querySelector("h1");
      if (isTaken) watch.disconnect();
      else if (heading !== null) {
        // Watched on: the page has another heading once its data is there.
        focused = heading;
        heading.tabIndex = -1;
        heading.focus({ preventScroll: true });
      }
    }
    watch.observe(document.body, { childList: true, subtree: true });
    look();
    return () => watch.disconnect();
  }, [page]);
}
