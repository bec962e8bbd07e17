// The matrix of groups: rows send, columns receive.

import type { VNode } from "preact";
import { useMemo, useState } from "preact/hooks";
import { org } from "../api.ts";
import { html } from "../html.ts";
import { slug } from "../me.ts";
import { useList } from "../resource.ts";
import { Empty } from "../ui/parts.ts";
import { cellOf, matrixOf } from "./matrix.ts";
import type { Rule } from "./rules.ts";
import { Sentence } from "./rule-table.ts";

/** A matrix of more groups is no longer read: the search of machines and the explainer answer better. */
const maxGroups = 40;

type GroupMatrixProps = { saved: readonly Rule[]; draft: readonly Rule[] | undefined };

/** With a draft, the cells that it changes are marked. */
export function GroupMatrix({ saved, draft }: GroupMatrixProps) {
  const rules = draft ?? saved;
  const own = slug.value ?? "";
  const { data } = useList<{ name: string }>(org(own, "groups/?page_size=1000"));
  const [chosen, choose] = useState<readonly [string, string] | undefined>(undefined);
  const groups = useMemo(() => groupsOf(data ?? [], rules), [data, rules]);
  const shown = groups.slice(0, maxGroups);
  const names = shown.join("\n");
  const cells = useMemo(() => matrixOf(shown, rules, saved), [saved, rules, names]);
  const changed = cells.flat().filter(({ isChanged }) => isChanged).length;
  // Preact leaves a table alone that is the same object as before: it may have 1,600 cells.
  const table = useMemo(() => drawTable(shown, cells, choose), [cells, names]);
  return html`<section aria-labelledby="matrix">
    <h2 id="matrix">Which group reaches which</h2>
    ${
      shown.length === 0
        ? html`<${Empty}
            text="There is no group yet. Machines get groups when they are added, and rules name them."
          />`
        : html`<p class="quiet">
              For machines that are in one group each. Rules about single machines and networks are not
              counted.${groups.length > maxGroups ? ` The first ${maxGroups} of ${groups.length} groups.` : ""}
            </p>
            ${draft === undefined ? null : html`<p role="status">${changedWords(changed)}</p>`}
            <div class="wide" tabindex="0" role="region" aria-label="Matrix of groups">${table}</div>`
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

function changedWords(count: number): string {
  if (count === 0) return "Your changes leave this table as it is.";
  return `With your changes, ${count === 1 ? "1 cell is" : `${count} cells are`} different: marked, with what was there before.`;
}

type Cells = ReturnType<typeof matrixOf>;

function drawTable(
  groups: readonly string[],
  cells: Cells,
  choose: (pair: readonly [string, string]) => void,
): VNode {
  return html`<table class="matrix">
    <thead>
      <tr>
        <th scope="col">from \\ to</th>
        ${groups.map((to) => html`<th scope="col" key=${to}><bdi>${to}</bdi></th>`)}
      </tr>
    </thead>
    <tbody>
      ${groups.map(
        (from, row) =>
          html`<tr key=${from}>
            <th scope="row"><bdi>${from}</bdi></th>
            ${groups.map((to, at) => {
              const cell = cells[row]?.[at];
              return cell === undefined ? null : drawCell(cell, to, () => choose([from, to]));
            })}
          </tr>`,
      )}
    </tbody>
  </table>`;
}

function drawCell(
  { traffic, isChanged, before }: Cells[number][number],
  to: string,
  open: () => void,
): VNode {
  const words = (list: readonly string[]) => (list.length === 0 ? "nothing" : list.join(", "));
  const now =
    traffic.length === 0
      ? html`<span class="quiet">nothing</span>`
      : html`<button type="button" class="plain" onClick=${open}>${words(traffic)}</button>`;
  if (!isChanged) return html`<td key=${to}>${now}</td>`;
  return html`<td key=${to} class="marked">
    ${now} <del><span class="unseen">before: </span>${words(before)}</del>
  </td>`;
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
