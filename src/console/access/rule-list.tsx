// The rules as sentences, one line each, with the edits that are not saved yet.

import { rulesApi } from "../../api/rules.ts";
import { apiPath } from "../../api/endpoint.ts";
import type { VNode } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Terminal } from "../words/terminal.ts";
import { pathOf, query, setQuery } from "../frame/router.ts";
import { Button } from "../ui/button.tsx";
import { Menu } from "../ui/menu.tsx";
import { flash } from "../ui/lists/rows.tsx";
import { Panel } from "../ui/page.tsx";
import { Empty, Loading } from "../ui/parts.tsx";
import { Pill } from "../ui/tag.tsx";
import { Export, Search, searched } from "../ui/lists/tools.tsx";
import type { Draft } from "./draft-state.ts";
import { edit } from "./draft.ts";
import { terminalOf } from "./saving.ts";
import type { Saved } from "./saved.ts";
import { useNodes } from "../nodes/node-list.ts";
import { networksBehind } from "../../protocol/networks-behind.ts";
import { Description, Sentence } from "./sentence.tsx";
import { faultsByRule, rowsOf, rulesLeft, type Row } from "./rule-edits.ts";
import { contentOf, endsOf, isAboutGone, sentenceOf, type Rule } from "./rules.ts";

const maxShown = 200;

/** All texts of a row, for the search. */
function wordsOf({ rule, before, state }: Row, behind: readonly string[]): string {
  const versions = before === undefined ? [rule] : [rule, before];
  const texts = versions.flatMap((each) => [sentenceOf(each), each.description]);
  return [rule.id, ...texts, ...behind, state === "same" ? "" : state].join(" ");
}

/** The networks behind nodes that a rule opens as well, by node. `max`: of the nodes; as default a few. */
type BehindOf = (rule: Rule, max?: number) => readonly string[];

/** `isRead`: the nodes were read, or cannot be. */
function useBehind(): { behindOf: BehindOf; isRead: boolean } {
  const { data = [], isWhole, error } = useNodes();
  const routers = data.filter(({ subnets }) => subnets.length > 0);
  const behindOf: BehindOf = (rule, max) => networksBehind([endsOf(rule).to], routers, max);
  return { behindOf, isRead: isWhole || error !== undefined };
}

const fields = (["id", "direction", "protocol", "ports", "peer", "target", "description"] as const).map(
  (key) => ({ title: key, text: (rule: Rule) => String(rule[key]) }),
);
const columnsOf = (behindOf: BehindOf) => [
  ...fields,
  { title: "networks behind", text: (rule: Rule) => behindOf(rule, Infinity).join("; ") },
];

/** The rules that the page shows: as they are saved, or as they will be after saving the edits. */
export const shownRules = ({ rules }: Draft, saved: Saved): readonly Rule[] =>
  rules.value === undefined ? saved.rules : rulesLeft(saved.rules, rules.value);

/** The edits from the command line, or the list if there are none. */
export const rulesTerminal = (draft: Draft, saved: Saved): Terminal =>
  draft.rules.value === undefined
    ? {
        command: ["rule", "list", draft.slug],
        call: ["GET", apiPath(rulesApi.list, { slug: draft.slug })],
      }
    : terminalOf(draft.slug, saved, shownRules(draft, saved), draft.tests.value);

type Props = { draft: Draft; saved: Saved; mayEdit: boolean };

export function RuleList({ draft, saved, mayEdit }: Props) {
  const [isWhole, setWhole] = useState(false);
  const rules = shownRules(draft, saved);
  const search = query.value.get("search") ?? "";
  const faults = faultsByRule(rules, draft.error.value?.fields["policy"] ?? []);
  const isFound = searched();
  const { behindOf, isRead } = useBehind();
  const all = rowsOf(saved.rules, rules);
  // The row names the first networks only; a search looks at all.
  const rows = search === "" ? all : all.filter((row) => isFound(wordsOf(row, behindOf(row.rule, Infinity))));
  // Edited rules are always shown.
  const shown = isWhole ? rows : rows.filter(({ state }, at) => at < maxShown || state !== "same");
  const count = useSlices(shown.length, search, 40);
  const marked = query.value.get("rule");
  // A row that stays the same is the same object, which Preact does not compare: there may be two hundred.
  const drawn = useRef(new Map<string, VNode>());
  const former = drawn.current;
  drawn.current = new Map();
  const draw = (row: Row): VNode => {
    const { rule, before, state } = row;
    const about = {
      faults: faults.get(rule) ?? [],
      behind: behindOf(rule),
      isMarked: marked === String(rule.id),
      mayEdit,
    };
    const key = JSON.stringify([draft.slug, state, rule, before, about]);
    const element = former.get(key) ?? <RuleRow key={rule.id} row={row} draft={draft} {...about} />;
    drawn.current.set(key, element);
    return element;
  };
  return (
    <Panel
      title="Rules"
      beside={<span class="faint no-phone cut">a connection needs both: may send, may be reached</span>}
      actions={
        <>
          <Search label="Search rules" isFolded />
          <Export
            file={`${draft.slug}-rules.csv`}
            items={saved.rules}
            columns={columnsOf(behindOf)}
            isPart={!isRead}
            isSmall
          />
        </>
      }
    >
      {rows.length === 0 ? (
        <NoRule slug={draft.slug} search={search} isRead={isRead} />
      ) : (
        <ul class="lines rule" aria-label="Rules">
          {shown.slice(0, count).map(draw)}
        </ul>
      )}
      {shown.length < rows.length ? (
        <footer>
          <Button onClick={() => setWhole(true)}>Show all {rows.length} rules</Button>
        </footer>
      ) : null}
    </Panel>
  );
}

/**
 * How many of `total` rows are drawn now: `size` more in each task, so that no task is long. Another `list` begins with the
 * first slice again.
 */
export function useSlices(total: number, list: string, size: number): number {
  const [drawn, setDrawn] = useState({ list, count: size });
  const count = drawn.list === list ? drawn.count : size;
  // Counts one slice beyond the end, so that a row that is added later is drawn at once.
  const isWhole = count >= total + size;
  useEffect(() => {
    if (isWhole) return undefined;
    const timer = setTimeout(() => setDrawn({ list, count: count + size }));
    return () => clearTimeout(timer);
  }, [list, count, isWhole]);
  return count;
}

/** Leads to the nodes that have the searched words: rules name groups more often than nodes. */
function NoRule({ slug, search, isRead }: { slug: string; search: string; isRead: boolean }) {
  if (search === "") return <Empty text="There is no rule, so no node reaches another." />;
  // The typed address may be in a network behind one of them.
  if (!isRead) return <Loading />;
  const words = encodeURIComponent(search);
  return (
    <Empty text="No rule has these words. Rules mostly name groups, not nodes.">
      <p>
        <a href={`${pathOf(slug, "nodes")}?search=${words}`}>Nodes with these words</a>: the page of each says
        what it may reach. <kbd>Ctrl K</kbd> finds nodes from every page.
      </p>
    </Empty>
  );
}

type RuleRowProps = {
  row: Row;
  faults: readonly string[];
  /** The networks behind nodes that it opens as well. */
  behind: readonly string[];
  isMarked: boolean;
  mayEdit: boolean;
  draft: Draft;
};

const marks = { same: undefined, new: "ins", changed: undefined, deleted: "del" } as const;

function RuleRow({ row: { rule, before, state }, faults, behind, isMarked, mayEdit, draft }: RuleRowProps) {
  const listItem = useMark(`${state} ${contentOf(rule)}`, state === "same");
  const more = behind.length === 0 ? "" : `and the networks behind ${behind.join("; ")}`;
  const about = [rule.description, more].filter(Boolean).join(" · ");
  return (
    <li ref={listItem} id={`rule-${rule.id}`} class={isMarked ? "marked" : state}>
      <span class="no">{rule.id > 0 ? rule.id : "+"}</span>
      <span class="say" title={sentenceOf(rule)}>
        <Sentence rule={rule} before={before} mark={marks[state]} />
        {about === "" && before === undefined ? null : (
          <span class="quiet cut" title={about}>
            <Description before={before ?? rule} after={rule} />
            {more === "" ? null : (
              <>
                {rule.description === "" ? "" : " · "}
                <bdi>{more}</bdi>
              </>
            )}
          </span>
        )}
      </span>
      <span class="group tight">
        <RowState state={state} />
        <RuleMenu rule={rule} state={state} mayEdit={mayEdit} draft={draft} />
      </span>
      {isAboutGone(rule) ? (
        <p class="limited">
          What it names is revoked or gone, and the next save deletes this rule, unless it is restored.
        </p>
      ) : null}
      {faults.map((sentence) => (
        <p class="is-bad" role="alert">
          {sentence}
        </p>
      ))}
    </li>
  );
}

/** Marks a row for a moment after others saved it with other words. Rows that a draft changes have their own sign. */
function useMark(words: string, isSaved: boolean) {
  const listItem = useRef<HTMLLIElement>(null);
  const lastWords = useRef(words);
  useEffect(() => {
    if (lastWords.current !== words && isSaved) flash(listItem.current);
    lastWords.current = words;
  }, [words]);
  return listItem;
}

const kinds = { new: "good", changed: undefined, deleted: "bad" } as const;

/** What the draft does with a rule or a test. */
export const RowState = ({ state }: { state: Row["state"] }) =>
  state === "same" ? null : <Pill kind={kinds[state]}>{state}</Pill>;

type RuleMenuProps = Pick<Row, "rule" | "state"> & Pick<RuleRowProps, "mayEdit" | "draft">;

function RuleMenu({ rule, state, mayEdit, draft }: RuleMenuProps) {
  const isSaved = rule.id > 0;
  const isGone = state === "deleted" && isAboutGone(rule);
  if (!isSaved && !mayEdit) return null;
  return (
    <Menu label={`${isSaved ? `Rule ${rule.id}` : "New rule"}: ${sentenceOf(rule)}`} isSmall>
      {!mayEdit || state === "deleted" ? null : (
        <button type="button" onClick={() => (draft.edited.value = rule)}>
          Edit
        </button>
      )}
      {!mayEdit || state !== "deleted" || isGone ? null : (
        <button type="button" onClick={() => edit(draft, (rules) => [...rules, rule])}>
          Put back
        </button>
      )}
      {isSaved ? (
        // A rule has no author: its events name the user.
        <a
          href={`${pathOf(draft.slug, "activity")}?subject=rule/${rule.id}`}
          title="Who made and changed this rule, and when"
        >
          History<span class="unseen"> of rule {rule.id}</span>
        </a>
      ) : null}
      {!mayEdit || state === "deleted" ? null : (
        <button
          type="button"
          class="danger"
          onClick={() => edit(draft, (rules) => rules.filter(({ id }) => id !== rule.id))}
        >
          Delete
        </button>
      )}
    </Menu>
  );
}

/** Marks the rule in the list, and leads to it. */
export function ShowRule({ id }: { id: number }) {
  const show = () => {
    setQuery({ rule: String(id), search: undefined });
    document.getElementById(`rule-${id}`)?.scrollIntoView({ block: "center" });
  };
  return (
    <button type="button" class="plain link" aria-label={`Show rule ${id}`} onClick={show}>
      Rule {id}
    </button>
  );
}
