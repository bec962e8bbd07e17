// The facts of the map as tables: pairs of groups, and the paths of nodes.

import type { ListedNode } from "../nodes/listed-nodes.ts";
import { mayAdminister, currentSlug } from "../contact/me.ts";
import { pathOf, query, setQuery } from "../frame/router.ts";
import { searchWords } from "../words/search.ts";
import { utc } from "../words/times.ts";
import { Sign } from "../ui/icon.tsx";
import { Panel } from "../ui/page.tsx";
import { moment, signOf, State } from "../ui/parts.tsx";
import { isNarrow } from "../ui/narrow.ts";
import { ordered } from "../ui/lists/order.ts";
import { Rows, type Column } from "../ui/lists/rows.tsx";
import { Export, Search, searched } from "../ui/lists/tools.tsx";
import { isCurrent, rank, wordsOf, type Edge } from "./node-paths.ts";
import { groupWord, pairKey, pairName, pathsIn, type Pair } from "./groups.ts";
import { msWords } from "../words/numbers.ts";

const pathStates = { direct: "online", relayed: "relayed", broken: "attention" } as const;

/** `from` and `to`: ids of nodes. `ms`: the round trip; null if it is not known. */
type Row = {
  from: number;
  fromName: string;
  to: number;
  toName: string;
  kind: Edge["kind"];
  ms: number | null;
};

/** The paths of nodes beside a drawing. */
export const PathRows = ({ caption, rows }: { caption: string; rows: readonly Row[] }) => (
  <table class="t" aria-label={caption}>
    <tbody>
      {rows.map(({ from, fromName, to, toName, kind, ms }) => (
        <tr key={`${from} ${to}`}>
          <td class="sign">
            <Sign name={signOf[pathStates[kind]]} />
            <span class="unseen">{kind}</span>
          </td>
          <td>{nodeLink(from, fromName)}</td>
          <td>{nodeLink(to, toName)}</td>
          <td class={kind === "broken" ? "num is-bad" : "num"}>
            {kind === "broken" || ms === null ? kind : `${msWords(ms)} ms`}
          </td>
        </tr>
      ))}
    </tbody>
  </table>
);

/** Why a list of paths is empty: none of the reasons is a fault. */
export const noPathsText = () =>
  `${mayAdminister.value ? "No node" : "None of yours"} has reported a path: no tunnel, engines older than 1.12, or reports are switched off.`;

/** The name of a node, which leads to its page. */
export const nodeLink = (id: number, name: string) => (
  <a class="name" href={pathOf(currentSlug.value ?? "", "nodes", id)} title={name}>
    <bdi>{name}</bdi>
  </a>
);

type SearchedTableProps<T> = {
  label: string;
  items: readonly T[];
  columns: readonly Column<T>[];
  keyOf(item: T): string;
  /** The order if the address names none: the key of a column, with "-" before it for the other way round. */
  usualOrder: string;
  file: string;
  title: string;
  /** The parameters of the address for search and order; a page may have two tables. */
  parameters?: { search: string; order: string };
};

const usualParameters = { search: "search", order: "order" };

/** A panel with a table that can be searched, ordered and exported. */
function SearchedTable<T>({
  label,
  items,
  columns,
  keyOf,
  usualOrder,
  file,
  title,
  parameters = usualParameters,
}: SearchedTableProps<T>) {
  const order = query.value.get(parameters.order) ?? usualOrder;
  const isFound = searched(parameters.search);
  const shown = ordered(
    items.filter((item) => isFound(columns.map(({ text }) => text(item)).join(" "))),
    columns,
    order,
  );
  return (
    <Panel
      title={title}
      actions={
        <>
          <span class="w240">
            <Search label={`Search ${label.toLowerCase()}`} name={parameters.search} />
          </span>
          <Export file={file} items={shown} columns={columns} />
        </>
      }
    >
      {items.length === 0 ? (
        <p class="in quiet">{noPathsText()}</p>
      ) : (
        <Rows
          label={label}
          items={shown}
          columns={columns}
          keyOf={keyOf}
          order={order}
          // Rows keep their places while their values change. Another search or order places them anew.
          held={`${query.value}`}
          setOrder={(next: string) => setQuery({ [parameters.order]: next })}
          isTitled={columns.length > 4}
          height={32}
        />
      )}
    </Panel>
  );
}

/** The paths of nodes. The node that is searched stands first, whichever end it is. */
export function PathsTable({
  slug,
  nodes,
  edges,
}: {
  slug: string;
  nodes: readonly ListedNode[];
  edges: readonly Edge[];
}) {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const nameOf = (id: number) => byId.get(id)?.name ?? "";
  const [searchedWord = ""] = searchWords(query.value.get("search") ?? "");
  const isSearched = (id: number) => nameOf(id).toLowerCase().includes(searchedWord);
  const nodeColumn = (key: "from" | "to", title: string): Column<Edge> => ({
    key,
    title,
    width: 3,
    text: (edge) => nameOf(edge[key]),
    cell: (edge) => nodeLink(edge[key], nameOf(edge[key])),
    isNatural: true,
  });
  const columns: readonly Column<Edge>[] = [
    nodeColumn("from", "Node"),
    nodeColumn("to", "Peer"),
    {
      key: "path",
      title: "Path",
      width: 3,
      text: (edge) => wordsOf(edge, utc),
      cell(edge) {
        const { kind, oldAt } = edge;
        const word = wordsOf({ ...edge, rttMs: undefined, oldAt: undefined }, utc);
        if (oldAt === undefined) return State({ name: pathStates[kind], word });
        const oldWord = (
          <>
            {word}, as reported {moment(oldAt)}
          </>
        );
        return State({ name: "away", word: oldWord });
      },
      compare: (a, b) => rank[b.kind] - rank[a.kind],
      isEmpty: (edge) => !isCurrent(edge),
    },
    {
      key: "time",
      title: "Round trip",
      width: 2,
      isNumber: true,
      text: ({ rttMs, oldAt }) => (rttMs === undefined || oldAt !== undefined ? "" : `${rttMs}`),
      cell: ({ rttMs, oldAt }) => (rttMs === undefined || oldAt !== undefined ? "-" : `${msWords(rttMs)} ms`),
      compare: (a, b) => (a.rttMs ?? -1) - (b.rttMs ?? -1),
      isRestless: true,
    },
  ];
  const turned = edges.map((edge) =>
    isSearched(edge.from) || !isSearched(edge.to) ? edge : { ...edge, from: edge.to, to: edge.from },
  );
  return (
    <SearchedTable
      label="Paths"
      title="Paths"
      items={turned}
      columns={columns}
      keyOf={({ from, to, kind }) => `${Math.min(from, to)} ${Math.max(from, to)} ${kind}`}
      usualOrder="path"
      file={`${slug}-paths.csv`}
    />
  );
}

/** The pairs of groups, each with all that a band or a cell says. */
export function PairsTable({
  slug,
  pairs,
  linkTo,
}: {
  slug: string;
  pairs: readonly Pair[];
  linkTo(pair: Pair): string;
}) {
  const numberColumn = (
    key: string,
    title: string,
    valueOf: (pair: Pair) => number | null,
  ): Column<Pair> => ({
    key,
    title,
    width: 1,
    isNumber: true,
    text: (pair) => `${valueOf(pair) ?? ""}`,
    cell: (pair) => `${valueOf(pair) ?? "-"}`,
    compare: (a, b) => (valueOf(a) ?? 0) - (valueOf(b) ?? 0),
    isEmpty: (pair) => valueOf(pair) === null,
    isRestless: true,
  });
  const columns: readonly Column<Pair>[] = [
    {
      key: "groups",
      title: "Groups",
      width: 3,
      text: ({ from, to }) => `${groupWord(from)} ${groupWord(to)}`,
      cell: (pair) => (
        <a class="name" href={linkTo(pair)}>
          <bdi>{pairName(pair)}</bdi>
        </a>
      ),
      isNatural: true,
    },
    numberColumn("paths", "Paths", pathsIn),
    numberColumn("direct", "Direct", ({ direct }) => direct),
    numberColumn("relayed", "Relayed", ({ relayed }) => relayed),
    {
      ...numberColumn("broken", "Broken", ({ broken }) => broken),
      cell: ({ broken }) => (broken === 0 ? "0" : State({ name: "attention", word: `${broken}` })),
    },
    numberColumn("median", "Median, ms", ({ rtt_ms_median: median }) =>
      median === null ? null : Number(msWords(median)),
    ),
    numberColumn("slow", "95 of 100, ms", ({ rtt_ms_95: slow }) =>
      slow === null ? null : Number(msWords(slow)),
    ),
  ];
  return (
    <SearchedTable
      label="Pairs of groups"
      title="Between groups"
      items={pairs.filter((pair) => pathsIn(pair) > 0)}
      columns={isNarrow.value ? columns.filter(({ key }) => key !== "direct" && key !== "slow") : columns}
      keyOf={({ from, to }) => pairKey(from, to)}
      usualOrder="-broken"
      file={`${slug}-groups.csv`}
      parameters={{ search: "groups", order: "by" }}
    />
  );
}
