// The matrix of groups: rows send, columns receive.

import { useMemo, useState } from "preact/hooks";
import { org } from "../api.ts";
import { html } from "../html.ts";
import { slug } from "../me.ts";
import { useList } from "../resource.ts";
import { Empty } from "../ui/parts.ts";
import { cellOf, type Cell } from "./matrix.ts";
import type { Rule } from "./rules.ts";
import { Sentence } from "./rule-table.ts";

/** A matrix of more groups is no longer read: the search of machines and the explainer answer better. */
const maxGroups = 40;

export function GroupMatrix({ rules, isDraft }: { rules: readonly Rule[]; isDraft: boolean }) {
  const own = slug.value ?? "";
  const { data } = useList<{ name: string }>(org(own, "groups/?page_size=1000"));
  const [chosen, choose] = useState<readonly [string, string] | undefined>(undefined);
  const groups = useMemo(() => groupsOf(data ?? [], rules), [data, rules]);
  const shown = groups.slice(0, maxGroups);
  const cells = useMemo(
    () => shown.map((from) => shown.map((to) => cellOf(rules, from, to))),
    [rules, shown.join(" ")],
  );
  return html`<section aria-labelledby="matrix">
    <h2 id="matrix">Which group reaches which</h2>
    ${
      shown.length === 0
        ? html`<${Empty}
            text="There is no group yet. Machines get groups when they are added, and rules name them."
          />`
        : html`<p class="quiet">
              For machines that are in one group each${isDraft ? ", with your changes" : ""}. Rules about
              single machines and networks are not
              counted.${groups.length > maxGroups ? ` The first ${maxGroups} of ${groups.length} groups.` : ""}
            </p>
            <div class="wide" tabindex="0" role="region" aria-label="Matrix of groups">
              <table class="matrix">
                <thead>
                  <tr>
                    <th scope="col">from \\ to</th>
                    ${shown.map((to) => html`<th scope="col" key=${to}><bdi>${to}</bdi></th>`)}
                  </tr>
                </thead>
                <tbody>
                  ${shown.map(
                    (from, row) =>
                      html`<tr key=${from}>
                        <th scope="row"><bdi>${from}</bdi></th>
                        ${shown.map((to, at) => {
                          const cell = cells[row]?.[at];
                          return html`<td key=${to}>
                            ${cell === undefined ? null : html`<${CellButton} cell=${cell} open=${() => choose([from, to])} />`}
                          </td>`;
                        })}
                      </tr>`,
                  )}
                </tbody>
              </table>
            </div>`
    }
    <div role="status">
      ${chosen === undefined ? null : html`<${Reasons} rules=${rules} from=${chosen[0]} to=${chosen[1]} />`}
    </div>
  </section>`;
}

function groupsOf(known: readonly { name: string }[], rules: readonly Rule[]): readonly string[] {
  const named = rules
    .flatMap(({ peer, target }) => [peer, target])
    .filter((word) => word.startsWith("group:"))
    .map((word) => word.slice("group:".length));
  return [...new Set([...known.map(({ name }) => name), ...named])].sort();
}

function CellButton({ cell: { traffic }, open }: { cell: Cell; open: () => void }) {
  if (traffic.length === 0) return html`<span class="quiet">nothing</span>`;
  return html`<button type="button" class="plain" onClick=${open}>${traffic.join(", ")}</button>`;
}

function Reasons({ rules, from, to }: { rules: readonly Rule[]; from: string; to: string }) {
  const { traffic, rules: deciding } = cellOf(rules, from, to);
  return html`<p>
      <bdi>${from}</bdi> reaches <bdi>${to}</bdi> on ${traffic.length === 0 ? "nothing" : traffic.join(", ")},
      by
    </p>
    <ul>
      ${deciding.map(
        (rule) =>
          html`<li key=${rule.id}>${rule.id > 0 ? `rule ${rule.id}: ` : ""}<${Sentence} rule=${rule} /></li>`,
      )}
    </ul>`;
}
