// Nodes for which a change waits, each with its state, which says why: it is away, or it does not apply its configuration.

import { nodesApi } from "../../api/nodes.ts";
import { apiPath } from "../../api/endpoint.ts";
import { configurationOf, stateOf } from "./states.ts";
import { useCut } from "../needs/use-needs.ts";
import { useList } from "../contact/resource.ts";
import { pathOf } from "../frame/router.ts";
import { Line, State } from "../ui/parts.tsx";

/** The others are counted. The API takes at most 200 ids. */
const maxShown = 100;
/** A longer list is folded. */
const maxUnfolded = 10;

type Props = { slug: string; ids: readonly number[]; count?: number; title: string };

/** `count`: how many there are; `ids` may be the first ones only. */
export function AwaitedNodes({ slug, ids, count = ids.length, title }: Props) {
  const shown = ids.slice(0, maxShown);
  const asked = shown.join(",");
  const { data = [] } = useList(
    asked === "" ? "" : apiPath(nodesApi.list, { slug }, { page_size: "1000", ids: asked }),
  );
  // How many paths have no other way than a relay that is away: it decides how grave the state of a relay is.
  const cut = useCut(slug);
  if (asked === "") return null;
  // Nodes that are away catch up when they are back; others need an administrator.
  const nodes = data.toSorted((one, other) => Number(other.online) - Number(one.online));
  return (
    <details open={count <= maxUnfolded}>
      <summary>{title}</summary>
      <ul class="plain-list">
        {nodes.map((node) => {
          const [state, word] = stateOf({ ...node, cut, isLate: node.not_applied_since != null });
          return (
            <li key={node.id}>
              <a href={pathOf(slug, "nodes", node.id)}>
                <bdi>{node.name}</bdi>
              </a>{" "}
              <State name={state} word={word} /> <span class="quiet">{configurationOf(node).words}</span>
            </li>
          );
        })}
        {count > shown.length ? <li>and {count - shown.length} more</li> : null}
      </ul>
      <p class="quiet">If a node is online and stays in this list, run this on it:</p>
      <Line text="agent doctor" />
    </details>
  );
}
