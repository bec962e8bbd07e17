// The rules as sentences, with the edits that are not saved yet.

import { apiPath } from "../../api/endpoint.ts";
import { rulesApi } from "../../api/rules.ts";
import type { VNode } from "preact";
import { useState } from "preact/hooks";
import { pathOf, query } from "../router.ts";
import { Empty, FromTerminal, Loading } from "../ui/parts.tsx";
import { Export, Search, searched } from "../ui/tools.tsx";
import { edit, terminalOf, type Draft } from "./draft.ts";
import type { Saved } from "./saved.ts";
import { useNodes } from "../node-list.ts";
import { networksBehind } from "../../protocol/networks-behind.ts";
import { RuleForm } from "./rule-form.tsx";
import { Description, Sentence } from "./sentence.tsx";
import { endsOf, faultsByRule, isAboutGone, rulesLeft, sentenceOf, type Rule } from "./rules.ts";

type Row = { rule: Rule; before?: Rule; state: "same" | "new" | "changed" | "deleted" };
const maxShown = 200;

function rowsOf(base: readonly Rule[], draft: readonly Rule[]): readonly Row[] {
  const byId = new Map(draft.map((rule) => [rule.id, rule]));
  const known = new Set(base.map(({ id }) => id));
  const isSame = (one: Rule, other: Rule) =>
    sentenceOf(one) === sentenceOf(other) && one.description === other.description;
  return [
    ...base.map((before): Row => {
      const rule = byId.get(before.id);
      if (rule === undefined) return { rule: before, state: "deleted" };
      return isSame(rule, before) ? { rule, state: "same" } : { rule, before, state: "changed" };
    }),
    ...draft.filter(({ id }) => !known.has(id)).map((rule): Row => ({ rule, state: "new" })),
  ];
}

/** All texts of a row, for the search. */
function wordsOf({ rule, before, state }: Row, behind: readonly string[]): string {
  const versions = [rule, ...(before === undefined ? [] : [before])];
  const texts = versions.flatMap((each) => [sentenceOf(each), each.description]);
  return [rule.id, ...texts, ...behind, state === "same" ? "" : state].join(" ");
}

/** The networks that a rule opens, too: at most so many machines with them. */
type Behind = (rule: Rule, max?: number) => readonly string[];

/** `isRead`: the machines were read, or cannot be. */
function useBehind(): { behind: Behind; isRead: boolean } {
  const { data = [], isWhole, error } = useNodes();
  const routers = data.filter(({ subnets }) => subnets.length > 0);
  const behind: Behind = (rule, max) => networksBehind([endsOf(rule).to], routers, max);
  return { behind, isRead: isWhole || error !== undefined };
}

const fields = (["id", "direction", "protocol", "ports", "peer", "target", "description"] as const).map(
  (key) => ({ title: key, text: (rule: Rule) => String(rule[key]) }),
);
const columnsOf = (behind: Behind) => [
  ...fields,
  { title: "networks behind", text: (rule: Rule) => behind(rule, Infinity).join("; ") },
];

type Props = { draft: Draft; saved: Saved; mayEdit: boolean };

export function RuleTable({ draft, saved, mayEdit }: Props) {
  const [open, setOpen] = useState<Rule | "new" | undefined>(undefined);
  const [isWhole, showWhole] = useState(false);
  const edited = draft.rules.value;
  const rules = edited === undefined ? saved.rules : rulesLeft(saved.rules, edited);
  const search = query.value.get("search") ?? "";
  const faults = faultsByRule(rules, draft.error.value?.fields["policy"] ?? []);
  const isFound = searched();
  const { behind, isRead } = useBehind();
  const all = rowsOf(saved.rules, rules);
  // The row names the first networks only; a search looks at all.
  const rows = search === "" ? all : all.filter((row) => isFound(wordsOf(row, behind(row.rule, Infinity))));
  // Edited rules are always shown.
  const shown = isWhole ? rows : rows.filter(({ state }, at) => at < maxShown || state !== "same");
  return (
    <section aria-labelledby="rules">
      <div class="tools">
        <h2 id="rules">Rules</h2>
        <Search label="Search rules" />
        <Export
          file={`${draft.slug}-rules.csv`}
          items={saved.rules}
          columns={columnsOf(behind)}
          isPart={!isRead}
        />
        {mayEdit ? (
          <button type="button" class="primary" onClick={() => setOpen("new")}>
            Add a rule
          </button>
        ) : null}
      </div>
      <p class="quiet">A connection needs both: the sender may send, and the receiver may be reached.</p>
      {rows.length === 0 ? (
        <NoRule slug={draft.slug} search={search} isRead={isRead} />
      ) : (
        <table class="rules">
          <thead>
            <tr>
              <th scope="col">No.</th>
              <th scope="col">Rule</th>
              <th scope="col">{mayEdit ? "Edit" : "State"}</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((row) => (
              <RuleRow
                key={row.rule.id}
                row={row}
                faults={faults.get(row.rule) ?? []}
                behind={behind(row.rule)}
                open={mayEdit ? setOpen : undefined}
                draft={draft}
              />
            ))}
          </tbody>
        </table>
      )}
      {shown.length < rows.length ? (
        <button type="button" onClick={() => showWhole(true)}>
          Show all {rows.length} rules
        </button>
      ) : null}
      {edited !== undefined ? (
        <FromTerminal {...terminalOf(draft.slug, saved, rules, draft.tests.value)} />
      ) : draft.done.value !== undefined ? null : (
        <FromTerminal
          command={["rule", "list", draft.slug]}
          call={["GET", apiPath(rulesApi.list, { slug: draft.slug })]}
        />
      )}
      {open === undefined ? null : (
        <RuleForm rule={open === "new" ? undefined : open} draft={draft} close={() => setOpen(undefined)} />
      )}
    </section>
  );
}

/** Rules name groups more often than machines. */
function NoRule({ slug, search, isRead }: { slug: string; search: string; isRead: boolean }) {
  if (search === "") return <Empty text="There is no rule, so no machine reaches another." />;
  // The typed address may be in a network behind one of them.
  if (!isRead) return <Loading />;
  const words = encodeURIComponent(search);
  return (
    <Empty text="No rule has these words. Rules mostly name groups, not machines.">
      <p>
        <a href={`${pathOf(slug, "machines")}?search=${words}`}>Machines with these words</a>: the page of
        each says what it may reach. <kbd>Ctrl K</kbd> finds machines from every page.
      </p>
    </Empty>
  );
}

/** A rule has no author: its events name the user. */
function History({ slug, id }: { slug: string; id: number }) {
  return (
    <a
      class="button small"
      href={`${pathOf(slug, "activity")}?subject=rule/${id}`}
      title="Who made and changed this rule, and when"
    >
      History<span class="unseen"> of rule {id}</span>
    </a>
  );
}

type RuleRowProps = {
  row: Row;
  faults: readonly string[];
  /** The networks that it opens, too. */
  behind: readonly string[];
  open: ((rule: Rule) => void) | undefined;
  draft: Draft;
};

function RuleRow({ row: { rule, before, state }, faults, behind, open, draft }: RuleRowProps) {
  const without = (rules: readonly Rule[]) => rules.filter(({ id }) => id !== rule.id);
  const button = (label: string, onClick: () => void) => rowButton(label, sentenceOf(rule), onClick);
  const isMarked = query.value.get("rule") === String(rule.id);
  return (
    <tr id={`rule-${rule.id}`} class={isMarked ? "marked" : state}>
      <td>{rule.id > 0 ? rule.id : ""}</td>
      <td>
        {state === "deleted" ? (
          <del>
            <Sentence rule={rule} />
          </del>
        ) : (
          <Sentence rule={rule} />
        )}
        {before === undefined || sentenceOf(before) === sentenceOf(rule) ? null : (
          <div>
            <del>
              <Sentence rule={before} />
            </del>
          </div>
        )}
        {behind.length === 0 ? null : (
          <div class="quiet">
            and the networks behind <bdi>{behind.join("; ")}</bdi>
          </div>
        )}
        <div class="quiet">
          <Description before={before ?? rule} after={rule} />
        </div>
        {isAboutGone(rule) ? (
          <div class="limited">
            What it names is revoked or gone, and the next save deletes this rule, unless it is restored.
          </div>
        ) : null}
        {faults.map((sentence) => (
          <div class="bad" role="alert">
            {sentence}
          </div>
        ))}
      </td>
      <td>
        {state === "same" ? null : <span class="limited">{state}</span>}
        {rule.id > 0 ? <History slug={draft.slug} id={rule.id} /> : null}
        {open === undefined || (state === "deleted" && isAboutGone(rule))
          ? null
          : state === "deleted"
            ? button("Put back", () => edit(draft, (rules) => [...rules, rule]))
            : [button("Edit", () => open(rule)), button("Delete", () => edit(draft, without))]}
      </td>
    </tr>
  );
}

/** Classes of the row. */
export const rowButton = (label: string, about: string, onClick: () => void): VNode => (
  <button type="button" class="small" aria-label={`${label}: ${about}`} onClick={onClick}>
    {label}
  </button>
);
