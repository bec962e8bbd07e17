// All machines of the organization.

import { nodesApi } from "../../api/nodes.ts";
import { namesApi } from "../../api/names.ts";
import { apiPath } from "../../api/endpoint.ts";
import { useEffect, useMemo, useState } from "preact/hooks";
import { aliasWords } from "../aliases.ts";
import { exportName, filtered, groupsOf, selectedIn, shows, type Selection } from "../machine-filter.ts";
import type { Machine } from "../machines.ts";
import { mayAddOwn, mayAdminister, slug } from "../me.ts";
import { useMemberNames } from "../member-names.ts";
import { useNodes } from "../node-list.ts";
import { vulnerabilitiesOf } from "../nodes.ts";
import { usePathCounts, type CountsByNode } from "../path-counts.ts";
import { registrationsPath } from "../registrations.ts";
import { useList } from "../resource.ts";
import { pathOf, query, setQuery } from "../router.ts";
import { ordered } from "../ui/order.ts";
import { Empty, Failure, FromTerminal, Loading, valueOf } from "../ui/parts.tsx";
import { Rows } from "../ui/rows.tsx";
import { searchWords } from "../search.ts";
import { Export, Search } from "../ui/tools.tsx";
import { allColumns, chosenColumns, ColumnChoice, isChosen } from "./machine-columns.tsx";
import { Selected } from "./selected-machines.tsx";

const word = (name: string) => query.value.get(name) ?? "";

export function Machines() {
  const own = slug.value ?? "";
  const isRevoked = word("show") === "revoked";
  const { data: nodes, total, isWhole, error } = useNodes(isRevoked);
  const order = query.value.get("order") ?? "name";
  const { names, paths, aliases, every, drawn } = useColumns(own, isRevoked);
  // Typing in the search filters what is in order already.
  const all = useMemo(() => ordered(nodes ?? [], every, order), [nodes, every, order]);
  const [show, group, owner, search] = ["show", "group", "owner", "search"].map(word) as [
    string,
    string,
    string,
    string,
  ];
  const filter = { show, group, owner, words: searchWords(search) };
  const shown = useMemo(
    () => filtered(all, filter, Date.now(), paths, aliases),
    [all, show, group, owner, search, paths, aliases],
  );
  const { selected, chosen, dropped, select } = useSelection(
    nodes ?? none,
    shown,
    [show, group, owner, search].join("\n"),
  );
  if (nodes === undefined)
    return (
      <>
        <h1>Machines</h1>
        {error === undefined ? <Loading /> : <Failure error={error} />}
      </>
    );
  const clear = () => select(new Set());
  return (
    <>
      <div class="title">
        <h1>Machines</h1>
        {mayAdminister.value && <Approval own={own} />}
        {(mayAdminister.value || mayAddOwn.value) && (
          <a class="button primary" href={pathOf(own, "machines", "add")}>
            Add a machine
          </a>
        )}
      </div>
      <div class="tools">
        <Search label="Search machines" />
        <Filters
          nodes={nodes}
          hasPaths={seesPaths(paths)}
          ownerName={names.get(Number(owner)) ?? `user ${owner}`}
          clear={clear}
        />
        <span class="quiet" role="status">
          {shown.length} of {total}
        </span>
        <ColumnChoice all={every} chosen={drawn} />
        <Export
          file={exportName(own, filter)}
          items={shown}
          isPart={!isWhole}
          columns={[...drawn, { title: "Known vulnerabilities", text: vulnerabilitiesOf }]}
        />
      </div>
      {isWhole || error === undefined ? null : <Failure error={error} />}
      {mayAdminister.value ? <Selected machines={chosen} dropped={dropped} clear={clear} /> : null}
      {shown.length === 0 ? (
        <Nothing isAny={nodes.length > 0} isRevoked={isRevoked} />
      ) : (
        <Rows
          label="Machines"
          items={shown}
          columns={drawn}
          keyOf={({ id }: Machine) => id}
          linkOf={({ id }: Machine) => pathOf(own, "machines", id)}
          order={order}
          held={[query.value, isWhole, ...[paths, names, aliases].map(({ size }) => size > 0)].join()}
          isPart={!isWhole}
          setOrder={(next: string) => setQuery({ order: next === "name" ? undefined : next })}
          {...(mayAdminister.value ? { selected, select } : {})}
        />
      )}
      <FromTerminal
        command={["node", "list", own, ...(isRevoked ? ["--revoked"] : [])]}
        call={["GET", apiPath(nodesApi.list, { slug: own }, isRevoked ? { revoked: "true" } : {})]}
      />
    </>
  );
}

/** Members are told of the paths of their own machines. */
const seesPaths = ({ size }: CountsByNode) => mayAdminister.value || size > 0;

/** The columns of the list, all and those that are shown, and what they are made of. */
function useColumns(own: string, isRevoked: boolean) {
  const names = useMemberNames(own);
  const asked = word("columns");
  const paths = usePathCounts(own);
  const asksNames = word("search") !== "" || isChosen("aliases", asked);
  const named = useList(asksNames ? apiPath(namesApi.list, { slug: own }, { page_size: "1000" }) : "", {
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
  const columns = chosenColumns(every, asked);
  const keys = columns.map(({ key }) => key).join();
  const drawn = useMemo(() => columns, [every, keys]);
  return { names, paths, aliases, every, drawn };
}

/** Shows how many machines wait. */
function Approval({ own }: { own: string }) {
  const count = useList(registrationsPath(own)).data?.length ?? 0;
  return (
    <a class="button" href={pathOf(own, "machines", "waiting")}>
      Approval{count === 0 ? "" : ` (${count})`}
    </a>
  );
}

type NothingProps = { isAny: boolean; isRevoked: boolean };

/** Offers the other list if nothing was found. */
function Nothing({ isAny, isRevoked }: NothingProps) {
  if (!isAny)
    return (
      <Empty
        text={
          isRevoked
            ? "No machine is revoked."
            : "There is no machine yet. Adding one gives you a line to paste on it."
        }
      />
    );
  return (
    <Empty text="No machine is like that: the search looks at names, aliases, addresses, groups, engines and systems.">
      Not here: <a href={`?show=revoked&search=${encodeURIComponent(word("search"))}`}>revoked machines</a>
      {mayAdminister.value && (
        <>
          ,{" "}
          <a href={pathOf(slug.value ?? "", "machines", "waiting")}>those that wait, or have not come back</a>
        </>
      )}
    </Empty>
  );
}

const none: readonly Machine[] = [];

/** Machines that another filter hides are no longer selected; `dropped` counts those since the last choice. */
function useSelection(nodes: readonly Machine[], shown: readonly Machine[], filter: string) {
  const [{ selected, dropped }, set] = useState<{ selected: Selection; dropped: number }>({
    selected: new Set(),
    dropped: 0,
  });
  const chosen = useMemo(() => selectedIn(selected, shown), [selected, shown]);
  useEffect(() => {
    const hidden = selectedIn(selected, nodes).length - chosen.length;
    if (hidden > 0) set({ selected: new Set(chosen.map(({ id }) => id)), dropped: dropped + hidden });
  }, [filter]);
  return { selected, chosen, dropped, select: (next: Selection) => set({ selected: next, dropped: 0 }) };
}

type FiltersProps = { nodes: readonly Machine[]; hasPaths: boolean; ownerName: string; clear(): void };

function Filters({ nodes, hasPaths, ownerName, clear }: FiltersProps) {
  const groups = useMemo(() => groupsOf(nodes), [nodes]);
  const group = word("group");
  const set = (name: string) => (event: Event) => {
    clear();
    setQuery({ [name]: valueOf(event) });
  };
  return (
    <>
      <select aria-label="Which machines" class="short" value={word("show")} onChange={set("show")}>
        {shows.map(([key, title]) =>
          (key === "broken" || key === "relayed") && !hasPaths ? null : (
            <option key={key} value={key}>
              {title}
            </option>
          ),
        )}
      </select>
      <select aria-label="Group" class="short" value={group} onChange={set("group")}>
        <option value="">All groups</option>
        {(group === "" || groups.includes(group) ? groups : [group, ...groups]).map((name) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
      {word("owner") === "" ? null : (
        <button type="button" onClick={() => setQuery({ owner: undefined })}>
          <bdi>{ownerName}</bdi> ✕<span class="unseen">: show machines of all owners</span>
        </button>
      )}
    </>
  );
}
