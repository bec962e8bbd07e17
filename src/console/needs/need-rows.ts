// What needs a user, in words: one row of Overview for each need, the worst first. Pure.

import type { Attention } from "../../api/paths/attention.ts";
import type { GroupPaths } from "../../api/paths/paths.ts";
import { separateCopy } from "../../protocol/finding-kinds.ts";
import { secondLighthouse } from "../../protocol/second-lighthouse.ts";
import { ago } from "../words/ago.ts";
import { stepOf } from "../certificates/authorities.ts";
import { isRed, needCounts, type Found, type NeedKind } from "./need-kinds.ts";
import { updateEngine, vulnerabilitiesOf } from "../nodes/states.ts";
import { keyOf, type Registration } from "../joining/registrations.ts";
import { relayText } from "./relayed-traffic.ts";
import { backupCommand } from "./backup-command.ts";
import type { SignName } from "../ui/drawings.ts";
import { plural } from "../words/numbers.ts";

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

/** How many lighthouses are not listed as away. */
export const lighthousesLeft = ({ lighthouses, hubs_away: { first } }: Attention) =>
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
