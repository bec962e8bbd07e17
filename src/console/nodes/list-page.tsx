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
import { isRed } from "../needs/need-kinds.ts";
import { useCut } from "../needs/use-needs.ts";
import { useList } from "../contact/resource.ts";
import { pathOf, query, setQuery } from "../frame/router.ts";
import { searchWords } from "../words/search.ts";
import type { Terminal } from "../words/terminal.ts";
import { Button, Words } from "../ui/button.tsx";
import { isNarrow, isWide } from "../ui/narrow.ts";
import { ordered } from "../ui/lists/order.ts";
import { Page } from "../ui/page.tsx";
import { parts, usePart } from "../ui/lazy-parts.ts";
import { CopyCommand, Failure, Loading } from "../ui/parts.tsx";
import { Rows } from "../ui/lists/rows.tsx";
import { Export, Search } from "../ui/lists/tools.tsx";
import { allColumns, chosenColumns, ColumnChoice, isChosen } from "./columns.tsx";
import { exportName, filtered, selectedIn, type Selection } from "./filter.ts";
import { lastShown } from "../node/neighbours.ts";
import { Selected } from "./selected-actions.tsx";
import { addressWord, seesPaths, Chips, Filters, Nothing } from "./list-filters.tsx";

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
  const isWaiting = addressWord("show") === "waiting";
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
          <Aside key={opened} id={opened} close={() => openBeside(undefined)} />
        )}
      </div>
    </Page>
  );
}

/** Opens a node beside the list. */
const openBeside = (id: number | undefined) => setQuery({ node: id === undefined ? undefined : `${id}` });

/** The id of the node that is open, from the address. In a small window none is: there a node has its page. Escape closes it. */
function useOpened(): number | undefined {
  const asked = addressWord("node");
  const opened = /^\d{1,15}$/.test(asked) && isWide.value ? Number(asked) : undefined;
  useEffect(() => {
    if (opened === undefined) return undefined;
    const press = ({ key, target, defaultPrevented }: KeyboardEvent) => {
      const isElsewhere =
        document.querySelector("dialog[open], details.menu[open]") !== null ||
        (target instanceof HTMLInputElement && target.type === "search");
      if (key === "Escape" && !isElsewhere && !defaultPrevented) openBeside(undefined);
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
  const isRevoked = addressWord("show") === "revoked";
  const { data: nodes, total, isWhole, error } = useNodes(isRevoked);
  const opened = useOpened();
  const order = query.value.get("order") ?? "state";
  const { names, paths, aliases, cut, every, drawn } = useColumns(slug, isRevoked, opened !== undefined);
  // Typing in the search filters what is in order already.
  const all = useMemo(() => ordered(nodes ?? [], every, order), [nodes, every, order]);
  const show = addressWord("show");
  const group = addressWord("group");
  const owner = addressWord("owner");
  const search = addressWord("search");
  const filter = { show, group, owner, words: searchWords(search) };
  const filterKey = [show, group, owner, search].join("\n");
  const shown = useMemo(
    () => filtered(all, filter, Date.now(), paths, aliases),
    [all, filterKey, paths, aliases],
  );
  // For the page of a node: its keys j and k go through the nodes in the order of this list.
  lastShown.ids = useMemo(() => shown.map(({ id }) => id), [shown]);
  const { selected, chosen, dropped, select } = useSelection(nodes ?? none, shown, filterKey);
  const ofRevoked = isRevoked ? { revoked: "true" as const } : {};
  const frame = {
    opened,
    paths,
    ownerName: names.get(Number(owner)) ?? `user ${owner}`,
    count: `${shown.length} of ${total}`,
    besides: isWhole
      ? countWords(all.length, all.filter(({ state, phone }) => state === "active" && phone == null).length)
      : "",
    isFiltered: filterKey.trim() !== "",
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
          <ColumnChoice all={every} asked={addressWord("columns")} />
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
  const sizes = [paths, names, aliases].map(({ size }) => size > 0);
  const held = [filterKey, order, addressWord("columns"), isWhole, cut, sizes].join("\n");
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
          open={isWide.value ? ({ id }) => openBeside(id) : undefined}
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

/** The columns of the list (`every`, and those that are `drawn`), and what they are made of. */
function useColumns(slug: string, isRevoked: boolean, isBeside: boolean) {
  const names = useMemberNames(slug);
  const asked = addressWord("columns");
  const paths = usePathCounts(slug);
  const drawsAliases = isChosen("aliases", asked);
  const asksNames = drawsAliases || addressWord("search") !== "";
  const named = useList(asksNames ? apiPath(namesApi.list, { slug }, { page_size: "1000" }) : "", {
    isCalm: true,
  });
  const aliases = useMemo(() => aliasWords(named.data ?? []), [named.data]);
  // A search reads aliases, too: without their column, it needs no other columns, so that nodes are not put in order again.
  const drawnAliases = drawsAliases ? aliases : noAliases;
  // How many paths depend on a relay that is away, as 0, or 1 for any: rows are drawn anew only if the color of relays changes.
  const cut = Number(isRed("relay", useCut(slug)));
  const every = useMemo(
    () =>
      allColumns(names, { paths, aliases: drawnAliases, cut }, isRevoked).filter(
        ({ key }) => key !== "paths" || seesPaths(paths),
      ),
    [names, paths, drawnAliases, cut, isRevoked, mayAdminister.value],
  );
  const columns = chosenColumns(every, asked, isBeside);
  const keys = columns.map(({ key }) => key).join();
  // The same array while the columns are the same: rows are drawn anew with another one.
  const drawn = useMemo(() => columns, [every, keys]);
  return { names, paths, aliases, cut, every, drawn };
}

const none: readonly ListedNode[] = [];
const noAliases = aliasWords([]);

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
