// Parts of pages that have a file of their own, so that the page does not wait for them.

import type { FunctionComponent } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Node } from "../../protocol/node.ts";
import type { Registration } from "../joining/registrations.ts";

/** A question about some nodes. */
export type Asking = { nodes: readonly Pick<Node, "id" | "name" | "phone">[]; close(): void };

/** By their properties, because the files use parts themselves. */
type Parts = {
  node(): Promise<{ Aside: FunctionComponent<{ id: number; close(): void }> }>;
  editing(): Promise<{
    Edit: FunctionComponent<{ node: Node; close(): void }>;
    Begin: FunctionComponent<{ path: string; close(): void }>;
    dialogs: Readonly<Record<"groups" | "renew" | "revoke" | "restore", FunctionComponent<Asking>>>;
  }>;
  activity(): Promise<{ eventNames: readonly string[] }>;
  qr(): Promise<{ QrPicture: FunctionComponent<{ text: string; label: string }> }>;
  joining(): Promise<{
    AnswerDialog: FunctionComponent<{ verb: "approve" | "refuse"; machine: Registration; close(): void }>;
    Waiting: FunctionComponent;
  }>;
};

/** The files. The table of pages names them (pages.ts), so that no page is in the first view of another. */
export const parts: Partial<Parts> = {};

/** Undefined until it is loaded; without `load` it is not. If it does not arrive, the next use tries again. */
export function usePart<M extends object>(load: (() => Promise<M>) | undefined): M | undefined {
  const [found, setFound] = useState<M>();
  useEffect(() => {
    load?.().then(
      (part) => setFound(part),
      () => undefined,
    );
  }, [load]);
  return found;
}
