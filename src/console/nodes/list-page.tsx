// The nodes of the organization: a table with filters, and beside it the node that is open.

import { nodesApi } from "../../api/nodes.ts";
import { namesApi } from "../../api/names.ts";
import { apiPath } from "../../api/endpoint.ts";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { aliasWords } from "../node/aliases.ts";
import type { ListedNode } from "./listed-nodes.ts";
import { mayAddOwn, mayAdminister, currentSlug } from "../contact/me.ts";
import { useMemberNames } from "../activity/member-names.ts";
import { useNodes } from "./node-list.ts";
import { countWords, updateEngine, vulnerabilitiesOf } from "./states.ts";
import { usePathCounts, type CountsByNode } from "./path-counts.ts";
import { registrationsPath } from "../joining/registrations.ts";
import { useOpen } from "../joining/use-open.ts";
import { useList, useTotal } from "../contact/resource.ts";
import { hrefWith, pathOf, query, setQuery } from "../frame/router.ts";
import { searchWords } from "../words/search.ts";
import type { Terminal } from "../words/terminal.ts";
import { now } from "../words/times.ts";
import { Button, Words } from "../ui/button.tsx";
import type { SignName } from "../ui/drawings.ts";
import { Choice } from "../ui/form.tsx";
import { Icon } from "../ui/icon.tsx";
import { Menu } from "../ui/menu.tsx";
import { isNarrow, isWide } from "../ui/narrow.ts";
import { ordered } from "../ui/lists/order.ts";
import { Page } from "../ui/page.tsx";
import { parts, usePart } from "../ui/lazy-parts.ts";
import { CopyCommand, Empty, Failure, Loading } from "../ui/parts.tsx";
import { Rows } from "../ui/lists/rows.tsx";
import { Chip } from "../ui/tag.tsx";
import { Export, Search } from "../ui/lists/tools.tsx";
import { allColumns, chosenColumns, ColumnChoice, isChosen } from "./columns.tsx";
import {
  chips,
  countShown,
  exportName,
  filtered,
  groupsOf,
  selectedIn,
  shows,
  type Selection,
} from "./filter.ts";
import { lastShown } from "../node/neighbours.ts";
import { Selected } from "./selected-actions.tsx";

/** A word of the address, such as `?show=away`; "" if it has none. */
const word = (name: string) => query.value.get(name) ?? "";

/** What a list puts into the frame that all lists of nodes have. */
export type Listed = {
  /** How many of all are shown. */
  count: string;
  /** Why the list has more nodes than other pages count. */
  besides?: string;
  isFiltered: boolean;
  tools: ComponentChildren;
  body: ComponentChildren;
  /** At the bottom. */
  bar?: ComponentChildren;
  terminal: Terminal;
};

/** The script of the panel beside the list is loaded after so long, because the list comes first. */
const asideDelayMs = 500;

/** The list of nodes that wait for approval. Its script is that of the pages about joining. */
const waitingList = (slug: string): Listed => ({
  count: "",
  isFiltered: false,
  tools: <Search label="Search nodes" placeholder="Name, group, address…" />,
  body: <WaitingPart />,
  terminal: { command: ["registration", "list", slug], call: ["GET", registrationsPath(slug)] },
});

function WaitingPart() {
  const Waiting = usePart(parts.joining)?.Waiting;
  return Waiting === undefined ? <Loading rows={4} /> : <Waiting />;
}

/** The page: nodes that are active, revoked, or wait, and beside them the one that is open. */
export function NodeList() {
  const slug = currentSlug.value ?? "";
  const isWaiting = word("show") === "waiting";
  const table = useTable(slug);
  const { count, besides, isFiltered, tools, body, bar, terminal } = isWaiting ? waitingList(slug) : table;
  const opened = isWaiting ? undefined : table.opened;
  const [mayLoadAside, setMayLoadAside] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setMayLoadAside(true), asideDelayMs);
    return () => clearTimeout(timer);
  }, []);
  // Loaded before a node is opened, so that it opens at once.
  const Aside = usePart(mayLoadAside || opened !== undefined ? parts.node : undefined)?.Aside;
  const add = (
    <Button kind="primary" icon="plus" href={pathOf(slug, "nodes", "add")}>
      <Words first="Add" rest="a node" />
    </Button>
  );
  return (
    <Page
      title="Nodes"
      pill={
        <span class={isFiltered ? "quiet" : "unseen"} role="status">
          {count}
        </span>
      }
      fact={isFiltered ? undefined : besides}
      terminal={terminal}
      actions={mayAdminister.value || mayAddOwn.value ? add : null}
      isWhole={true}
    >
      <div class={opened === undefined ? undefined : "beside"}>
        <div class="page">
          <div class="stackd">
            <div class="one-line">
              <Chips slug={slug} paths={table.paths} ownerName={table.ownerName} />
              <div class="group">{tools}</div>
            </div>
            {body}
          </div>
          {bar}
        </div>
        {opened === undefined || Aside === undefined ? null : (
          <Aside key={opened} id={opened} close={() => open(undefined)} />
        )}
      </div>
    </Page>
  );
}

/** Opens a node beside the list. */
const open = (id: number | undefined) => setQuery({ node: id === undefined ? undefined : `${id}` });

/** The id of the node that is open, from the address. In a small window none is: there a node has its page. Escape closes it. */
function useOpened(): number | undefined {
  const asked = word("node");
  const opened = /^\d{1,15}$/.test(asked) && isWide.value ? Number(asked) : undefined;
  useEffect(() => {
    if (opened === undefined) return undefined;
    const press = ({ key, target, defaultPrevented }: KeyboardEvent) => {
      const isElsewhere =
        document.querySelector("dialog[open], details.menu[open]") !== null ||
        (target instanceof HTMLInputElement && target.type === "search");
      if (key === "Escape" && !isElsewhere && !defaultPrevented) open(undefined);
    };
    // Captured before a menu closes itself: then the menu would be gone from the page, and this would close the node, too.
    addEventListener("keydown", press, { capture: true });
    return () => removeEventListener("keydown", press, { capture: true });
  }, [opened]);
  return opened;
}

/** The list of nodes, active or revoked, as the address filters and orders it. */
function useTable(
  slug: string,
): Listed & { opened: number | undefined; paths: CountsByNode; ownerName: string } {
  const isRevoked = word("show") === "revoked";
  const { data: nodes, total, isWhole, error } = useNodes(isRevoked);
  const opened = useOpened();
  const order = query.value.get("order") ?? "state";
  const { names, paths, aliases, every, drawn } = useColumns(slug, isRevoked, opened !== undefined);
  // Typing in the search filters what is in order already.
  const all = useMemo(() => ordered(nodes ?? [], every, order), [nodes, every, order]);
  const show = word("show");
  const group = word("group");
  const owner = word("owner");
  const search = word("search");
  const filter = { show, group, owner, words: searchWords(search) };
  const shown = useMemo(
    () => filtered(all, filter, Date.now(), paths, aliases),
    [all, show, group, owner, search, paths, aliases],
  );
  lastShown.ids = useMemo(() => shown.map(({ id }) => id), [shown]);
  const filterWords = [show, group, owner, search];
  const { selected, chosen, dropped, select } = useSelection(nodes ?? none, shown, filterWords.join("\n"));
  const ofRevoked = isRevoked ? { revoked: "true" as const } : {};
  const frame = {
    opened,
    paths,
    ownerName: names.get(Number(owner)) ?? `user ${owner}`,
    count: `${shown.length} of ${total}`,
    besides: isWhole
      ? countWords(all.length, all.filter(({ state, phone }) => state === "active" && phone == null).length)
      : "",
    isFiltered: filterWords.some((each) => each !== ""),
    terminal: {
      command: ["node", "list", slug, ...(isRevoked ? ["--revoked"] : [])],
      call: ["GET", apiPath(nodesApi.list, { slug }, ofRevoked)],
    } satisfies Terminal,
  };
  const tools = (
    <>
      <Search label="Search nodes" placeholder="Name, address, group…" />
      <Filters nodes={nodes ?? none} hasPaths={seesPaths(paths)} />
      {isNarrow.value ? null : (
        <>
          <ColumnChoice all={every} asked={word("columns")} />
          <Export
            file={exportName(slug, filter)}
            items={shown}
            isPart={!isWhole}
            columns={[...drawn, { title: "Known vulnerabilities", text: vulnerabilitiesOf }]}
          />
        </>
      )}
    </>
  );
  if (nodes === undefined) return { ...frame, tools, body: <Loading rows={16} error={error} /> };
  // Rows keep their places until the address changes, or a list that rows are made of arrived.
  const addressWords = ["show", "group", "owner", "search", "order", "columns"].map(word).join("\n");
  const held = [addressWords, isWhole, ...[paths, names, aliases].map(({ size }) => size > 0)].join();
  const body = (
    <>
      {isWhole || error === undefined ? null : <Failure error={error} />}
      {show === "relayed" ? (
        <p class="quiet">Some of their packets go through a relay: slower, and lost while it is away.</p>
      ) : null}
      {show === "vulnerable" ? (
        <p>
          On each machine: <CopyCommand command={updateEngine} />
        </p>
      ) : null}
      {shown.length === 0 ? (
        <Nothing isAny={nodes.length > 0} isRevoked={isRevoked} />
      ) : (
        <Rows
          label="Nodes"
          items={shown}
          columns={drawn}
          keyOf={({ id }: ListedNode) => id}
          linkOf={({ id }: ListedNode) => pathOf(slug, "nodes", id)}
          height={32}
          open={isWide.value ? ({ id }) => open(id) : undefined}
          opened={opened}
          order={order}
          held={held}
          isPart={!isWhole}
          setOrder={(next: string) => setQuery({ order: next === "state" ? undefined : next })}
          {...(mayAdminister.value ? { selected, select } : {})}
        />
      )}
    </>
  );
  const bar = mayAdminister.value ? (
    <Selected nodes={chosen} dropped={dropped} clear={() => select(new Set())} />
  ) : null;
  return { ...frame, tools, body, bar };
}

/** Administrators see all paths, members those of their own nodes: without any, the list has no column for them. */
const seesPaths = ({ size }: CountsByNode) => mayAdminister.value || size > 0;

/** The columns of the list (`every`, and those that are `drawn`), and what they are made of. */
function useColumns(slug: string, isRevoked: boolean, isBeside: boolean) {
  const names = useMemberNames(slug);
  const asked = word("columns");
  const paths = usePathCounts(slug);
  const asksNames = word("search") !== "" || isChosen("aliases", asked);
  const named = useList(asksNames ? apiPath(namesApi.list, { slug }, { page_size: "1000" }) : "", {
    isCalm: true,
  });
  const aliases = useMemo(() => aliasWords(named.data ?? []), [named.data]);
  const every = useMemo(
    () =>
      allColumns(names, { paths, aliases }, isRevoked).filter(
        ({ key }) => key !== "paths" || seesPaths(paths),
      ),
    [names, paths, aliases, isRevoked, mayAdminister.value],
  );
  const columns = chosenColumns(every, asked, isBeside);
  const keys = columns.map(({ key }) => key).join();
  // The same array while the columns are the same: rows are drawn anew with another one.
  const drawn = useMemo(() => columns, [every, keys]);
  return { names, paths, aliases, every, drawn };
}

const signs: Readonly<Record<string, SignName>> = {
  needs: "need",
  waiting: "wait",
  relayed: "part",
  away: "off",
  revoked: "gone",
};

type ChipsProps = { slug: string; paths: CountsByNode; ownerName: string };

/** The usual filters with their counts, and what else the address filters by. */
function Chips({ slug, paths, ownerName }: ChipsProps) {
  const { data: nodes = none, total } = useNodes();
  const waiting = useOpen(slug)?.length;
  const revoked = useTotal(apiPath(nodesApi.list, { slug }, { page_size: "1", revoked: "true" }));
  const counts = useMemo(
    () => new Map(shows.map(([key]) => [key as string, countShown(nodes, key, now.value, paths)])),
    [nodes, paths, now.value],
  );
  // These come from the control plane; the others are counted in the list.
  const totals: Readonly<Record<string, number | undefined>> = { "": total, waiting, revoked };
  const count = (key: string) => (Object.hasOwn(totals, key) ? totals[key] : counts.get(key));
  const asked = word("show");
  const shown = chips.filter(
    ([key]) => (key !== "waiting" || mayAdminister.value) && (key !== "relayed" || seesPaths(paths)),
  );
  /** A filter of the menu, which has no chip of its own. */
  const fromMenu = shows.find(([key]) => key === asked && !chips.some(([each]) => each === key));
  return (
    <div class="group tight scroll-x">
      {shown.map(([key, words]) => (
        <Chip
          key={key}
          sign={signs[key]}
          words={words}
          count={count(key)}
          isOn={asked === key}
          href={hrefWith({ show: key, node: undefined })}
        />
      ))}
      {fromMenu === undefined ? null : <ActiveFilter word="show" text={fromMenu[1]} count={count(asked)} />}
      {word("group") === "" ? null : <ActiveFilter word="group" text={word("group")} />}
      {word("owner") === "" ? null : <ActiveFilter word="owner" text={ownerName} />}
    </div>
  );
}

/** A filter that the address has, and that a press takes away. */
const ActiveFilter = ({
  word: key,
  text,
  count,
}: {
  word: string;
  text: string;
  count?: number | undefined;
}) => (
  <a class="chip" href={hrefWith({ [key]: undefined })} aria-current="true">
    <bdi>{text}</bdi>
    {count === undefined ? null : <b>{count}</b>}
    <Icon name="close" />
    <span class="unseen">: remove this filter</span>
  </a>
);

type FiltersProps = { nodes: readonly ListedNode[]; hasPaths: boolean };

function Filters({ nodes, hasPaths }: FiltersProps) {
  const groups = useMemo(() => groupsOf(nodes), [nodes]);
  const group = word("group");
  const all = group === "" || groups.includes(group) ? groups : [group, ...groups];
  const offered = shows.filter(([key]) => (key !== "broken" && key !== "relayed") || hasPaths);
  return (
    <Menu label="Filter" icon="filter" isPlain={true}>
      <Choice
        label="Which nodes"
        value={word("show")}
        choices={offered}
        set={(show) => setQuery({ show, node: undefined })}
      />
      <Choice
        label="Group"
        value={group}
        choices={[["", "All groups"], ...all.map((name) => [name, name] as const)]}
        set={(name) => setQuery({ group: name })}
      />
      {mayAdminister.value || mayAddOwn.value ? (
        <a href={pathOf(currentSlug.value ?? "", "phones")}>Phones, and how to import them</a>
      ) : null}
    </Menu>
  );
}

type NothingProps = { isAny: boolean; isRevoked: boolean };

/** An empty list. If it is a filter that leaves nothing, offers the other lists. */
function Nothing({ isAny, isRevoked }: NothingProps) {
  if (!isAny)
    return (
      <Empty
        text={
          isRevoked
            ? "No node is revoked."
            : "There is no node yet. Adding one gives you a line to paste on the machine."
        }
      />
    );
  return (
    <Empty text="No node is like that. The search looks at names, aliases, addresses, groups, engines and systems.">
      <p>
        Not here: <a href={`?show=revoked&search=${encodeURIComponent(word("search"))}`}>revoked nodes</a>
        {mayAdminister.value && (
          <>
            , <a href="?show=waiting">those that wait, or have not come back</a>
          </>
        )}
      </p>
    </Empty>
  );
}

const none: readonly ListedNode[] = [];

/** Nodes that another filter hides are no longer selected; `dropped` counts those since the last choice. */
function useSelection(nodes: readonly ListedNode[], shown: readonly ListedNode[], filter: string) {
  const [{ selected, dropped }, setState] = useState<{ selected: Selection; dropped: number }>({
    selected: new Set(),
    dropped: 0,
  });
  const chosen = useMemo(() => selectedIn(selected, shown), [selected, shown]);
  useEffect(() => {
    const hidden = selectedIn(selected, nodes).length - chosen.length;
    if (hidden > 0) setState({ selected: new Set(chosen.map(({ id }) => id)), dropped: dropped + hidden });
  }, [filter]);
  return { selected, chosen, dropped, select: (next: Selection) => setState({ selected: next, dropped: 0 }) };
}
