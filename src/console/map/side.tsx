// Beside the picture: what is broken, what is slow, and all about a chosen pair of groups.

import type { VNode } from "preact";
import { apiPath } from "../../api/endpoint.ts";
import { pathsApi, type BetweenGroups } from "../../api/paths.ts";
import { rulesApi } from "../../api/rules.ts";
import { cellOf } from "../access/matrix.ts";
import { toRule } from "../access/rules.ts";
import { ago } from "../ago.ts";
import type { Machine } from "../machines.ts";
import { pathOf } from "../router.ts";
import { useList, useResource } from "../resource.ts";
import { now } from "../times.ts";
import { Button } from "../ui/button.tsx";
import { Sign } from "../ui/icon.tsx";
import { Panel } from "../ui/page.tsx";
import { Facts, Failure, Loading, State, type Fact } from "../ui/parts.tsx";
import { Count, Pill, Tag } from "../ui/tag.tsx";
import { Export } from "../ui/tools.tsx";
import { isCurrent, worstFirst, type Edge } from "./edges.ts";
import {
  countWords,
  groupWord,
  msWords,
  onlineIn,
  pairName,
  pathsIn,
  peopled,
  type Group,
  type NamedPath,
  type Pair,
} from "./groups.ts";
import { groupLink, nodeLink, noPathsText } from "./tables.tsx";

const maxRows = 8;
const maxSlow = 5;
/** The export has more. */
const maxWorst = 10;

type Ends = { from: { id: number; name: string }; to: { id: number; name: string } };

/** Leads to the rules, which say whether a firewall is the reason. */
const whyLink = (own: string, { from, to }: Ends) =>
  `${pathOf(own, "access")}?${new URLSearchParams({ from: from.name, to: to.name })}`;

/** `count`: of all; `all`: where the others are. */
export function BrokenPaths({
  own,
  broken,
  count,
  all,
}: {
  own: string;
  broken: readonly Ends[];
  count: number;
  all: string;
}) {
  if (count === 0) return null;
  const shown = broken.slice(0, maxRows);
  return (
    <Panel title="Broken paths" beside={<Count count={count} words="broken" />}>
      <ul class="lines recent" aria-label="Broken paths">
        {shown.map((path) => (
          <li key={`${path.from.id} ${path.to.id}`}>
            <Sign name="need" />
            <span class="cut">
              {nodeLink(path.from.id, path.from.name)} <span class="faint">–</span>{" "}
              {nodeLink(path.to.id, path.to.name)}
            </span>
            <Button isSmall href={whyLink(own, path)}>
              Why?
            </Button>
          </li>
        ))}
        {count > shown.length ? (
          <li>
            <span />
            <a href={all}>and {count - shown.length} more</a>
          </li>
        ) : null}
      </ul>
    </Panel>
  );
}

export const endsOf = ({ node, node_name, peer, peer_name }: NamedPath): Ends => ({
  from: { id: node, name: node_name },
  to: { id: peer, name: peer_name },
});

type PairsProps = { pairs: readonly Pair[]; linkTo(pair: Pair): string };

export function SlowestPairs({ pairs, linkTo }: PairsProps) {
  const slow = pairs
    .filter(({ rtt_ms_median: median }) => median !== null)
    .toSorted((a, b) => (b.rtt_ms_median ?? 0) - (a.rtt_ms_median ?? 0))
    .slice(0, maxSlow);
  if (slow.length === 0) return null;
  return (
    <Panel title="Slowest pairs of groups">
      <ul class="lines recent">
        {slow.map((pair) => (
          <li key={pairName(pair)}>
            <Sign name={pair.broken > 0 ? "need" : pair.relayed > 0 ? "part" : "on"} />
            <span class="name cut">
              <a href={linkTo(pair)}>
                <bdi>{pairName(pair)}</bdi>
              </a>{" "}
              {pair.relayed > 0 ? <span class="faint">{pair.relayed} relayed</span> : null}
            </span>
            <time>{msWords(pair.rtt_ms_median ?? 0)} ms</time>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

/** Of many groups, pairs have broken paths. */
export function BrokenPairs({ pairs, linkTo, all }: PairsProps & { all: string }) {
  const broken = pairs.filter((pair) => pair.broken > 0).toSorted((a, b) => b.broken - a.broken);
  if (broken.length === 0) return null;
  return (
    <Panel
      title="Broken"
      beside={
        <>
          <Count count={broken.length} words="pairs of groups" />
          <span class="faint">pairs of groups</span>
        </>
      }
    >
      <ul class="lines recent" aria-label="Broken paths">
        {broken.slice(0, maxRows).map((pair) => (
          <li key={pairName(pair)}>
            <Sign name="need" />
            <span class="name cut">
              <a href={linkTo(pair)}>
                <bdi>{pairName(pair)}</bdi>
              </a>
            </span>
            <time>
              {pair.broken} of {countWords(pathsIn(pair), "path")}
            </time>
          </li>
        ))}
        {broken.length > maxRows ? (
          <li>
            <span />
            <a href={all}>and {broken.length - maxRows} more</a>
          </li>
        ) : null}
      </ul>
    </Panel>
  );
}

export function WorstGroups({
  own,
  groups,
  leftOut,
}: {
  own: string;
  groups: readonly Group[];
  leftOut: number;
}) {
  return (
    <Panel title="Groups, worst first">
      <ul class="lines recent">
        {peopled(groups)
          .slice(0, maxRows)
          .map((group) => (
            <li key={groupWord(group.name)}>
              <Sign
                name={
                  group.broken > 0
                    ? "need"
                    : 4 * group.away > group.nodes
                      ? "off"
                      : group.relayed > 0
                        ? "part"
                        : "on"
                }
              />
              <span class="name cut">
                <a href={groupLink(own, group.name)}>
                  <bdi>{groupWord(group.name)}</bdi>
                </a>
              </span>
              <time>
                {group.paths.broken > 0
                  ? `${group.paths.broken} broken`
                  : group.away > 0 || group.relayed === 0
                    ? `${onlineIn(group)} of ${group.nodes}`
                    : `${group.relayed} relayed`}
              </time>
            </li>
          ))}
        {leftOut === 0 ? null : (
          <li>
            <span />
            <span class="quiet">{countWords(leftOut, "group")} with less to say are not shown</span>
          </li>
        )}
      </ul>
    </Panel>
  );
}

type PairProps = {
  own: string;
  from: Group["name"];
  to: Group["name"];
  groups: readonly Group[];
  close: string;
};

/** All about the paths between two groups, or within one. */
export function PairPanel({ own, from, to, groups, close }: PairProps) {
  const asked = { ...(from === null ? {} : { from }), ...(to === null ? {} : { to }) };
  const { data, error } = useResource(apiPath(pathsApi.between, { slug: own }, asked), { isCalm: true });
  const name = pairName({ from, to });
  const closing = <Button kind="ghost" icon="close" isSmall label="Close" href={close} />;
  if (data === undefined)
    return (
      <Panel title={name} actions={closing} hasRoom>
        {error === undefined ? <Loading rows={6} /> : <Failure error={error} />}
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
        <Split own={own} from={from} to={to} data={data} possible={possible} />
        <Histogram {...data} />
      </Panel>
      <Worst own={own} data={data} />
    </>
  );
}

type SplitProps = {
  own: string;
  from: Group["name"];
  to: Group["name"];
  data: BetweenGroups;
  possible: number;
};

function Split({ own, from, to, data, possible }: SplitProps) {
  const paths = pathsIn(data);
  const traffic = useTraffic(own, from, to);
  const facts: Fact[] = [
    // Phones have paths, and are not counted as nodes of a group.
    [
      "Paths",
      paths <= possible
        ? `${countWords(paths, "of").replace("ofs", "of")} ${countWords(possible, "pair")}`
        : `${paths}`,
    ],
    ["Direct", `${data.direct}`],
    ...(data.relayed === 0 ? [] : [["Relayed", <State name="limited" word={`${data.relayed}`} />] as const]),
    ...(data.broken === 0 ? [] : [["Broken", <State name="attention" word={`${data.broken}`} />] as const]),
    ...(data.rtt_ms_median === null
      ? []
      : [
          [
            "Round trip",
            `${msWords(data.rtt_ms_median)} ms, 95 of 100 within ${msWords(data.rtt_ms_95 ?? 0)} ms`,
          ] as const,
        ]),
    ...traffic,
  ];
  return <Facts facts={facts} />;
}

/** What the rules let pass, each way. Rules about single nodes and networks do not count. */
function useTraffic(own: string, from: Group["name"], to: Group["name"]): Fact[] {
  const hasRules = from !== null && to !== null;
  const { data } = useList(hasRules ? apiPath(rulesApi.list, { slug: own }, { page_size: "1000" }) : "");
  if (data === undefined || !hasRules) return [];
  const none = new Map<never, never>();
  const rules = data.map((rule) => toRule(rule, none, none, none));
  const ways =
    from === to
      ? [[from, to] as const]
      : ([
          [from, to],
          [to, from],
        ] as const);
  return ways.flatMap(([sender, receiver]): Fact[] => {
    const { traffic } = cellOf(rules, sender, receiver);
    if (traffic.length === 0) return [];
    return [
      [
        from === to ? "Allowed" : `To ${receiver}`,
        <a href={pathOf(own, "access")} title="Open the rules">
          {traffic.map((each) => (
            <Tag key={each} text={each} isPort />
          ))}
        </a>,
      ],
    ];
  });
}

const plot = { width: 274, height: 62, foot: 16 };

/** How many paths have which round trip. */
function Histogram({ round_trips: bins, rtt_ms_median: median }: BetweenGroups): VNode | null {
  const [first, last] = [
    bins.findIndex(({ paths }) => paths > 0),
    bins.findLastIndex(({ paths }) => paths > 0),
  ];
  if (first < 0) return null;
  // Bars on both sides, so that one bar is no wall.
  const [begin, end] = [Math.max(0, first - 1), Math.min(bins.length - 1, last + 1)];
  const shown = bins.slice(begin, end + 1);
  const most = Math.max(...shown.map(({ paths }) => paths));
  const step = plot.width / shown.length;
  const lower = begin === 0 ? 0 : (bins[begin - 1]?.up_to_ms ?? 0);
  const upper = bins[end]?.up_to_ms;
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

const csv = [
  { title: "Node", text: ({ node_name }: NamedPath) => node_name },
  { title: "Peer", text: ({ peer_name }: NamedPath) => peer_name },
  { title: "Path", text: ({ kind }: NamedPath) => kind },
  { title: "Round trip, ms", text: ({ rtt_ms: trip }: NamedPath) => `${trip ?? ""}` },
];

type Row = {
  from: number;
  fromName: string;
  to: number;
  toName: string;
  kind: Edge["kind"];
  ms: number | null;
};

/** The paths of nodes beside a drawing. */
const PathRows = ({ caption, rows }: { caption: string; rows: readonly Row[] }) => (
  <table class="t" aria-label={caption}>
    <tbody>
      {rows.map(({ from, fromName, to, toName, kind, ms }) => (
        <tr key={`${from} ${to}`}>
          <td class="sign">
            <Sign name={signs[kind]} />
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

const signs = { direct: "on", relayed: "part", broken: "need" } as const;

function Worst({ own, data: { from, to, worst } }: { own: string; data: BetweenGroups }) {
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
        <Export file={`${own}-${groupWord(from)}-${groupWord(to)}.csv`} items={worst} columns={csv} isIcon />
      }
    >
      <PathRows caption="The worst paths of the two groups" rows={rows} />
    </Panel>
  );
}

/** The paths of a few nodes, the worst first. */
export function FewPaths({
  nodes,
  edges,
  all,
}: {
  nodes: readonly Machine[];
  edges: readonly Edge[];
  all: string;
}) {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const current = edges.filter(isCurrent).toSorted(worstFirst);
  const shown = current.slice(0, 2 * maxRows);
  const nameOf = (id: number) => byId.get(id)?.name ?? "";
  const rows = shown.map(({ from, to, kind, rttMs }) => ({
    from,
    fromName: nameOf(from),
    to,
    toName: nameOf(to),
    kind,
    ms: rttMs ?? null,
  }));
  return (
    <Panel title="Paths">
      {rows.length === 0 ? (
        <p class="in quiet">{noPathsText()}</p>
      ) : (
        <PathRows caption="Paths, the worst first" rows={rows} />
      )}
      {current.length > shown.length ? (
        <p class="in">
          <a href={all}>and {current.length - shown.length} more</a>
        </p>
      ) : null}
    </Panel>
  );
}

export function AwayNodes({ nodes }: { nodes: readonly Machine[] }) {
  const away = nodes.filter(({ online, phone }) => !online && phone === null);
  if (away.length === 0) return null;
  return (
    <Panel title="Away">
      <ul class="lines recent">
        {away.map(({ id, name, seenAt }) => (
          <li key={id}>
            <Sign name="off" />
            <span class="cut">{nodeLink(id, name)}</span>
            {seenAt === null ? <span class="faint">never seen</span> : <time>{ago(seenAt, now.value)}</time>}
          </li>
        ))}
      </ul>
    </Panel>
  );
}

/** What the drawing means. `kinds`: what is in it. */
export function Legend({
  entries,
}: {
  entries: readonly ("width" | "heat" | "direct" | "relayed" | "broken" | "old" | "blank" | "frame")[];
}) {
  const line = (kind: string, words: string) => (
    <span key={kind}>
      <svg width="24" height="8" aria-hidden="true">
        <path class={kind} d="M0 4h24" />
      </svg>
      {words}
    </span>
  );
  const words = {
    width: <span key="width">wider: more paths</span>,
    heat: (
      <span key="heat">
        <span class="scale" aria-hidden="true">
          {[1, 2, 3, 4, 5].map((heat) => (
            <i key={heat} class={`h${heat}`} />
          ))}
        </span>
        median under 10, 20, 40, 80 ms, more
      </span>
    ),
    direct: line("direct", "direct"),
    relayed: line("relay", "relayed"),
    broken: line("broken", "broken"),
    old: <span key="old">faint: reported before one end went away</span>,
    blank: <span key="blank">blank: no path</span>,
    frame: <span key="frame">red frame: broken</span>,
  };
  return <div class="legend">{entries.map((entry) => words[entry])}</div>;
}
