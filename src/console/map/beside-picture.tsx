// Beside the picture: what is broken, what is slow, and what the drawing means.

import { ago } from "../words/ago.ts";
import type { ListedNode } from "../nodes/listed-nodes.ts";
import { pathOf } from "../frame/router.ts";
import { now } from "../words/times.ts";
import { Button } from "../ui/button.tsx";
import type { SignName } from "../ui/drawings.ts";
import { Sign } from "../ui/icon.tsx";
import { Panel } from "../ui/page.tsx";
import { signOf } from "../ui/parts.tsx";
import { stateOf } from "../nodes/states.ts";
import { Count } from "../ui/tag.tsx";
import { isCurrent, worstFirst, type Edge } from "./node-paths.ts";
import {
  groupWord,
  onlineIn,
  pairName,
  pathsIn,
  peopled,
  type Group,
  type NamedPath,
  type Pair,
} from "./groups.ts";
import { groupLink } from "./group-link.ts";
import { heatBounds } from "./heat.ts";
import { nodeLink, noPathsText, PathRows } from "./tables.tsx";
import { plural, msWords } from "../words/numbers.ts";

/** A panel shows so many rows, and counts the others. */
const maxRows = 8;
const maxSlow = 5;

type Ends = { from: { id: number; name: string }; to: { id: number; name: string } };

/** Leads to the rules, which say whether a firewall is the reason. */
const whyLink = (slug: string, { from, to }: Ends) =>
  `${pathOf(slug, "access")}?${new URLSearchParams({ from: from.name, to: to.name })}`;

/** `broken`: the first of `count` paths. `allHref`: the address of the page that has all. */
type BrokenProps = { slug: string; broken: readonly Ends[]; count: number; allHref: string };

export function BrokenPaths({ slug, broken, count, allHref }: BrokenProps) {
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
            <Button isSmall href={whyLink(slug, path)}>
              Why?
            </Button>
          </li>
        ))}
        <More count={count - shown.length} href={allHref} />
      </ul>
    </Panel>
  );
}

export const endsOf = ({ node, node_name, peer, peer_name }: NamedPath): Ends => ({
  from: { id: node, name: node_name },
  to: { id: peer, name: peer_name },
});

function pairSign({ broken, relayed }: Pair): SignName {
  if (broken > 0) return "need";
  return relayed > 0 ? "part" : "on";
}

type PairsProps = { pairs: readonly Pair[]; linkTo(pair: Pair): string };

/** `valueOf`: what stands at the end of a row. */
type PairRowsProps = PairsProps & { valueOf(pair: Pair): string };

const PairRows = ({ pairs, linkTo, valueOf }: PairRowsProps) =>
  pairs.map((pair) => (
    <li key={pairName(pair)}>
      <Sign name={pairSign(pair)} />
      <span class="name cut">
        <a href={linkTo(pair)}>
          <bdi>{pairName(pair)}</bdi>
        </a>{" "}
        {pair.relayed > 0 ? <span class="faint">{plural(pair.relayed, "path")} relayed</span> : null}
      </span>
      <time>{valueOf(pair)}</time>
    </li>
  ));

export function SlowestPairs({ pairs, linkTo }: PairsProps) {
  const slow = pairs
    .filter(({ rtt_ms_median: median }) => median !== null)
    .toSorted((a, b) => (b.rtt_ms_median ?? 0) - (a.rtt_ms_median ?? 0))
    .slice(0, maxSlow);
  if (slow.length === 0) return null;
  return (
    <Panel title="Slowest pairs of groups">
      <ul class="lines recent">
        <PairRows
          pairs={slow}
          linkTo={linkTo}
          valueOf={({ rtt_ms_median: median }) => `${msWords(median ?? 0)} ms`}
        />
      </ul>
    </Panel>
  );
}

/** Pairs of groups with broken paths: of many nodes, single paths would be too many. */
export function BrokenPairs({ pairs, linkTo, allHref }: PairsProps & { allHref: string }) {
  const broken = pairs.filter((pair) => pair.broken > 0).toSorted((a, b) => b.broken - a.broken);
  if (broken.length === 0) return null;
  return (
    <Panel
      title="Broken"
      beside={
        <>
          <Count count={broken.length} words="broken" />
          <span class="faint">pairs of groups</span>
        </>
      }
    >
      <ul class="lines recent" aria-label="Broken paths">
        <PairRows
          pairs={broken.slice(0, maxRows)}
          linkTo={linkTo}
          valueOf={(pair) => `${pair.broken} of ${plural(pathsIn(pair), "path")}`}
        />
        <More count={broken.length - maxRows} href={allHref} />
      </ul>
    </Panel>
  );
}

/** The last row of a short list: how many it leaves out, and a link to them. */
const More = ({ count, href }: { count: number; href: string }) =>
  count > 0 ? (
    <li>
      <span />
      <a href={href}>and {count} more</a>
    </li>
  ) : null;

function groupSign(group: Group): SignName {
  if (group.broken + group.hubs_away > 0) return "need";
  // More than a quarter is away.
  if (4 * group.away > group.nodes) return "off";
  return group.relayed > 0 ? "part" : "on";
}

/** What is worst in a group; else how many of its nodes are online. */
function groupFact(group: Group): string {
  if (group.paths.broken > 0) return `${plural(group.paths.broken, "path")} broken`;
  if (group.away === 0 && group.relayed > 0) return `${plural(group.relayed, "node")} relayed`;
  return `${onlineIn(group)} of ${group.nodes}`;
}

type WorstProps = { slug: string; groups: readonly Group[]; leftOut: number };

/** `groups`: the worst first, as the control plane sorts them. `leftOut`: how many it did not send. */
export const WorstGroups = ({ slug, groups, leftOut }: WorstProps) => (
  <Panel title="Groups, worst first">
    <ul class="lines recent">
      {peopled(groups)
        .slice(0, maxRows)
        .map((group) => (
          <li key={groupWord(group.name)}>
            <Sign name={groupSign(group)} />
            <span class="name cut">
              <a href={groupLink(slug, group.name)}>
                <bdi>{groupWord(group.name)}</bdi>
              </a>
            </span>
            <time>{groupFact(group)}</time>
          </li>
        ))}
      {leftOut === 0 ? null : (
        <li>
          <span />
          <span class="quiet">{plural(leftOut, "group")} with less to say are not shown</span>
        </li>
      )}
    </ul>
  </Panel>
);

/** `allHref`: the address of the page that has all. */
type FewProps = { nodes: readonly ListedNode[]; edges: readonly Edge[]; allHref: string };

/** The paths of a few nodes, the worst first. */
export function FewPaths({ nodes, edges, allHref }: FewProps) {
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
          <a href={allHref}>and {current.length - shown.length} more</a>
        </p>
      ) : null}
    </Panel>
  );
}

/** `cut`: how many paths have no other way than a relay that is away. */
export function AwayNodes({ nodes, cut }: { nodes: readonly ListedNode[]; cut: number }) {
  const away = nodes.filter(({ online, phone }) => !online && phone === null);
  if (away.length === 0) return null;
  return (
    <Panel title="Away">
      <ul class="lines recent">
        {away.map((node) => (
          <li key={node.id}>
            <Sign name={signOf[stateOf({ ...node, cut })[0]]} />
            <span class="cut">{nodeLink(node.id, node.name)}</span>
            {node.seenAt === null ? (
              <span class="faint">never seen</span>
            ) : (
              <time>{ago(node.seenAt, now.value)}</time>
            )}
          </li>
        ))}
      </ul>
    </Panel>
  );
}

/** What the drawing means. `entries`: what is in it. */
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
            <i key={heat} class={`heat-${heat}`} />
          ))}
        </span>
        median under {heatBounds.join(", ")} ms, more
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
