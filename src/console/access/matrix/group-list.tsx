// The groups that rules name, with their nodes: a list beside the matrix.

import { useMemo } from "preact/hooks";
import { currentSlug } from "../../contact/me.ts";
import type { ListedNode } from "../../nodes/listed-nodes.ts";
import { useNodes } from "../../nodes/node-list.ts";
import { pathOf } from "../../frame/router.ts";
import { Panel } from "../../ui/page.tsx";
import { Tag } from "../../ui/tag.tsx";
import type { Rule } from "../rules.ts";
import { numberText } from "../../words/numbers.ts";
import { maxGroups, useLines } from "./group-matrix.tsx";

/** How many nodes of a group are named. */
const maxNames = 4;

type Members = { count: number; names: readonly string[] };

/** How many nodes are in each group, and the names of the first of them. */
function membersOf(nodes: readonly ListedNode[]): ReadonlyMap<string, Members> {
  const found = new Map<string, { count: number; names: string[] }>();
  for (const { groups, name } of nodes)
    for (const group of groups) {
      const known = found.get(group);
      if (known === undefined) found.set(group, { count: 1, names: [name] });
      else if (++known.count <= maxNames) known.names.push(name);
    }
  return found;
}

/** The groups that the rules name, with their nodes. */
export function GroupList({ rules }: { rules: readonly Rule[] }) {
  const slug = currentSlug.value ?? "";
  // The same rules twice: no draft is compared with what is saved.
  const { lines } = useLines(rules, rules);
  const { data, isWhole } = useNodes();
  const members = useMemo(() => membersOf(isWhole ? (data ?? []) : []), [data, isWhole]);
  // Without the line of several groups, which has those that no rule names.
  const named = lines.filter(({ all }) => all.length === 1).slice(0, maxGroups);
  if (!isWhole || named.length === 0) return null;
  return (
    <div class="no-phone">
      <Panel title="Groups" beside={<span class="faint no-phone cut">who is in what a rule names</span>}>
        <ul class="lines rule" aria-label="Groups">
          {named.map(({ name }) => {
            const { count, names } = members.get(name) ?? { count: 0, names: [] };
            const words = names.join(", ") + (count > names.length ? "…" : "");
            return (
              <li key={name}>
                <span class="no">{numberText(count)}</span>
                <span class="say">
                  <Tag text={name} />
                  <bdi class="quiet cut" title={words}>
                    {count === 0 ? "no node" : words}
                  </bdi>
                </span>
                <a href={`${pathOf(slug, "nodes")}?group=${encodeURIComponent(name)}`}>
                  Show<span class="unseen"> the nodes in {name}</span>
                </a>
              </li>
            );
          })}
        </ul>
      </Panel>
    </div>
  );
}
