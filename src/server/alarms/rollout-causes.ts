// Finds a rollout (an update in rings) that stopped because a node does not work with it, or that paused by itself and waits for an
// administrator. Only the newest rollout of an organization counts.

import { onlineMs } from "../../api/values.ts";
import { brand } from "../../brand.ts";
import { queryAll, queryNumber } from "../store/table.ts";
import { rollouts } from "../store/tables/rollouts.ts";
import { dayMs, nothing, type Asked, type Finder, type Found } from "./finder.ts";

const newestRollout = rollouts.pick("id", "state", "ring", "reason", "probe", "failedNode", "since");
type Newest = ReturnType<typeof newestRollout.parse>;

export const findHeldRollout: Finder = async (asked) => {
  const { db, org } = asked;
  const sql = `SELECT ${newestRollout.select()} FROM rollouts WHERE org_id = $1 ORDER BY id DESC LIMIT 1`;
  const [row] = await queryAll(db, newestRollout, sql, [org.id]);
  if (row === undefined) return nothing;
  // Without a reason, an administrator has paused it.
  if (row.state === "paused" && row.reason !== "") return about(asked, row, "paused");
  if (row.failedNode === null || !["stopped", "returning"].includes(row.state))
    return { ...nothing, why: whyEnded };
  if (row.state === "stopped" && (await isOver(asked, row)))
    return { ...nothing, why: () => "Its nodes run their former version again, and are online" };
  return about(asked, row, "stopped");
};

type Held = "paused" | "stopped";
const keyOf = (id: number, held: Held) => `rollout/${id}${held === "paused" ? "/paused" : ""}`;
/**
 * The words with which an alarm about these keys ends; undefined: "Well again". A rollout that goes on after a pause is no repair, so
 * its alarm must not end with that.
 */
const whyEnded = ([key]: readonly string[]) =>
  key?.endsWith("/paused") === true ? "It waits no longer" : undefined;

function about({ org }: Asked, row: Newest, held: Held): Found {
  const { ring, reason, probe, since } = row;
  return {
    keys: [keyOf(row.id, held)],
    why: whyEnded,
    describe: () => ({
      title: `The update ${row.id} of ${org.slug} ${held} in ring ${ring}`,
      // Not the line of the log, which names network addresses of peers: members and webhooks read alarms.
      text: `${[reason, probe].filter((each) => each !== "").join("; ")}. See: \`${brand.executable} admin rollout show ${org.slug} ${row.id}\`.`,
      isUrgent: false,
      since,
    }),
  };
}

/**
 * Nodes of the ring that have not gone back, or that have and are not online ($3: checked in after then). Only nodes in these states
 * were told to update.
 */
const countNotBack = `SELECT count(*) AS n FROM rollout_nodes m JOIN nodes n ON n.id = m.node_id
    LEFT JOIN sightings s ON s.node_id = m.node_id
  WHERE m.rollout_id = $1 AND m.ring = $2 AND n.state = 'active'
    AND (m.state IN ('told', 'applied', 'passed', 'failed', 'returning')
      OR (m.state = 'returned' AND coalesce(s.last_checkin_at, 0) <= $3))`;
// `heads`: the keys of an alarm, as JSON text.
const countRaised = "SELECT count(*) AS n FROM alarms WHERE org_id = $1 AND kind = 'update' AND heads = $2";
const countOpen = `${countRaised} AND ended_at IS NULL`;

/**
 * Whether a stopped rollout is no cause any more. While its alarm is open: once its nodes are back. Without an open alarm: once it
 * had one, or after a day. So each stopped rollout raises one alarm, even if its nodes are back at once.
 */
async function isOver({ db, org, now }: Asked, { id, ring, since }: Newest): Promise<boolean> {
  const ofAlarm = [org.id, JSON.stringify([keyOf(id, "stopped")])];
  if ((await queryNumber(db, countOpen, ofAlarm)) > 0)
    return (await queryNumber(db, countNotBack, [id, ring, now - onlineMs])) === 0;
  return now - since > dayMs || (await queryNumber(db, countRaised, ofAlarm)) > 0;
}
