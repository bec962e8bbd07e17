// All about the paths between two groups: beside the picture, the matrix, or the table.

import type { VNode } from "preact";
import { apiPath } from "../../api/endpoint.ts";
import { pathsApi, type BetweenGroups } from "../../api/paths/paths.ts";
import { rulesApi } from "../../api/rules.ts";
import { cellOf } from "../access/group-cells.ts";
import { toRule } from "../access/rules.ts";
import { pathOf } from "../frame/router.ts";
import { useList, useResource } from "../contact/resource.ts";
import { Button } from "../ui/button.tsx";
import { Panel } from "../ui/page.tsx";
import { Facts, Loading, State, type Fact } from "../ui/parts.tsx";
import { Pill, Tag } from "../ui/tag.tsx";
import { Export } from "../ui/lists/tools.tsx";
import { groupWord, pairName, pathsIn, type Group, type NamedPath } from "./groups.ts";
import { PathRows } from "./tables.tsx";
import { numberText, plural, msWords } from "../words/numbers.ts";

/** The panel shows so many of the worst paths; the export has more. */
const maxWorst = 10;

type PairProps = {
  slug: string;
  from: Group["name"];
  to: Group["name"];
  groups: readonly Group[];
  /** The address of the page without the panel. */
  close: string;
};

/** All about the paths between two groups, or within one. */
export function PairPanel({ slug, from, to, groups, close }: PairProps) {
  const asked = { ...(from === null ? {} : { from }), ...(to === null ? {} : { to }) };
  // Calm: read every 20 seconds, because reports of paths make no event.
  const { data, error } = useResource(apiPath(pathsApi.between, { slug }, asked), { isCalm: true });
  const name = pairName({ from, to });
  const closing = <Button kind="ghost" icon="close" isSmall label="Close" href={close} />;
  if (data === undefined)
    return (
      <Panel title={name} actions={closing} hasRoom>
        <Loading rows={6} error={error} />
      </Panel>
    );
  const nodesOf = (group: Group["name"]) => groups.find((each) => each.name === group)?.nodes ?? 0;
  const possible = from === to ? (nodesOf(from) * (nodesOf(from) - 1)) / 2 : nodesOf(from) * nodesOf(to);
  return (
    <>
      <Panel
        title={name}
        beside={
          data.broken === 0 ? null : (
            <Pill sign="need" kind="bad">
              {data.broken} broken
            </Pill>
          )
        }
        actions={closing}
        hasRoom
      >
        <Split slug={slug} from={from} to={to} data={data} possible={possible} />
        <RoundTrips {...data} />
      </Panel>
      <Worst slug={slug} data={data} />
    </>
  );
}

/** `possible`: how many pairs of nodes could have a path. */
type SplitProps = {
  slug: string;
  from: Group["name"];
  to: Group["name"];
  data: BetweenGroups;
  possible: number;
};

/** How the paths divide: by kind, by round trip, and what the rules let pass. */
function Split({ slug, from, to, data, possible }: SplitProps) {
  const paths = pathsIn(data);
  const traffic = useTraffic(slug, from, to);
  const facts: Fact[] = [
    // Phones have paths, and are not counted as nodes of a group.
    ["Paths", paths <= possible ? `${numberText(paths)} of ${plural(possible, "pair")}` : numberText(paths)],
    ["Direct", `${data.direct}`],
  ];
  if (data.relayed > 0) facts.push(["Relayed", <State name="relayed" word={`${data.relayed}`} />]);
  if (data.broken > 0) facts.push(["Broken", <State name="attention" word={`${data.broken}`} />]);
  if (data.rtt_ms_median !== null)
    facts.push([
      "Round trip",
      `${msWords(data.rtt_ms_median)} ms, 95 of 100 within ${msWords(data.rtt_ms_95 ?? 0)} ms`,
    ]);
  return <Facts facts={[...facts, ...traffic]} />;
}

/** What the rules let pass, each way. Rules about single nodes and networks do not count. */
function useTraffic(slug: string, from: Group["name"], to: Group["name"]): Fact[] {
  const hasRules = from !== null && to !== null;
  const { data } = useList(hasRules ? apiPath(rulesApi.list, { slug }, { page_size: "1000" }) : "");
  if (data === undefined || !hasRules) return [];
  // Names of nodes, members and providers are not needed: only rules about groups count.
  const noNames = new Map<never, never>();
  const rules = data.map((rule) => toRule(rule, noNames, noNames, noNames));
  const there = { sender: from, receiver: to };
  const back = { sender: to, receiver: from };
  return (from === to ? [there] : [there, back]).flatMap(({ sender, receiver }): Fact[] => {
    const { traffic } = cellOf(rules, sender, receiver);
    if (traffic.length === 0) return [];
    return [
      [
        from === to ? "Allowed" : `To ${receiver}`,
        <a href={pathOf(slug, "access")} title="Open the rules">
          {traffic.map((each) => (
            <Tag key={each} text={each} isPort />
          ))}
        </a>,
      ],
    ];
  });
}

/** The units of the drawing. `foot`: for the numbers below the bars. */
const plot = { width: 274, height: 62, foot: 16 };

/** How many paths have which round trip, as bars. */
function RoundTrips({ round_trips: bins, rtt_ms_median: median }: BetweenGroups): VNode | null {
  const first = bins.findIndex(({ paths }) => paths > 0);
  const last = bins.findLastIndex(({ paths }) => paths > 0);
  if (first < 0) return null;
  // With an empty bin on each side: a single bar would fill the whole width.
  const begin = Math.max(0, first - 1);
  const end = Math.min(bins.length - 1, last + 1);
  const shown = bins.slice(begin, end + 1);
  const most = Math.max(...shown.map(({ paths }) => paths));
  const step = plot.width / shown.length;
  const lower = begin === 0 ? 0 : (bins[begin - 1]?.up_to_ms ?? 0);
  const upper = bins[end]?.up_to_ms;
  /** The place of the bar that has the median. */
  // The last of all bins has no bound.
  const middle = shown.findIndex(
    ({ up_to_ms: bound }) => median !== null && (bound === null || median <= bound),
  );
  const words = shown.map(({ up_to_ms: bound, paths }, at) => {
    const from = at === 0 ? lower : shown[at - 1]?.up_to_ms;
    return `${paths} ${bound === null ? `above ${from} ms` : `from ${from} to ${bound} ms`}`;
  });
  return (
    <svg
      class="draw"
      viewBox={`0 0 ${plot.width} ${plot.height + plot.foot}`}
      role="img"
      aria-label={`Round trips: ${words.join(", ")}`}
    >
      {shown.map(({ paths }, at) => {
        const height = paths === 0 ? 0 : Math.max(1.5, (paths / most) * (plot.height - 6));
        return (
          <rect
            key={at}
            class="bar"
            x={at * step + 1}
            y={plot.height - height}
            width={step - 2}
            height={height}
            rx="2"
          >
            <title>{words[at]}</title>
          </rect>
        );
      })}
      <path class="axis" d={`M0 ${plot.height}h${plot.width}`} />
      <text class="ts" x="0" y={plot.height + 13}>
        {lower} ms
      </text>
      {/* The first and the last place have the numbers of the ends. */}
      {median === null || middle < 1 || middle > shown.length - 2 ? null : (
        <text class="ts" x={(middle + 0.5) * step} y={plot.height + 13} text-anchor="middle">
          {msWords(median)} median
        </text>
      )}
      <text class="ts" x={plot.width} y={plot.height + 13} text-anchor="end">
        {upper == null ? "more" : `${upper} ms`}
      </text>
    </svg>
  );
}

const csvColumns = [
  { title: "Node", text: ({ node_name }: NamedPath) => node_name },
  { title: "Peer", text: ({ peer_name }: NamedPath) => peer_name },
  { title: "Path", text: ({ kind }: NamedPath) => kind },
  { title: "Round trip, ms", text: ({ rtt_ms: trip }: NamedPath) => `${trip ?? ""}` },
];

function Worst({ slug, data: { from, to, worst } }: { slug: string; data: BetweenGroups }) {
  if (worst.length === 0) return null;
  const rows = worst.slice(0, maxWorst).map(({ node, node_name, peer, peer_name, kind, rtt_ms }) => ({
    from: node,
    fromName: node_name,
    to: peer,
    toName: peer_name,
    kind,
    ms: rtt_ms,
  }));
  return (
    <Panel
      title="Worst first"
      actions={
        <Export
          file={`${slug}-${groupWord(from)}-${groupWord(to)}.csv`}
          items={worst}
          columns={csvColumns}
          isSmall
        />
      }
    >
      <PathRows caption="The worst paths of the two groups" rows={rows} />
    </Panel>
  );
}
