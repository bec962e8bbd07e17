// Parts of pages that have a file of their own, so that the page does not wait for them.

import type { FunctionComponent } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { User } from "../../api/users.ts";
import type { Node } from "../../protocol/node.ts";
import type { Registration } from "../joining/registrations.ts";

/** A question about some nodes. */
export type Asking = { nodes: readonly Pick<Node, "id" | "name" | "phone">[]; close(): void };

/** A dialog about a user. */
export type AboutUser = { user: Pick<User, "id" | "email">; close(): void };

/** What each file exports. Written out instead of inferred: the files use parts themselves, so inferring would be a circle. */
type Parts = {
  node(): Promise<{ Aside: FunctionComponent<{ id: number; close(): void }> }>;
  editing(): Promise<{
    Edit: FunctionComponent<{ node: Node; close(): void }>;
    Begin: FunctionComponent<{ path: string; close(): void }>;
    dialogs: Readonly<Record<"groups" | "renew" | "revoke" | "restore", FunctionComponent<Asking>>>;
  }>;
  administration(): Promise<{ UserSessions: FunctionComponent<AboutUser> }>;
  activity(): Promise<{ eventNames: readonly string[] }>;
  qr(): Promise<{ QrPicture: FunctionComponent<{ text: string; label: string }> }>;
  joining(): Promise<{
    AnswerDialog: FunctionComponent<{ verb: "approve" | "refuse"; machine: Registration; close(): void }>;
    Waiting: FunctionComponent;
  }>;
};

/** What loads each file. Set by the table of pages (pages.ts), so that importing this file loads none of them. */
export const parts: Partial<Parts> = {};

/** A part; undefined until it is loaded, and without `load`. If loading fails, the next component that uses it tries again. */
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
