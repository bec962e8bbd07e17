// The matrix of groups: rows send, columns receive. A press on a cell shows the rules that decide it.

import { apiPath } from "../../../api/endpoint.ts";
import { groupsApi } from "../../../api/groups.ts";
import { useEffect, useMemo, useState } from "preact/hooks";
import { currentSlug } from "../../contact/me.ts";
import { useNodes } from "../../nodes/node-list.ts";
import { useList } from "../../contact/resource.ts";
import { Panel, Why } from "../../ui/page.tsx";
import { Empty } from "../../ui/parts.tsx";
import { cellOf, isChanged, linesOf, matrixOf, type GroupLine } from "../group-cells.ts";
import type { Rule } from "../rules.ts";
import { Sentence } from "../sentence.tsx";
import { ShowRule, useSlices } from "../rule-list.tsx";
import { numberText, plural } from "../../words/numbers.ts";
import { MatrixTable, useRows, type Pair } from "./matrix-table.tsx";

/** Maximum groups of a readable matrix: above it, the search of nodes and the explainer answer better. */
export const maxGroups = 40;

/** The lines of the matrix. Groups that the draft no longer names keep theirs, so that its change is seen. */
export function useLines(saved: readonly Rule[], rules: readonly Rule[]) {
  const { data } = useList(apiPath(groupsApi.list, { slug: currentSlug.value ?? "" }, { page_size: "1000" }));
  const lines = useMemo(
    () =>
      linesOf(
        (data ?? []).map(({ name }) => name),
        [...saved, ...rules],
      ),
    [data, saved, rules],
  );
  return { lines, isRead: data !== undefined };
}

type GroupMatrixProps = { saved: readonly Rule[]; draft: readonly Rule[] | undefined };

/** The value, one task later: after an edit the list of rules is drawn first, then the matrix. */
function useLater<T>(value: T): T {
  const [shown, setShown] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setShown(value));
    return () => clearTimeout(timer);
  }, [value]);
  return shown;
}

/** With a draft, the cells that it changes are marked. */
export function GroupMatrix(props: GroupMatrixProps) {
  // Each drawing has another object of props: only its members decide whether anything changed.
  const { saved, draft } = useLater(useMemo(() => props, [props.saved, props.draft]));
  const rules = draft ?? saved;
  const { lines, isRead } = useLines(saved, rules);
  const [chosen, setChosen] = useState<Pair>();
  const shown = useMemo(() => lines.slice(0, maxGroups), [lines]);
  // One text: cells are computed again only if the groups are others.
  const names = shown.map(({ all }) => all.join()).join("\n");
  const cells = useMemo(
    () =>
      matrixOf(
        shown.map(({ name }) => name),
        rules,
        saved,
      ),
    [saved, rules, names],
  );
  const changedCount = draft === undefined ? 0 : cells.flat().filter(isChanged).length;
  const rows = useRows(shown, cells, chosen, setChosen);
  const drawnRows = useSlices(shown.length, names, 10);
  const title = draft === undefined ? "Who reaches what" : "Who reaches what, after saving";
  return (
    <Panel
      title={title}
      actions={
        shown.length > 0 && draft === undefined ? (
          <span class="faint no-phone cut">press a cell: its rules</span>
        ) : undefined
      }
      hasRoom
    >
      {shown.length === 0 ? (
        isRead ? (
          <Empty text="There is no group yet. Nodes get groups when they are added, and rules name them." />
        ) : null
      ) : (
        <>
          <div class="sideways" tabindex={0} role="region" aria-label="Matrix of groups">
            <MatrixTable lines={shown} rows={rows.slice(0, drawnRows)} />
          </div>
          <p class="legend">
            <span>
              <b class="faint">·</b> ping only
            </span>
            {draft === undefined ? null : (
              <>
                <span class="is-good">+ gains</span>
                <span class="is-bad">− loses</span>
              </>
            )}
            <span>tcp unless it says udp</span>
          </p>
          {draft === undefined ? null : (
            <p class="help" role="status">
              {changedWords(changedCount)}
            </p>
          )}
          <p class="help">
            For nodes that are in one group each. Rules about single nodes and networks are not counted.
            {lines.length > maxGroups ? ` The first ${maxGroups} of ${lines.length} groups.` : ""}
            {shown.some(({ all }) => all.length > 1) ? " Groups that no rule names are alike: one line." : ""}
          </p>
        </>
      )}
      <div role="status">
        {chosen === undefined ? null : <Reasons rules={rules} saved={saved} {...chosen} />}
      </div>
    </Panel>
  );
}

function changedWords(count: number): string {
  if (count === 0) return "Your changes leave this table as it is.";
  return `With your changes, ${plural(count, "cell")} ${count === 1 ? "is" : "are"} different: marked, with + for what comes and − for what goes.`;
}

type ReasonsProps = Pair & { rules: readonly Rule[]; saved: readonly Rule[] };

/** The traffic of the chosen cell, and the rules that decide it. Rules that are not saved yet have negative ids. */
function Reasons({ rules, saved, from, to }: ReasonsProps) {
  const { traffic, rules: deciding } = cellOf(rules, from.name, to.name);
  const ended = cellOf(saved, from.name, to.name).traffic.filter((each) => !traffic.includes(each));
  const { data = [], isWhole } = useNodes();
  const count = (line: GroupLine) =>
    data.filter(({ groups }) => line.all.some((each) => groups.includes(each))).length;
  return (
    <Why
      kind="info"
      icon="access"
      title={
        <>
          <bdi>{from.title}</bdi> {from.all.length > 1 ? "reach" : "reaches"} <bdi>{to.title}</bdi> on{" "}
          {traffic.length === 0 ? "nothing" : traffic.join(", ")}
          {deciding.length === 0 ? "" : ", by"}
        </>
      }
    >
      <ul>
        {deciding.map((rule) => (
          <li key={rule.id}>
            {rule.id > 0 ? <ShowRule id={rule.id} /> : "New rule"}: <Sentence rule={rule} />
          </li>
        ))}
      </ul>
      {ended.length === 0 ? null : <p class="is-bad">No longer on {ended.join(", ")}.</p>}
      {isWhole ? (
        <p class="quiet">
          {numberText(count(from))} × {numberText(count(to))} nodes.
        </p>
      ) : null}
    </Why>
  );
}
