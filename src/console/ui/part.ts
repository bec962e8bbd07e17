// Parts of pages that have a file of their own, so that the page does not wait for them.

import { useEffect, useState } from "preact/hooks";

type Parts = {
  node(): Promise<typeof import("../node/node.ts")>;
  joining(): Promise<typeof import("../joining/joining.ts")>;
};

/** The files. The table of pages names them (pages.ts), so that no page is in the first view of another. */
export const parts: Partial<Parts> = {};

/** Undefined until it is loaded; without `load` it is not. If it does not arrive, the next use tries again. */
export function usePart<M extends object>(load: (() => Promise<M>) | undefined): M | undefined {
  const [found, find] = useState<M | undefined>(undefined);
  useEffect(() => {
    load?.().then(
      (part) => find(part),
      () => undefined,
    );
  }, [load]);
  return found;
}
