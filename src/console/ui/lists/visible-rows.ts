// Which rows of a table are in sight of the window.

import { useEffect, useState } from "preact/hooks";

/** How many rows are drawn above and below what is in sight, so that scrolling shows no gaps. */
const margin = 6;
/** Scrolling has come to rest when it paused for so long. */
const restMs = 100;

/** The rows to draw, which are in sight of the window or near it: index of the first, and of the one after the last. */
export function useVisible(
  body: { readonly current: HTMLDivElement | null },
  count: number,
  rowHeight: number,
): [number, number] {
  // At first without the margin, so that the page is there sooner.
  const [range, setRange] = useState<[number, number]>(() => [0, Math.ceil(innerHeight / rowHeight)]);
  useEffect(() => {
    let drawn: [number, number] = [0, 0];
    let rest: ReturnType<typeof setTimeout> | undefined;
    const look = () => {
      const top = body.current?.getBoundingClientRect().top ?? 0;
      const first = Math.max(0, Math.floor(-top / rowHeight));
      const last = Math.min(count, Math.ceil((innerHeight - top) / rowHeight));
      // After a jump all rows are new: draws those in sight first, and those around them once scrolling rests.
      const [drawnFrom, drawnTo] = drawn;
      const isJump = drawnTo > 0 && (first >= drawnTo || last <= drawnFrom);
      const around = isJump ? 0 : margin;
      clearTimeout(rest);
      if (around === 0) rest = setTimeout(look, restMs);
      drawn = [Math.max(0, first - around), Math.min(count, last + around)];
      const [from, to] = drawn;
      setRange((before) => (before[0] === from && before[1] === to ? before : [from, to]));
    };
    look();
    const ended = new AbortController();
    const { signal } = ended;
    addEventListener("scroll", look, { passive: true, signal });
    addEventListener("resize", look, { signal });
    // Content above may have closed, such as the menu on a phone.
    const sizes = new ResizeObserver(look);
    sizes.observe(document.body);
    return () => {
      clearTimeout(rest);
      sizes.disconnect();
      ended.abort();
    };
  }, [count, rowHeight]);
  return range;
}
