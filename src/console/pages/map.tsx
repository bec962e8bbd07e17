// The map: which paths carry traffic, and the same facts as a table.

import { pathsApi } from "../../api/paths.ts";
import { apiPath } from "../../api/endpoint.ts";
import "../core.ts";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError, ask } from "../api.ts";
import { graphOf, maxDots, type Dot, type Edge, type Graph, type Path } from "../map/graph.ts";
import { Drawing, wordsOf } from "../map/drawing.tsx";
import { placesOf, type Place } from "../map/layout.ts";
import { mayAdminister, slug } from "../me.ts";
import { shownGroups } from "../../protocol/owner-group.ts";
import { useNodes } from "../node-list.ts";
import { pathOf, query, setQuery } from "../router.ts";
import { searchWords } from "../search.ts";
import { utc, whileSeen } from "../times.ts";
import { Empty, Failure, FromTerminal, Loading, moment, State, valueOf } from "../ui/parts.tsx";
import { ordered } from "../ui/order.ts";
import { Rows, type Column } from "../ui/rows.tsx";
import { Export, Search, searched } from "../ui/tools.tsx";

/** Paths change without an event of the audit log. */
const readEveryMs = 15_000;
const pageSize = 1000;
const maxPages = 20;

type Read = { paths: readonly Path[]; total: number } | undefined;

/** The last answer, shown at once after going back. */
let kept: { own: string; read: Read } | undefined;

/** Asked for while the pointer was on the link to the page. */
let ahead: { own: string; at: number; answer: Promise<Read> } | undefined;

/** Begins to read the paths of the organization before the page is shown. */
export function readPathsAhead(): void {
  const own = slug.peek();
  if (own === undefined) return;
  const answer = readPaths(own);
  ahead = { own, at: Date.now(), answer };
  // Ignore the failure: the page reads again, and reports it.
  answer.catch(() => {
    ahead = undefined;
  });
}

/** A preloaded answer is used once, while it is fresh. */
function takeAhead(own: string): Promise<Read> | undefined {
  const taken = ahead;
  ahead = undefined;
  return taken?.own === own && Date.now() - taken.at < readEveryMs ? taken.answer : undefined;
}

/** The paths of the organization, at most 20,000, current while the page is shown. */
function usePaths(own: string): { read: Read; error: ApiError | undefined } {
  const [read, setRead] = useState<Read>(kept?.own === own ? kept.read : undefined);
  const [error, fail] = useState<ApiError | undefined>(undefined);
  useEffect(() => {
    const over = new AbortController();
    const look = async () => {
      try {
        const read = await (takeAhead(own) ?? readPaths(own, over.signal));
        if (over.signal.aborted) return;
        kept = { own, read };
        setRead(read);
        fail(undefined);
      } catch (failure) {
        if (over.signal.aborted) return;
        if (!(failure instanceof ApiError)) throw failure;
        fail(failure);
      }
    };
    const end = whileSeen(look, readEveryMs);
    return () => {
      end();
      over.abort();
    };
  }, [own]);
  return { read, error };
}

async function readPaths(own: string, signal?: AbortSignal): Promise<Read> {
  const paths: Path[] = [];
  for (let page = 1; page <= maxPages; page++) {
    const asked = { page_size: String(pageSize), page: String(page) };
    const where = apiPath(pathsApi.list, { slug: own }, asked);
    const { data, headers } = await ask("GET", where, signal && { signal });
    paths.push(...data);
    const total = Number(headers.get("x-total-count"));
    if (headers.get("link")?.includes('rel="next"') !== true || page === maxPages) return { paths, total };
  }
  return undefined;
}

function usePlaces(graph: Graph | undefined): ReadonlyMap<string, Place> | undefined {
  const [places, place] = useState<ReadonlyMap<string, Place> | undefined>(undefined);
  const last = useRef<ReadonlyMap<string, Place>>(new Map());
  // Machines check in all the time: a layout goes on as long as the dots are the same.
  const dots = graph?.dots.map(({ key }) => key).join();
  useEffect(() => {
    if (graph === undefined) return undefined;
    const over = new AbortController();
    void placesOf(graph, last.current, over.signal).then((found) => {
      if (found === undefined) return;
      last.current = found;
      place(found);
    });
    return () => over.abort();
  }, [dots]);
  return places;
}

export function MapPage() {
  const own = slug.value ?? "";
  const { data: nodes, error: nodesError } = useNodes();
  const { read, error: pathsError } = usePaths(own);
  const group = query.value.get("group") ?? "";
  const graph = useMemo(
    () => (nodes === undefined || read === undefined ? undefined : graphOf(nodes, read.paths, group)),
    [nodes, read, group],
  );
  const places = usePlaces(graph);
  const error = nodesError ?? pathsError;
  // Without the places of the dots, the table would stand elsewhere.
  if (graph === undefined || nodes === undefined || read === undefined || places === undefined)
    return (
      <>
        <h1>Map</h1>
        {error === undefined ? <Loading rows={12} /> : <Failure error={error} />}
      </>
    );
  if (graph.dots.length === 0 && group === "")
    return (
      <>
        <h1>Map</h1>
        <Empty text="There is no machine yet. The map shows machines, and which paths between them carry traffic." />
      </>
    );
  const groups = [...new Set(nodes.flatMap(shownGroups))].sort();
  const pairs = (edges: readonly Edge[]) => edges.reduce((sum, edge) => sum + edge.pairs, 0);
  const current = graph.edges.filter(isCurrent);
  const old = pairs(graph.edges) - pairs(current);
  const count = (kind: Edge["kind"]) => pairs(current.filter((edge) => edge.kind === kind));
  const summary = `${graph.dots.reduce((sum, { machines }) => sum + machines, 0)} machines; paths${mayAdminister.value ? "" : " of yours, as only administrators see all"}: ${count("direct")} direct, ${count("relayed")} relayed, ${count("broken")} broken${old === 0 ? "" : `, ${old} old: who reports or relays them is away`}`;
  return (
    <>
      <h1>Map</h1>
      <div class="tools">
        <select
          aria-label="Group"
          class="short"
          value={group}
          onChange={(event: Event) => setQuery({ group: valueOf(event) })}
        >
          <option value="">All groups</option>
          {groups.map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
        <span role="status">{summary}</span>
      </div>
      <p class="quiet">
        {graph.isGrouped
          ? `More than ${maxDots} machines: each dot is a group, as large as it has machines. `
          : ""}
        {read.paths.length < read.total
          ? `Of ${read.total} paths the first ${read.paths.length} are shown. `
          : ""}{" "}
        Diamonds are lighthouses, squares have networks behind them, hollow ones are away. Lines: solid is
        direct, dashed is relayed, dotted red is broken; faint ones are old, reported before one end went
        away.
      </p>
      <Broken graph={graph} />
      <Drawing graph={graph} places={places} label={`Map: ${summary}`} />
      <Table graph={graph} />
      <FromTerminal command={["path", "list", own]} call={["GET", apiPath(pathsApi.list, { slug: own })]} />
    </>
  );
}

const isCurrent = ({ oldAt }: Edge) => oldAt === undefined;
const maxBroken = 10;

/** A dot that stands for a group is no machine. */
function linkTo({ id, label }: Pick<Dot, "id" | "label"> = { label: "" }) {
  const name = <bdi title={label}>{label}</bdi>;
  return id === undefined ? name : <a href={pathOf(slug.value ?? "", "machines", id)}>{name}</a>;
}

/** Problems, above the picture. */
function Broken({ graph: { dots, edges } }: { graph: Graph }) {
  const broken = edges.filter((edge) => edge.kind === "broken" && isCurrent(edge));
  if (broken.length === 0) return null;
  const byKey = new Map(dots.map((dot) => [dot.key, dot]));
  const end = (key: string) => linkTo(byKey.get(key));
  return (
    <ul class="plain-list" aria-label="Broken paths">
      {broken.slice(0, maxBroken).map((edge) => (
        <li key={`${edge.from} ${edge.to}`}>
          {end(edge.from)} – {end(edge.to)} <State name="attention" word={wordsOf(edge)} />
        </li>
      ))}
      {broken.length > maxBroken ? (
        <li>
          <a href="?search=broken">and {broken.length - maxBroken} more</a>
        </li>
      ) : null}
    </ul>
  );
}

const kinds = { direct: "online", relayed: "limited", broken: "attention" } as const;

function Table({ graph: { dots, edges } }: { graph: Graph }) {
  const own = slug.value ?? "";
  const byKey = new Map(dots.map((dot) => [dot.key, dot]));
  const nameOf = (key: string) => byKey.get(key)?.label ?? "";
  const end = (key: string, title: string, of: (edge: Edge) => string): Column<Edge> => ({
    key,
    title,
    width: 3,
    text: (edge) => nameOf(of(edge)),
    cell: (edge) => linkTo(byKey.get(of(edge))),
    isNatural: true,
  });
  const columns: readonly Column<Edge>[] = [
    end("from", "Machine", ({ from }) => from),
    end("to", "Peer", ({ to }) => to),
    {
      key: "path",
      title: "Path",
      width: 3,
      text: (edge) => wordsOf(edge, utc),
      cell(edge) {
        const { kind, oldAt } = edge;
        const word = wordsOf({ ...edge, rttMs: undefined, oldAt: undefined });
        return oldAt === undefined
          ? State({ name: kinds[kind], word })
          : State({
              name: "away",
              word: (
                <>
                  {word}, as reported {moment(oldAt)}
                </>
              ),
            });
      },
      compare: (a, b) => a.kind.localeCompare(b.kind),
      isEmpty: (edge) => !isCurrent(edge),
    },
    {
      key: "time",
      title: "Round trip",
      width: 2,
      text: ({ rttMs, oldAt }) => (rttMs === undefined || oldAt !== undefined ? "" : `${rttMs}`),
      cell: ({ rttMs, oldAt }) => (rttMs === undefined || oldAt !== undefined ? "-" : `${rttMs} ms`),
      compare: (a, b) => (a.rttMs ?? -1) - (b.rttMs ?? -1),
      isRestless: true,
    },
  ];
  // Broken ones come first, old ones last.
  const order = query.value.get("order") ?? "path";
  const isFound = searched();
  const [first = ""] = searchWords(query.value.get("search") ?? "");
  const has = (key: string) => nameOf(key).toLowerCase().includes(first);
  const shown = ordered(
    edges
      .filter((edge) => isFound(columns.map(({ text }) => text(edge)).join(" ")))
      // The machine that is searched stands first, whichever end it is.
      .map((edge) => (has(edge.from) || !has(edge.to) ? edge : { ...edge, from: edge.to, to: edge.from })),
    columns,
    order,
  );
  return (
    <>
      <h2>Paths</h2>
      <div class="tools">
        <Search label="Search paths" />
        <Export file={`${own}-paths.csv`} items={shown} columns={columns} />
      </div>
      {edges.length === 0 ? (
        <p class="quiet">
          {mayAdminister.value ? "No machine" : "None of yours"} has reported a path: there is no tunnel,
          engines are older than 1.12, or reports are switched off.
        </p>
      ) : (
        <div class="wide">
          <div class="least">
            <Rows
              label="Paths"
              items={shown}
              columns={columns}
              keyOf={({ from, to, kind }: Edge) => `${from} ${to} ${kind}`}
              order={order}
              held={`${query.value}`}
              setOrder={(next: string) => setQuery({ order: next })}
            />
          </div>
        </div>
      )}
    </>
  );
}
