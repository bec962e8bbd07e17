// The map: which paths carry traffic, as a picture, as a matrix, and as a table.

import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { apiPath } from "../../api/endpoint.ts";
import { pathsApi, type GroupPaths } from "../../api/paths/paths.ts";
import { edgesOf, isCurrent, worstFirst, type Edge } from "../map/node-paths.ts";
import {
  drawnOf,
  groupKey,
  maxDrawn,
  pairKey,
  pathsIn,
  peopled,
  type Group,
  type Pair,
} from "../map/groups.ts";
import { ManyMatrix, Matrix } from "../map/matrix.tsx";
import { maxNodes, NodesPicture } from "../map/nodes-picture.tsx";
import { PairPanel } from "../map/pair.tsx";
import { GroupPicture } from "../map/group-picture.tsx";
import {
  AwayNodes,
  BrokenPairs,
  BrokenPaths,
  endsOf,
  FewPaths,
  Legend,
  SlowestPairs,
  WorstGroups,
} from "../map/beside-picture.tsx";
import { perSquareOf } from "../map/node-squares.tsx";
import { fleetOf } from "../map/group-link.ts";
import { PairsTable, PathsTable } from "../map/tables.tsx";
import type { ListedNode } from "../nodes/listed-nodes.ts";
import { mayAdminister, currentSlug } from "../contact/me.ts";
import { useNodes } from "../nodes/node-list.ts";
import { usePathCounts } from "../nodes/path-counts.ts";
import { hrefWith, pathOf, query, setQuery } from "../frame/router.ts";
import { readAheadOf, useList, useResource } from "../contact/resource.ts";
import { Button, Segments } from "../ui/button.tsx";
import { Fleet } from "../ui/figures/fleet.tsx";
import { isNarrow } from "../ui/narrow.ts";
import { Page, Panel } from "../ui/page.tsx";
import { Empty, Failure, Loading } from "../ui/parts.tsx";
import { plural } from "../words/numbers.ts";

/** Beyond these, the picture would be a tangle: the matrix comes first. */
const maxPictureNodes = 1500;
/** A matrix with numbers has room for so many groups beside the picture, and on a phone. */
const maxNarrow = 8;

type View = "picture" | "matrix" | "table";
const viewNames = { picture: "Picture", matrix: "Matrix", table: "Table" } as const;

/** Called when the page is loaded ahead: begins to read what the page shows before it is shown. */
export function readMapAhead(): void {
  const slug = currentSlug.peek();
  if (slug === undefined) return;
  readAheadOf(apiPath(pathsApi.groups, { slug }));
}

/** Up to `maxNodes` nodes are boxes with single paths. More are squares in boxes of their groups, and very many only groups. */
export function MapPage() {
  const slug = currentSlug.value ?? "";
  const { data: sums, error } = useResource(apiPath(pathsApi.groups, { slug }), { isCalm: true });
  if (sums === undefined)
    return (
      <Frame slug={slug}>
        <Loading rows={12} error={error} />
      </Frame>
    );
  if (sums.totals.nodes <= maxNodes) return <FewNodes slug={slug} sums={sums} />;
  const isMany = sums.totals.nodes > maxPictureNodes;
  return isMany ? (
    <GroupMap slug={slug} sums={sums} nodes={undefined} />
  ) : (
    <SomeNodes slug={slug} sums={sums} />
  );
}

type FrameProps = {
  slug: string;
  fact?: string;
  view?: View;
  views?: readonly View[];
  children: ComponentChildren;
};

function Frame({ slug, fact, view, views = [], children }: FrameProps) {
  return (
    <Page
      title="Map"
      fact={fact === undefined || isNarrow.value ? undefined : <span role="status">{fact}</span>}
      actions={
        view === undefined ? undefined : (
          <Segments
            label="View"
            value={view}
            choices={views.map((each) => [each, viewNames[each]] as const)}
            set={(next) => setQuery({ view: next, order: undefined, search: undefined })}
          />
        )
      }
      terminal={{ command: ["path", "list", slug], call: ["GET", apiPath(pathsApi.list, { slug })] }}
    >
      {fact !== undefined && isNarrow.value ? (
        <p class="quiet" role="status">
          {fact}
        </p>
      ) : null}
      {children}
    </Page>
  );
}

function viewOf(views: readonly View[]): View {
  const asked = query.value.get("view");
  return views.find((each) => each === asked) ?? views[0] ?? "table";
}

type Kinds = Pick<GroupPaths["totals"], "direct" | "relayed" | "broken">;
const whosePaths = () => (mayAdminister.value ? "" : " of yours, as only administrators see all");
/** How many nodes and paths the map has, beside its title. */
const factOf = (nodes: number, { direct, relayed, broken }: Kinds, more = "") =>
  `${plural(nodes, "node")} with an agent; paths${whosePaths()}: ${direct} direct, ${relayed} relayed, ${broken} broken${more}`;

/** Each node is a box. The sums do not count phones: if nodes and phones together are too many, each group is one. */
function FewNodes({ slug, sums }: { slug: string; sums: GroupPaths }) {
  const { data, error } = useNodes();
  const pathsPath = apiPath(pathsApi.list, { slug }, { page_size: "1000" });
  const { data: paths, error: failure } = useList(pathsPath, { isCalm: true });
  const nodes = useMemo(() => data?.filter(({ state }) => state === "active"), [data]);
  const edges = useMemo(() => edgesOf(paths ?? [], nodes ?? []), [paths, nodes]);
  if (nodes === undefined || paths === undefined) {
    const wrong = error ?? failure;
    return (
      <Frame slug={slug}>{wrong === undefined ? <Loading rows={12} /> : <Failure error={wrong} />}</Frame>
    );
  }
  if (nodes.length > maxNodes) return <GroupMap slug={slug} sums={sums} nodes={nodes} />;
  if (nodes.length === 0)
    return (
      <Frame slug={slug}>
        <Empty text="There is no node yet. The map shows nodes, and which paths between them carry traffic.">
          {mayAdminister.value ? (
            <Button kind="primary" icon="plus" href={pathOf(slug, "nodes", "add")}>
              Add a node
            </Button>
          ) : null}
        </Empty>
      </Frame>
    );
  const current = edges.filter(isCurrent);
  const count = (kind: Edge["kind"]) => current.filter((edge) => edge.kind === kind).length;
  const old = edges.length - current.length;
  const kinds = { direct: count("direct"), relayed: count("relayed"), broken: count("broken") };
  const more = old === 0 ? "" : `, ${old} old: who reports or relays them is away`;
  const views = ["picture", "table"] as const;
  const view = viewOf(views);
  const nameOf = (id: number) => nodes.find((node) => node.id === id)?.name ?? "";
  const broken = current.filter(({ kind }) => kind === "broken");
  const ends = broken.map(({ from, to }) => ({
    from: { id: from, name: nameOf(from) },
    to: { id: to, name: nameOf(to) },
  }));
  return (
    <Frame slug={slug} fact={factOf(sums.totals.nodes, kinds, more)} view={view} views={views}>
      {view === "table" ? (
        <PathsTable slug={slug} nodes={nodes} edges={edges} />
      ) : (
        <div class="map-page">
          <section class="panel canvas">
            <NodesPicture
              slug={slug}
              nodes={nodes}
              edges={edges.toSorted(worstFirst)}
              cutPaths={sums.totals.cut}
              isNarrow={isNarrow.value}
            />
            <footer class="in">
              <Legend entries={["direct", "relayed", "broken", ...(old === 0 ? [] : ["old" as const])]} />
            </footer>
          </section>
          <div class="stackd">
            <BrokenPaths
              slug={slug}
              broken={ends}
              count={ends.length}
              allHref={hrefWith({ view: "table", search: "broken" })}
            />
            <FewPaths nodes={nodes} edges={edges} allHref={hrefWith({ view: "table" })} />
            <AwayNodes nodes={nodes} cut={sums.totals.cut} />
          </div>
        </div>
      )}
    </Frame>
  );
}

/** A map of groups in which each node is a square. */
function SomeNodes({ slug, sums }: { slug: string; sums: GroupPaths }) {
  const { data, error } = useNodes();
  const nodes = useMemo(() => data?.filter(({ state }) => state === "active"), [data]);
  if (nodes === undefined)
    return (
      <Frame slug={slug}>
        <Loading rows={12} error={error} />
      </Frame>
    );
  return <GroupMap slug={slug} sums={sums} nodes={nodes} />;
}

type GroupMapProps = { slug: string; sums: GroupPaths; nodes: readonly ListedNode[] | undefined };

/** `nodes`: undefined if they are too many to draw each. */
function GroupMap({ slug, sums, nodes }: GroupMapProps) {
  // The paths of each node, for its square; "" reads none.
  const counts = usePathCounts(nodes === undefined ? "" : slug);
  const { totals, pairs, groups } = sums;
  // Without groups of phones alone, which have no paths.
  const all = peopled(groups);
  const isMany = nodes === undefined || all.length > maxDrawn;
  const isPhone = isNarrow.value;
  const views: readonly View[] = isPhone ? ["matrix", "table"] : ["picture", "matrix", "table"];
  // The first one is shown unless the address names another; the buttons keep the order above.
  const view = viewOf(isMany && !isPhone ? ["matrix", ...views] : views);
  const selected = pairOf(query.value.get("pair"), all);
  const linkTo = (pair: Pair) => hrefWith({ pair: pairKey(pair.from, pair.to) });
  const shown = { slug, sums, nodes, counts, selected: selected?.key, linkTo };
  const table = <PairsTable slug={slug} pairs={pairs} linkTo={linkTo} />;
  const main = view === "table" ? table : <Canvas {...shown} isMatrix={view === "matrix"} />;
  return (
    <Frame slug={slug} fact={factOf(totals.nodes, totals)} view={view} views={views}>
      {view === "table" && selected === undefined ? (
        <>
          {table}
          {nodes === undefined ? null : <AllPaths slug={slug} nodes={nodes} />}
        </>
      ) : (
        <div class="map-page">
          {isPhone ? null : main}
          <div class="stackd">
            {selected === undefined ? (
              <Side {...shown} isMany={isMany} hasMatrix={view === "matrix" && !isPhone} />
            ) : (
              <PairPanel
                slug={slug}
                from={selected.from}
                to={selected.to}
                groups={all}
                close={hrefWith({ pair: undefined })}
              />
            )}
          </div>
        </div>
      )}
    </Frame>
  );
}

type Shown = GroupMapProps & {
  counts: ReturnType<typeof usePathCounts>;
  selected: string | undefined;
  linkTo(pair: Pair): string;
};

/** The pair of groups that the address names by their keys, if both are there. */
function pairOf(words: string | null, groups: readonly Group[]) {
  const [first, second] = words?.split(" ") ?? [];
  const found = (key: string | undefined) => groups.find(({ name }) => groupKey(name) === key)?.name;
  const [from, to] = [found(first), found(second)];
  if (words === null || from === undefined || to === undefined) return undefined;
  return { key: pairKey(from, to), from, to };
}

/** The lines of a matrix: the group in the middle of the picture first. `most`: how many groups, by default as many as are drawn. */
function linesOf(groups: readonly Group[], most?: number): Group[] {
  const { hub, ring } = drawnOf(groups, most);
  return hub === undefined ? ring : [hub, ...ring];
}

function Canvas({ slug, sums, nodes, counts, selected, linkTo, isMatrix }: Shown & { isMatrix: boolean }) {
  const { groups, pairs, left_out, totals, broken } = sums;
  const all = peopled(groups);
  // All groups: a matrix has no limit.
  const lines = linesOf(groups, Math.max(groups.length, 1));
  const perSquare = isMatrix ? 1 : perSquareOf(groups, nodes);
  const drawn = isMatrix ? all.length : Math.min(all.length, maxDrawn);
  const groupCount = all.length + left_out.groups;
  const notes = [
    drawn < groupCount && `the ${drawn} worst of ${groupCount} groups`,
    perSquare > 1 && `a square: up to ${perSquare} nodes`,
    !isMatrix && broken.length < totals.broken && `${broken.length} of ${totals.broken} broken paths`,
  ].filter(Boolean);
  return (
    <section class="panel canvas">
      {isMatrix ? (
        <div class="in">
          {lines.length > maxDrawn ? (
            <ManyMatrix groups={lines} pairs={pairs} selected={selected} linkTo={linkTo} />
          ) : (
            <Matrix place="canvas" groups={lines} pairs={pairs} selected={selected} linkTo={linkTo} />
          )}
        </div>
      ) : (
        <GroupPicture
          slug={slug}
          sums={sums}
          nodes={nodes}
          counts={counts}
          selected={selected}
          linkTo={linkTo}
        />
      )}
      <footer class="in">
        <Legend entries={isMatrix ? ["heat", "blank", "frame"] : ["width", "heat", "relayed", "broken"]} />
        {notes.length === 0 ? null : <p class="quiet">{notes.join("; ")}</p>}
      </footer>
    </section>
  );
}

type SideProps = Shown & { isMany: boolean; hasMatrix: boolean };

function Side({ slug, sums, nodes, selected, linkTo, isMany, hasMatrix }: SideProps) {
  const { groups, pairs, broken, totals, left_out } = sums;
  const isPhone = isNarrow.value;
  const lines = linesOf(groups, maxNarrow);
  const isWhole = lines.length === peopled(groups).length;
  return (
    <>
      {isMany && !isPhone && nodes === undefined ? (
        <BrokenPairs pairs={pairs} linkTo={linkTo} allHref={hrefWith({ view: "table" })} />
      ) : (
        <BrokenPaths
          slug={slug}
          broken={broken.map(endsOf)}
          count={totals.broken}
          allHref={hrefWith({ view: "table", search: "broken" })}
        />
      )}
      {hasMatrix || (!isPhone && !isWhole) ? null : (
        <Panel title="Round trips" beside={<span class="faint">median, ms</span>} hasRoom>
          <Matrix place="side" groups={lines} pairs={pairs} selected={selected} linkTo={linkTo} />
          {!isWhole ? <p class="quiet">The {lines.length} worst groups; the table has all.</p> : null}
        </Panel>
      )}
      {isMany ? <WorstGroups slug={slug} groups={groups} leftOut={left_out.groups} /> : null}
      <SlowestPairs pairs={pairs.filter((pair) => pathsIn(pair) > 0)} linkTo={linkTo} />
      {isPhone ? (
        <Panel title="Groups" hasRoom>
          <Fleet groups={fleetOf(slug, lines, totals.cut)} />
        </Panel>
      ) : null}
    </>
  );
}

/** The paths of nodes, at most 20,000. */
function AllPaths({ slug, nodes }: { slug: string; nodes: readonly ListedNode[] }) {
  const { data, error } = useList(apiPath(pathsApi.list, { slug }, { page_size: "1000" }), {
    isCalm: true,
  });
  const edges = useMemo(() => (data === undefined ? undefined : edgesOf(data, nodes)), [data, nodes]);
  if (edges === undefined) return <Loading rows={6} error={error} />;
  return <PathsTable slug={slug} nodes={nodes} edges={edges} />;
}
