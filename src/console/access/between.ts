// What else decides whether one machine reaches another: both have to be there, with the newest rules, and a path. And
// without a port, every rule that lets one in to the other.

import type { Node } from "../../protocol/node.ts";
import { org } from "../api.ts";
import { html } from "../html.ts";
import { configurationOf, isPresent, stateOf } from "../nodes.ts";
import { useList, useResource } from "../resource.ts";
import { pathOf } from "../router.ts";
import { State, When } from "../ui/parts.ts";
import type { Saved } from "./draft.ts";
import { Sentence } from "./rule-table.ts";
import { letIn } from "./standing.ts";

type Path = { peer: number | null; path: string; probe: string; relays: readonly string[] };
type BetweenProps = {
  saved: Saved;
  slug: string;
  from: number;
  to: number;
  /** The answer about one port; undefined: no port was asked for. */
  isAllowed: boolean | undefined;
};

export function Between({ saved, slug, from, to, isAllowed }: BetweenProps) {
  const { data: sender } = useResource<Node>(org(slug, `nodes/${from}/`));
  const { data: receiver } = useResource<Node>(org(slug, `nodes/${to}/`));
  const { data: paths } = useList<Path>(org(slug, `nodes/${from}/peers/?page_size=1000`));
  if (sender === undefined || receiver === undefined || isAllowed === false) return null;
  const ids = new Set(letIn(saved.stored, sender, receiver).map(({ id }) => id));
  const rules = saved.rules.filter(({ id }) => ids.has(id));
  if (isAllowed === undefined && rules.length === 0)
    return html`<p>
      <${State} name="attention" word="no" />${" "}No rule lets <bdi>${sender.name}</bdi> in to
      <bdi>${receiver.name}</bdi>, whatever the port.
    </p>`;
  const path = paths?.find(({ peer }) => peer === to);
  return html`${
      isAllowed === undefined
        ? html`<p>These rules let <bdi>${sender.name}</bdi> in to <bdi>${receiver.name}</bdi>:</p>
            <ul class="plain-list">
              ${rules.map((rule) => html`<li key=${rule.id}><${Sentence} rule=${rule} /></li>`)}
            </ul>
            <p class="quiet">Enter a port to know whether one connection may be made.</p>`
        : html`<p>Beside the rules, a connection needs:</p>`
    }
    <ul class="plain-list">
      ${[sender, receiver].map((node) => html`<${End} key=${node.id} slug=${slug} node=${node} />`)}
      ${path === undefined ? null : html`<li>${pathWords(path, isPresent(sender))}</li>`}
    </ul>`;
}

/** A machine at one end: whether it is there, and has the newest rules. */
function End({ slug, node }: { slug: string; node: Node }) {
  const [state, word] = stateOf(node);
  const { words, isBehind } = configurationOf(node);
  return html`<li>
    <a href=${pathOf(slug, "machines", node.id)}><bdi>${node.name}</bdi></a
    >${" "}
    <${State} name=${isPresent(node) ? state : "attention"} word=${word} />
    ${isPresent(node) || node.last_checkin_at === null ? null : html` since <${When} at=${node.last_checkin_at} />`};
    configuration ${isBehind ? html`<span class="limited">${words}</span>` : words}
  </li>`;
}

function pathWords({ path, probe, relays }: Path, isCurrent: boolean): string {
  const before = isCurrent ? "Path: " : "Path, as it was reported last: ";
  if (probe === "broken") return `${before}broken, the other machine does not answer.`;
  if (path === "none") return `${before}no tunnel.`;
  return `${before}${path}${relays.length === 0 ? "" : ` by ${relays.join(", ")}`}.`;
}
