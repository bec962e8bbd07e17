// An update in rings that stopped because a node does not work with it, or that waits for an administrator.

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
  // An administrator who pauses it gives no reason.
  if (row.state === "paused" && row.reason !== "") return about(asked, row, "paused");
  if (row.failedNode === null || !["stopped", "returning"].includes(row.state))
    return { ...nothing, why: whyEnded };
  if (row.state === "stopped" && (await isBack(asked, row)))
    return { ...nothing, why: () => "Its nodes run their former version again, and are online" };
  return about(asked, row, "stopped");
};

const keyOf = (id: number, did: "paused" | "stopped") => `rollout/${id}${did === "paused" ? "/paused" : ""}`;
const whyEnded = ([key]: readonly string[]) =>
  key?.endsWith("/paused") === true ? "It waits no longer" : undefined;

function about({ org }: Asked, row: Newest, did: "paused" | "stopped"): Found {
  const { ring, reason, probe, since } = row;
  return {
    keys: [keyOf(row.id, did)],
    why: whyEnded,
    tell: () => ({
      title: `The update ${row.id} of ${org.slug} ${did} in ring ${ring}`,
      // Not the line of the log, which names network addresses of peers: members and webhooks read alarms.
      text: `${[reason, probe].filter((each) => each !== "").join("; ")}. See: \`${brand.executable} admin rollout show ${org.slug} ${row.id}\`.`,
      isUrgent: false,
      since,
    }),
  };
}

/** Nodes of the ring that have not gone back, or have not checked in since. */
const countNotBack = `SELECT count(*) AS n FROM rollout_nodes m JOIN nodes n ON n.id = m.node_id
    LEFT JOIN sightings s ON s.node_id = m.node_id
  WHERE m.rollout_id = $1 AND m.ring = $2 AND n.state = 'active'
    AND (m.state IN ('told', 'applied', 'passed', 'failed', 'returning')
      OR (m.state = 'returned' AND coalesce(s.last_checkin_at, 0) <= $3))`;
const countRaised = "SELECT count(*) AS n FROM alarms WHERE org_id = $1 AND kind = 'update' AND heads = $2";
const countOpen = `${countRaised} AND ended_at IS NULL`;

/** Whether the nodes of a stopped rollout are back. One that was never told is told in any case, for a day. */
async function isBack({ db, org, now }: Asked, { id, ring, since }: Newest): Promise<boolean> {
  const alarm = [org.id, JSON.stringify([keyOf(id, "stopped")])];
  if ((await queryNumber(db, countOpen, alarm)) > 0)
    return (await queryNumber(db, countNotBack, [id, ring, now - onlineMs])) === 0;
  return now - since > dayMs || (await queryNumber(db, countRaised, alarm)) > 0;
}
