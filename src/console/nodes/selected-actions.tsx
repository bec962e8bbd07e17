// What can be done with all nodes of the list that are selected.

import { useState } from "preact/hooks";
import type { ListedNode } from "./listed-nodes.ts";
import { Button } from "../ui/button.tsx";
import { parts, usePart } from "../ui/lazy-parts.ts";

type Verb = "groups" | "renew" | "revoke" | "restore";
/** `fits`: the nodes that it can be done with. */
const verbs: readonly (readonly [Verb, words: string, fits: (node: ListedNode) => boolean])[] = [
  ["groups", "Change groups", ({ state }) => state !== "revoked"],
  ["renew", "Renew certificates", ({ state }) => state === "active"],
  ["revoke", "Revoke", ({ state }) => state !== "revoked"],
  ["restore", "Restore", ({ state }) => state === "revoked"],
];

type Props = {
  nodes: readonly ListedNode[];
  /** Number of nodes that were selected until a filter hid them. */
  dropped: number;
  clear(): void;
};

function wordsOf(count: number, dropped: number): string {
  if (count === 0 && dropped === 0) return "";
  return `${count} selected${dropped === 0 ? "" : `. Not shown, so unticked: ${dropped}`}`;
}

/** At the bottom, where it moves nothing: what can be done with all that are selected. */
export function Selected({ nodes, dropped, clear }: Props) {
  // Keeps the nodes of the question, although the list changes meanwhile.
  const [asked, setAsked] = useState<{ verb: Verb; nodes: readonly ListedNode[] }>();
  const part = usePart(nodes.length === 0 ? undefined : parts.editing);
  const Asked = asked && part?.dialogs[asked.verb];
  const words = wordsOf(nodes.length, dropped);
  return (
    <section class={words === "" ? "unseen" : "draft"} aria-label="Selected nodes">
      <header>
        <span role="status">{words}</span>
        <span class="spring" />
        {verbs.map(([verb, title, fits]) =>
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
      {asked === undefined || Asked === undefined ? null : (
        <Asked nodes={asked.nodes} close={() => setAsked(undefined)} />
      )}
    </section>
  );
}
