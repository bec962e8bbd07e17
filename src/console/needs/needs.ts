// What needs a user, in words: the verdict of Overview, and one row for each need, the worst first. Pure.

import type { SentOf } from "../../api/endpoint.ts";
import type { nodesApi } from "../../api/nodes.ts";
import type { Attention } from "../../api/paths/attention.ts";
import type { GroupPaths } from "../../api/paths/paths.ts";
import { separateCopy } from "../../protocol/finding-kinds.ts";
import { secondLighthouse } from "../../protocol/second-lighthouse.ts";
import { ago } from "../words/ago.ts";
import { stepOf } from "./authorities.ts";
import type { NamedPath } from "../map/groups.ts";
import { isRed, needCounts, type Found, type NeedKind } from "./need-kinds.ts";
import { updateEngine, vulnerabilitiesOf } from "../nodes/states.ts";
import { keyOf, type Registration } from "../joining/registrations.ts";
import { relayText } from "./relayed-traffic.ts";
import { backupCommand } from "./backup-command.ts";
import type { SignName } from "../ui/drawings.ts";
import { msWords, plural } from "../words/numbers.ts";

type Failing = NonNullable<Attention["failing_tests"]>;

export const testsWords = ({ count, all }: Failing): string =>
  all === 1
    ? "The test of the policy fails"
    : `${count} of ${all} tests of the policy ${count === 1 ? "fails" : "fail"}`;

/** The segments of a page's path below its organization; a first one "-": below /console/, of the control plane. */
type Target = readonly (string | number)[];
/** What the row offers: a page, a command for the machine in question, or the two answers to a request. */
export type Act =
  { words: string; to: Target; query?: string } | { words: string; copy: string } | { request: Registration };

/** One thing that a user should see to. */
export type Need = {
  key: string;
  sign: SignName;
  /** Of what: a node, or a part of the organization. */
  name: string;
  to: Target;
  what: string;
  /** More of it, as a title. */
  more?: string;
  /** Since when, or when it ends; ISO 8601. */
  at?: string | null;
  act: Act;
};

type Totals = GroupPaths["totals"];

/** All needs, the worst first: what does not work, who waits, what will not work some day. `now`: ms. `totals`: of all paths. */
export function needRows(slug: string, found: Found, now: number, totals?: Totals): Need[] {
  const counts = needCounts(found);
  const kinds = Object.keys(rowsOfKind) as NeedKind[];
  const rows = kinds.flatMap((kind) => {
    if (counts[kind] === 0) return [];
    const sign: SignName = isRed(kind) ? "need" : "warn";
    return rowsOfKind[kind](found, now, totals).map((row): Need => ({ sign, ...row }));
  });
  // Within a kind, a relay that cuts no path may stand above what is red.
  rows.sort((a, b) => Number(b.sign === "need") - Number(a.sign === "need"));
  return [...rows, ...adviceRow(slug, found.attention)];
}

/** Without a sign, it has that of its kind. */
type Row = Omit<Need, "sign"> & Partial<Pick<Need, "sign">>;
type Listed<T> = { count: number; first: readonly T[] };
type Named = { id: number; name: string };

/**
 * A row for each node that is listed, and one for the rest, whose link leads to the list of nodes with this query. `prefix`: of the
 * rows' keys.
 */
function rowsOf<T extends Named>(
  prefix: string,
  query: string,
  { count, first }: Listed<T>,
  rowOf: (each: T) => Pick<Need, "what"> & Partial<Need>,
): Row[] {
  const rows = first.map((each): Row => ({
    key: `${prefix} ${each.id}`,
    name: each.name,
    to: ["nodes", each.id],
    act: { words: "Open", to: ["nodes", each.id] },
    ...rowOf(each),
  }));
  const rest = count - first.length;
  if (rest <= 0) return rows;
  const act = { words: "Show all", to: ["nodes"], query };
  return [...rows, { key: prefix, name: `${rest} more`, to: ["nodes"], what: "have the same fault", act }];
}

const toCopy = (words: string, copy: string): Act => ({ words, copy });

const lighthousesLeft = ({ lighthouses, hubs_away: { first } }: Attention) =>
  lighthouses - first.filter(({ is_lighthouse }) => is_lighthouse).length;

function leftWords(attention: Attention): string {
  const left = lighthousesLeft(attention);
  return left <= 0 ? ": no new tunnel is found" : `: new tunnels need the other ${left === 1 ? "one" : left}`;
}

/** What a relay that is away means for paths, as the end of a sentence; "" until they are read. */
function cutWords(totals: Totals | undefined): string {
  if (totals === undefined) return "";
  if (totals.cut === 0) return ", no path is cut";
  return `: ${plural(totals.cut, "path")} ${totals.cut === 1 ? "has" : "have"} no other way`;
}

/** In the order of the page, in which the red ones come first. */
const rowsOfKind: Readonly<Record<NeedKind, (found: Found, now: number, totals?: Totals) => Row[]>> = {
  warnings: ({ warnings }) =>
    warnings.map(({ code, text, hint }) => ({
      key: code,
      name: "Control plane",
      to: ["-", "servers"],
      what: text,
      more: hint,
      act: { words: "Open", to: ["-", "servers"] },
    })),
  cloned: ({ attention }) =>
    rowsOf("cloned", "show=cloned", attention.cloned, () => ({
      what: "is two machines with the same keys, and tunnels alternate between them",
      more: `On the copy alone: ${separateCopy}, with a new join key`,
    })),
  hubs_away: ({ attention }, _, totals) =>
    rowsOf("hub", "show=hubs", attention.hubs_away, ({ is_lighthouse, last_checkin_at }) => ({
      what: `${is_lighthouse ? "lighthouse" : "relay"} away${is_lighthouse ? leftWords(attention) : cutWords(totals)}`,
      sign: isRed(is_lighthouse ? "lighthouse" : "relay", totals?.cut) ? "need" : "warn",
      at: last_checkin_at,
      more: "Run the command on this node.",
      act: toCopy("Doctor command", "sudo agent doctor"),
    })),
  broken_paths: ({ attention }) =>
    rowsOf("broken", "show=broken", attention.broken_paths, ({ id, peers, peer_count }) => {
      const others = peer_count - peers.length;
      return {
        what: `does not reach ${peers.join(", ")}${others > 0 ? ` and ${others} more` : ""}, though ${peer_count === 1 ? "both" : "all"} are online`,
        act: { words: "Why?", to: ["nodes", id] },
      };
    }),
  tests: ({ failingTests }) =>
    failingTests
      ? [
          {
            key: "tests",
            name: "Access",
            to: ["access"],
            what: testsWords(failingTests),
            act: { words: "Show", to: ["access"] },
          },
        ]
      : [],
  not_applied: ({ attention }) =>
    rowsOf("late", "show=late", attention.not_applied, ({ since }) => ({
      what: "checks in, but has not applied the configuration: new rules are not in force on it",
      at: since,
      act: toCopy("Command to apply", "sudo agent sync-config"),
    })),
  not_renewed: ({ attention }, now) =>
    rowsOf("renew", "order=ends&columns=state,ends,seen", attention.not_renewed, ({ not_after }) => ({
      what: `has not renewed its certificate, which ends ${ago(Date.parse(not_after), now)}`,
      act: toCopy("Command to renew", "sudo agent checkin"),
    })),
  waiting: ({ waiting }) =>
    waiting.map((each) => ({
      key: `waiting ${each.id}`,
      sign: "wait",
      name: each.name,
      to: ["nodes", "waiting"],
      what: `asks to join${each.groups.length === 0 ? "" : ` ${each.groups.join(", ")}`}, key ${keyOf(each)}`,
      more: `From ${each.seen_from}`,
      at: each.created_at,
      act: { request: each },
    })),
  seal: ({ attention: { first_seal: seal } }) => [
    {
      key: "seal",
      name: "First seal",
      to: ["activity"],
      what: `compare its hash with the signer's: ${seal?.hash}`,
      act: { words: "Show", to: ["activity"] },
    },
  ],
  engines: ({ attention: { vulnerable_engines: engines } }) => {
    const { count, first } = engines;
    const [only] = count === 1 ? first : [];
    return [
      {
        key: "engines",
        name: only?.name ?? `${count} engines`,
        to: only === undefined ? ["nodes"] : ["nodes", only.id],
        what: `${only === undefined ? "are of versions" : "runs an engine"} with known vulnerabilities`,
        more: first
          .map((each) => `${each.name}: ${each.overlay_version}. ${vulnerabilitiesOf(each)}`)
          .join("\n"),
        act:
          only === undefined
            ? { words: "Show", to: ["nodes"], query: "show=vulnerable" }
            : toCopy("Update command", updateEngine),
      },
    ];
  },
  relays: ({ relays }) =>
    relays
      .filter(({ paused }) => paused)
      .map((each) => ({
        key: `relay ${each.node}`,
        name: each.node_name,
        to: ["nodes", each.node],
        what: relayText(each),
        act: { words: "Open", to: ["nodes", each.node] },
      })),
  webhooks: ({ webhooks }) =>
    webhooks.map(({ id, url }) => ({
      key: `webhook ${id}`,
      name: "Webhook",
      to: ["webhooks", id],
      what: `${url} does not take what is sent`,
      act: { words: "Deliveries", to: ["webhooks", id] },
    })),
  rotation: ({ rotation }) => {
    if (rotation === undefined) return [];
    const { paused, rolling_back } = rotation;
    const resume = rolling_back ? "Resume" : "Resume or roll back";
    return [
      {
        key: "rotation",
        name: "CAs",
        to: ["certificates"],
        what: `${stepOf(rotation)}${paused ? " It is paused." : ""}`,
        act: { words: paused ? resume : "Show", to: ["certificates"] },
      },
    ];
  },
  backup: ({ lastBackupAt = null }) => [
    {
      key: "backup",
      name: "Backup",
      to: ["-", "servers"],
      what:
        lastBackupAt === null ? "The control plane has none yet" : "The last one of the control plane is old",
      at: lastBackupAt,
      act: toCopy("Backup command", backupCommand),
    },
  ],
};

/** No need that counts: the network works. */
function adviceRow(slug: string, { active, lighthouses }: Attention): Need[] {
  const advice = secondLighthouse(slug, { nodes: active, lighthouses });
  if (advice === undefined) return [];
  return [
    {
      key: "lighthouse",
      sign: "warn",
      name: "One lighthouse",
      to: ["nodes"],
      what: `${advice.why}: ${advice.lines[0]}, and there sudo ${advice.lines[1]}`,
      act: { words: "Command for its key", copy: advice.lines[0] },
    },
  ];
}

export type Verdict = {
  sign: SignName;
  words: string;
  /** A lighthouse is away: what that means, for the panel whose line turns red. */
  alarm?: { id: number; name: string; facts: string };
};

type Broken = Pick<Totals, "broken" | "cut">;

/** Whether all is well, in one sentence. `count`: of all needs. `totals`: of all paths; undefined until they are read. */
export function verdictOf(attention: Attention, totals: Broken | undefined, count: number): Verdict {
  const { active, online, hubs_away, cloned, not_applied } = attention;
  if (active === 0) return { sign: "off", words: "No node is registered" };
  if (online === 0) return { sign: "need", words: `None of ${plural(active, "node")} is online` };
  const lighthouse = hubs_away.first.find(({ is_lighthouse }) => is_lighthouse);
  const relay = hubs_away.first.find(({ is_lighthouse }) => !is_lighthouse);
  const isRelayRed = isRed("relay", totals?.cut);
  const relayAway = relay && `relay ${relay.name} is away`;
  const broken = totals?.broken ?? 0;
  const lackingPeers = attention.broken_paths.count;
  const redFacts = textsIn([
    lighthouse && `Lighthouse ${lighthouse.name} is away`,
    online * 2 < active && `only ${online} of ${active} nodes are online`,
    broken > 0
      ? `${plural(broken, "path")} ${broken === 1 ? "is" : "are"} broken`
      : lackingPeers > 0 && `${plural(lackingPeers, "node")} lack peers`,
    isRelayRed && relayAway,
    cloned.count > 0 && `${plural(cloned.count, "node")} with copied keys`,
  ]);
  const amberFacts = textsIn([
    !isRelayRed && relayAway,
    not_applied.count > 0 && `${plural(not_applied.count, "node")} without the newest configuration`,
  ]);
  // Two facts can be read at a glance; the rows below have all.
  const [first, second] = [...redFacts, ...amberFacts];
  if (first === undefined) return { sign: "on", words: count === 0 ? "All is well" : "The network is well" };
  const words = `${first.charAt(0).toUpperCase()}${first.slice(1)}${second === undefined ? "" : `, ${second}`}`;
  if (lighthouse === undefined) return { sign: redFacts.length > 0 ? "need" : "warn", words };
  const left = lighthousesLeft(attention);
  const found =
    left <= 0
      ? "Nodes that have not talked before do not find each other until it is back."
      : `New tunnels are found by ${left === 1 ? "the other lighthouse" : `the other ${left} lighthouses`} alone.`;
  const lost =
    lackingPeers === 0 ? "No node has lost a peer." : `${plural(lackingPeers, "node")} lost peers.`;
  return {
    sign: "need",
    words,
    alarm: {
      id: lighthouse.id,
      name: lighthouse.name,
      facts: `Tunnels that are up stay up. ${found} ${lost}`,
    },
  };
}

const textsIn = (all: readonly unknown[]) => all.filter((each) => typeof each === "string");

type History = SentOf<typeof nodesApi.online>;
type Point = History["points"][number];
/** `bad`: the part of the facts that needs somebody, or "". */
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
  const fewer = before === undefined ? 0 : Math.round(before.online) - online;
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
