// What can be done with all nodes of the list that are selected.

import { useState } from "preact/hooks";
import type { ListedNode } from "./listed-nodes.ts";
import { mayRenew } from "./states.ts";
import { Button } from "../ui/button.tsx";
import { parts, usePart } from "../ui/lazy-parts.ts";

type Verb = "groups" | "renew" | "revoke" | "restore";
/** `fits`: whether it can be done with a node. */
type Action = { verb: Verb; title: string; fits(node: ListedNode): boolean };
const actions: readonly Action[] = [
  { verb: "groups", title: "Change groups", fits: ({ state }) => state !== "revoked" },
  { verb: "renew", title: "Renew certificates", fits: mayRenew },
  { verb: "revoke", title: "Revoke", fits: ({ state }) => state !== "revoked" },
  { verb: "restore", title: "Restore", fits: ({ state }) => state === "revoked" },
];

type Props = {
  nodes: readonly ListedNode[];
  /** Number of nodes that were selected until a filter hid them. */
  dropped: number;
  clear(): void;
};

/** "3 selected"; "" if nothing is, nor was until a filter hid it. */
function wordsOf(count: number, dropped: number): string {
  if (count === 0 && dropped === 0) return "";
  return `${count} selected${dropped === 0 ? "" : `. Not shown, so unticked: ${dropped}`}`;
}

/** At the bottom, where it moves nothing: what can be done with all that are selected. */
export function Selected({ nodes, dropped, clear }: Props) {
  // The open dialog keeps its nodes, although the list changes meanwhile.
  const [asked, setAsked] = useState<{ verb: Verb; nodes: readonly ListedNode[] }>();
  const part = usePart(nodes.length === 0 ? undefined : parts.editing);
  const AskedDialog = asked && part?.dialogs[asked.verb];
  const words = wordsOf(nodes.length, dropped);
  return (
    <section class={words === "" ? "unseen" : "draft"} aria-label="Selected nodes">
      <header>
        <span role="status">{words}</span>
        <span class="spring" />
        {actions.map(({ verb, title, fits }) =>
          nodes.some(fits) ? (
            <Button
              key={verb}
              kind={verb === "revoke" ? "danger" : undefined}
              onClick={() => setAsked({ verb, nodes: nodes.filter(fits) })}
            >
              {title}
            </Button>
          ) : null,
        )}
        {words === "" ? null : (
          <Button kind="ghost" onClick={clear}>
            Clear the selection
          </Button>
        )}
      </header>
      {asked === undefined || AskedDialog === undefined ? null : (
        <AskedDialog nodes={asked.nodes} close={() => setAsked(undefined)} />
      )}
    </section>
  );
}
