// Evaluates all causes of alarms: compares what is wrong now with the open alarms, raises new ones and ends others. Runs on one
// replica. Its state is in the database, so that another replica can continue; only `BrokenSince` begins again.
//
// `heads` of an alarm: the keys (ids of nodes, or what a finder names) that it is about; it is open as long as one of them is left.
// `rest`: keys that went wrong together with them (open-alarms.ts).

import { messageOf } from "../../base/errors.ts";
import { alarmKinds, type AlarmKind } from "../../api/webhooks/alarms.ts";
import type { ServerOptions } from "../options.ts";
import { openDrills } from "../rollout/drills.ts";
import type { Silence } from "../nodes/contact/away-nodes.ts";
import { computed, integer, queryAll } from "../store/table.ts";
import { alarms, type AlarmRow } from "../store/tables/webhooks.ts";
import { awayCauses, awayLeft, isAboutAway, isSettled, readAway, type Away } from "./away-causes.ts";
import type { Asked } from "./finder.ts";
import { follow, raise } from "./open-alarms.ts";
import { finders } from "./other-causes.ts";
import { headsOf, pathCauses, readBroken, type Broken, type BrokenSince } from "./path-causes.ts";
import { ruledPick, ruleIsOff, valueOf, type Ruled } from "./alarm-rules.ts";
import { withoutRevoked, type FollowedAlarm } from "./revoked-nodes.ts";

type Services = Pick<ServerOptions, "db" | "log"> & Pick<Asked, "warnings">;

/** How often to look for causes for which a minute does not matter. */
const slowMs = 60_000;

/** Broken pairs whose beginning is remembered. Further ones begin with the next turn. */
const maxBroken = 100_000;

/** The same for causes of finders. */
const maxFound = 100_000;

/** Returns the work of one turn, which runs every few seconds. `silence`: undefined while there is no node. */
export function makeAlarms({ db, log, warnings }: Services): (silence: Silence | undefined) => Promise<void> {
  let lastSlowAt = Number.NEGATIVE_INFINITY;
  // Since when each pair is broken, as of the turn before. A pair that a turn does not find broken begins anew.
  const brokenBefore: BrokenSince = new Map();
  const foundBefore: FoundSince = new Map();
  return async (silence) => {
    if (silence === undefined) return;
    // Also at once after the clock was set back.
    const isSlow = Math.abs(silence.now - lastSlowAt) >= slowMs;
    if (isSlow) lastSlowAt = silence.now;
    const silentByOrg = Map.groupBy(silence.nodes, ({ orgId }) => orgId);
    const open = await queryAll(
      db,
      alarms,
      `SELECT ${alarms.select()} FROM alarms WHERE ended_at IS NULL ORDER BY id`,
    );
    const openByOrg = Map.groupBy(open, ({ orgId }) => orgId);
    const orgsWithBroken = new Set(
      (await queryAll(db, orgPick, "SELECT DISTINCT org_id FROM paths WHERE probe = 'broken'")).map(
        ({ orgId }) => orgId,
      ),
    );
    const brokenAfter: BrokenSince = new Map();
    const foundAfter: FoundSince = new Map();
    const inDrill = await openDrills(db, silence.now);
    for (const org of await queryAll(db, ruledPick, liveOrganizations)) {
      const openOfOrg = openByOrg.get(org.id) ?? [];
      const silent = silentByOrg.get(org.id) ?? [];
      const isBusy = silent.length > 0 || openOfOrg.length > 0 || orgsWithBroken.has(org.id);
      if (!isBusy && !isSlow) continue;
      const isDrill = inDrill.has(org.id);
      const found = { foundBefore, foundAfter };
      const situation = { db, org, silence, isSlow, isDrill, brokenBefore, brokenAfter, ...found, warnings };
      // A failure of one organization must not stop the alarms of the others.
      await evaluate(situation, openOfOrg, silent).catch((error: unknown) =>
        log.warn("The alarms of an organization could not be evaluated; retrying", {
          organization: org.slug,
          reason: messageOf(error),
        }),
      );
      // After a failure before the pairs were read, their time goes on.
      const pairs = brokenAfter.get(org.id) ?? brokenBefore.get(org.id);
      if (pairs !== undefined) brokenAfter.set(org.id, pairs);
    }
    if (isSlow) {
      foundBefore.clear();
      for (const [key, since] of foundAfter) if (foundBefore.size < maxFound) foundBefore.set(key, since);
    }
    brokenBefore.clear();
    let sum = 0;
    for (const [orgId, pairs] of brokenAfter) {
      sum += pairs.size;
      if (sum <= maxBroken) brokenBefore.set(orgId, pairs);
    }
  };
}

/** Since when slow turns find each cause, ms. Only in memory, as `BrokenSince`. */
type FoundSince = Map<string, number>;

const liveOrganizations = `SELECT ${ruledPick.select()} FROM organizations WHERE deleted_at IS NULL`;
const orgPick = computed({ orgId: integer() });

/** What one turn knows about an organization. */
type Situation = {
  db: ServerOptions["db"];
  org: Ruled;
  silence: Silence;
  /** This turn also looks for the causes of `finders`, once a minute. */
  isSlow: boolean;
  /** A drill takes nodes away, or has just ended. */
  isDrill: boolean;
  brokenBefore: BrokenSince;
  brokenAfter: BrokenSince;
  foundBefore: FoundSince;
  foundAfter: FoundSince;
  warnings: Asked["warnings"];
};
/** `open`: the open alarms of the organization, without revoked nodes. `revoked` of one: the sentence that ends it if no node is left. */
type Turn = Situation & { open: readonly FollowedAlarm[] };

async function evaluate(
  situation: Situation,
  alarmsBefore: readonly AlarmRow[],
  silent: Silence["nodes"],
): Promise<void> {
  const { db, org, silence, isSlow } = situation;
  const silentKeys = new Set(silent.map(({ id }) => String(id)));
  const open: FollowedAlarm[] = [];
  for (const alarm of alarmsBefore) open.push(await withoutRevoked(db, alarm, silentKeys));
  const turn: Turn = { ...situation, open };
  // Paths name their relays by name or by address.
  const silentNames = new Set(silent.flatMap(({ name, ip, ip6 }) => [name, ip, ip6 ?? ip]));
  const broken = await readBroken(db, org.id, silence, silentNames, situation);
  // After a stop of the server, nodes need time to check in again: until then, neither raise nor end alarms about them. During a
  // drill, its own report says what broke.
  if (isSettled(silence) && !turn.isDrill) {
    const away = await readAway(db, org, silence, silent);
    await evaluateAway(turn, away);
    await evaluatePaths(turn, away, broken);
  }
  if (!isSlow) return;
  for (const kind of alarmKinds) if (finders[kind] !== undefined) await evaluateKind(turn, kind);
}

const ofKind = ({ open }: Turn, wanted: AlarmKind) =>
  open.filter((alarm) => alarm.kind === wanted && !isAboutAway(alarm));

async function evaluateAway(turn: Turn, away: Away): Promise<void> {
  const { db, org, silence } = turn;
  const open = turn.open.filter(isAboutAway);
  /** Nodes that open alarms are about: no other alarm is raised for them. */
  const covered = new Set<string>();
  for (const alarm of open) {
    const left = awayLeft(away, alarm);
    // An alarm that waits for its end still covers the nodes that it named last.
    for (const key of [...(left.heads.length > 0 ? left.heads : alarm.heads), ...left.rest]) covered.add(key);
    await follow(db, alarm, { ...left, why: alarm.revoked ?? left.why }, silence.now);
  }
  for (const cause of await awayCauses(db, away, covered)) await raise(db, org.id, cause, silence.now);
}

async function evaluatePaths(turn: Turn, { silent }: Away, { pairs, isWhole }: Broken): Promise<void> {
  const { db, org, silence } = turn;
  const open = ofKind(turn, "path");
  const afterMinutes = valueOf(org, "path");
  const openHeads = open.flatMap(({ heads }) => heads.map(Number));
  const heads = headsOf(pairs, openHeads);
  /** The names of silent nodes by key. */
  const silentNames = new Map(silent.map(({ id, name }) => [String(id), name]));
  for (const alarm of open) {
    const silentHead = alarm.heads.find((key) => silentNames.has(key));
    // If not all pairs were read, a head that is not among them may still have a broken one.
    const isBroken = (key: string) => heads.has(Number(key)) || (!isWhole && !silentNames.has(key));
    const brokenHeads = afterMinutes === undefined ? [] : alarm.heads.filter(isBroken);
    const whyAway =
      silentHead === undefined ? undefined : `${silentNames.get(silentHead)} does not check in any more`;
    const why = afterMinutes === undefined ? ruleIsOff : (whyAway ?? alarm.revoked);
    await follow(db, alarm, { heads: brokenHeads, rest: [], why }, silence.now);
  }
  if (afterMinutes === undefined) return;
  const newHeads = new Map([...heads].filter(([head]) => !openHeads.includes(head)));
  for (const cause of pathCauses(newHeads, { afterMs: afterMinutes * 60_000, now: silence.now }))
    await raise(db, org.id, cause, silence.now);
}

/** For how long the slow turns have found this cause without a break, ms. */
function foundFor({ silence, foundBefore, foundAfter }: Turn, key: string): number {
  const since = Math.min(foundBefore.get(key) ?? silence.now, silence.now);
  foundAfter.set(key, since);
  return silence.now - since;
}

async function evaluateKind(turn: Turn, kind: AlarmKind): Promise<void> {
  const { db, org, silence, warnings } = turn;
  const open = ofKind(turn, kind);
  const value = valueOf(org, kind);
  const asked = { db, org, now: silence.now, value: value ?? 0, isOpen: open.length > 0, warnings };
  const found = value === undefined ? undefined : await finders[kind]?.(asked);
  const keysNow = new Set(found?.keys);
  for (const alarm of open) {
    const heads = alarm.heads.filter((key) => keysNow.has(key));
    const why = value === undefined ? ruleIsOff : (alarm.revoked ?? found?.why?.(alarm.heads));
    await follow(db, alarm, { heads, rest: [], why }, silence.now);
  }
  const covered = new Set(open.flatMap(({ heads }) => heads));
  const afterMs = found?.afterMs;
  // Called for all keys, so that each is remembered.
  const dueKeys = [...keysNow].filter(
    (key) => afterMs === undefined || foundFor(turn, `${org.id} ${kind} ${key}`) >= afterMs,
  );
  const newKeys = dueKeys.filter((key) => !covered.has(key));
  if (found === undefined || newKeys.length === 0) return;
  await raise(db, org.id, { kind, heads: newKeys, rest: [], ...found.describe(newKeys) }, silence.now);
}
