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
import {
  contentOf,
  endsOf,
  faultsByRule,
  isAboutGone,
  rowsOf,
  rulesLeft,
  sentenceOf,
  type Row,
  type Rule,
} from "./rules.ts";

const maxShown = 200;

/** All texts of a row, for the search. */
function wordsOf({ rule, before, state }: Row, behind: readonly string[]): string {
  const versions = [rule, ...(before === undefined ? [] : [before])];
  const texts = versions.flatMap((each) => [sentenceOf(each), each.description]);
  return [rule.id, ...texts, ...behind, state === "same" ? "" : state].join(" ");
}

/** The networks that a rule opens, too: at most so many nodes with them. */
type Behind = (rule: Rule, max?: number) => readonly string[];

/** `isRead`: the nodes were read, or cannot be. */
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

/** The rules after saving, of which none that is about something gone is left. */
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
  const { behind, isRead } = useBehind();
  const all = rowsOf(saved.rules, rules);
  // The row names the first networks only; a search looks at all.
  const rows = search === "" ? all : all.filter((row) => isFound(wordsOf(row, behind(row.rule, Infinity))));
  // Edited rules are always shown.
  const shown = isWhole ? rows : rows.filter(({ state }, at) => at < maxShown || state !== "same");
  const count = useSlices(shown.length, search, 40);
  const marked = query.value.get("rule");
  // A row that stays the same is the same object, which Preact then does not look at: there may be two hundred.
  const drawn = useRef(new Map<string, VNode>());
  const draw = (row: Row): VNode => {
    const { rule, before, state } = row;
    const about = {
      faults: faults.get(rule) ?? [],
      behind: behind(rule),
      isMarked: marked === String(rule.id),
      mayEdit,
    };
    const key = JSON.stringify([draft.slug, state, rule, before, about]);
    const known = drawn.current.get(key);
    if (known !== undefined) return known;
    const made = <RuleRow key={rule.id} row={row} draft={draft} {...about} />;
    drawn.current.set(key, made);
    return made;
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
            columns={columnsOf(behind)}
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
 * How many rows are drawn now: `size` more in each task, so that none is long. `of`: another list begins anew.
 */
export function useSlices(total: number, of: string, size: number): number {
  const [made, setMade] = useState({ of, count: size });
  const count = made.of === of ? made.count : size;
  // One slice ahead: a row that is added is there at once.
  const isWhole = count >= total + size;
  useEffect(() => {
    if (isWhole) return undefined;
    const timer = setTimeout(() => setMade({ of, count: count + size }));
    return () => clearTimeout(timer);
  }, [of, count, isWhole]);
  return count;
}

/** Rules name groups more often than nodes. */
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
  /** The networks that it opens, too. */
  behind: readonly string[];
  isMarked: boolean;
  mayEdit: boolean;
  draft: Draft;
};

const marks = { same: undefined, new: "ins", changed: undefined, deleted: "del" } as const;

function RuleRow({ row: { rule, before, state }, faults, behind, isMarked, mayEdit, draft }: RuleRowProps) {
  const place = useMark(`${state} ${contentOf(rule)}`, state === "same");
  const more = behind.length === 0 ? "" : `and the networks behind ${behind.join("; ")}`;
  const about = [rule.description, more].filter(Boolean).join(" · ");
  return (
    <li ref={place} id={`rule-${rule.id}`} class={isMarked ? "marked" : state}>
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

/** Marks a row that was saved with other words, for a moment. What a draft changes has its sign. */
function useMark(words: string, isSaved: boolean) {
  const place = useRef<HTMLLIElement>(null);
  const former = useRef(words);
  useEffect(() => {
    if (former.current !== words && isSaved) flash(place.current);
    former.current = words;
  }, [words]);
  return place;
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
