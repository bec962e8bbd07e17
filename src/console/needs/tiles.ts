// The tiles of Overview: four numbers, each with what they were, or with a share. Pure.

import type { SentOf } from "../../api/endpoint.ts";
import type { nodesApi } from "../../api/nodes.ts";
import type { Attention } from "../../api/paths/attention.ts";
import type { GroupPaths } from "../../api/paths/paths.ts";
import type { NamedPath } from "../map/groups.ts";
import { msWords, plural } from "../words/numbers.ts";

type History = SentOf<typeof nodesApi.online>;
type Point = History["points"][number];
/** `of`: what follows the value. `bad`: the part of the facts that needs an administrator, or "". `line`: points of a curve; null: unknown. */
export type TileText = { value: string; of?: string; facts: string; bad: string; line: (number | null)[] };

/** For so long a value is compared with what it was. */
const hourMs = 3_600_000;

type Counted = Pick<Attention, "active" | "online">;
type Network = Pick<GroupPaths, "totals" | "relayed">;

/** The tiles of Overview from what was counted: numbers without lines where history is missing. */
export const tilesOf = (
  counted: Counted,
  history: History | undefined,
  network: Network | undefined,
  span: string,
) => ({
  online: onlineTile(counted, history, span),
  paths: network && pathsTile(network, history),
  trips: network && tripsTile(network, history),
  current: network && currentTile(network, counted),
});

const lineOf = (history: History | undefined, value: (point: Point) => number | null | undefined) =>
  (history?.points ?? []).map((each) => value(each) ?? null);

function onlineTile({ active, online }: Counted, history: History | undefined, span: string): TileText {
  const { points = [], last, least, most } = history ?? {};
  const before = points.findLast(({ at }) => last != null && Date.parse(at) <= Date.parse(last.at) - hourMs);
  // A point is the average of some minutes, so not a whole number.
  const fewer = before === undefined ? 0 : Math.round(before.online) - online;
  // A few nodes come and go all the time: more than three, and than one in fifty, need an administrator.
  const isFewer = fewer > Math.max(3, active / 50);
  // What is counted now belongs to the range, too.
  const [low, high] = [Math.min(least?.online ?? online, online), Math.max(most?.online ?? online, online)];
  const range = low === high ? `${high} all the time` : `${low} to ${high} in ${span}`;
  return {
    value: `${online}`,
    of: `of ${active}`,
    facts: isFewer || !least || !most ? "" : range,
    bad: isFewer ? `${fewer} fewer than an hour ago` : "",
    line: lineOf(history, (each) => each.online),
  };
}

function pathsTile({ totals, relayed }: Network, history: History | undefined): TileText | undefined {
  const all = totals.direct + totals.relayed + totals.broken;
  if (all === 0) return undefined;
  const isNoneBroken = totals.broken === 0;
  return {
    value: shareWords(totals.direct, all),
    of: `% of ${all}`,
    facts: `${relayedWords(totals.relayed, relayed)}${isNoneBroken ? ", none broken" : ""}`,
    bad: isNoneBroken ? "" : `${totals.broken} broken`,
    line: lineOf(history, (point) => {
      const known = (point.direct ?? 0) + (point.relayed ?? 0) + (point.broken ?? 0);
      return point.direct == null || known === 0 ? null : (100 * point.direct) / known;
    }),
  };
}

function tripsTile({ totals }: Network, history: History | undefined): TileText | undefined {
  if (totals.rtt_ms_median === null) return undefined;
  return {
    value: msWords(totals.rtt_ms_median),
    of: "ms",
    facts: totals.rtt_ms_95 === null ? "" : `95 of 100 within ${msWords(totals.rtt_ms_95)} ms`,
    bad: "",
    line: lineOf(history, (each) => each.rtt_ms_median),
  };
}

/** How many have the newest configuration. `share`: from 0 to 1. */
function currentTile({ totals: { current } }: Network, { active }: Counted) {
  return {
    value: `${current}`,
    of: `of ${active}`,
    // An agent checks in at least once a minute (maxPollWaitS).
    facts:
      current === active ? "all have the newest" : `${active - current} not yet; online ones within 1 min`,
    share: active === 0 ? 0 : current / active,
  };
}

/** Names the node that all relayed paths end at, or the two ends of the only one. `first`: of all paths. */
export function relayedWords(count: number, first: readonly NamedPath[]): string {
  const [one] = first;
  if (one === undefined || first.length < count) return `${plural(count, "path")} relayed`;
  if (count === 1) return `${one.node_name} to ${one.peer_name} relayed`;
  const common = [one.node_name, one.peer_name].find((name) =>
    first.every((each) => name === each.node_name || name === each.peer_name),
  );
  return `${plural(count, "path")} relayed${common === undefined ? "" : ` at ${common}`}`;
}

/** All is 100 only where nothing is missing. */
const shareWords = (part: number, all: number): string =>
  part === all ? "100" : Math.min(99.9, Math.floor((1000 * part) / all) / 10).toFixed(1);
