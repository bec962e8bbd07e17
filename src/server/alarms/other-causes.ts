// Causes that are not about reachability: each finder says what is wrong now, by key. They are looked for once a minute.

import { formatTime } from "../../base/quantities.ts";
import { brand } from "../../brand.ts";
import { onlineMs } from "../../api/values.ts";
import type { AlarmKind } from "../../api/webhooks.ts";
import { notRenewed } from "../nodes/attention.ts";
import type { Reader } from "../store/database.ts";
import { lastBackupAt } from "../store/meta.ts";
import { queryAll, queryNumber } from "../store/table.ts";
import { authorities } from "../store/tables/certificates.ts";
import { policies } from "../store/tables/policies.ts";
import { rollouts, type RolloutRow } from "../store/tables/rollouts.ts";
import { namesOf } from "./away-causes.ts";
import type { Cause } from "./open-alarms.ts";
import type { Ruled } from "./alarm-rules.ts";

export type Finding = Omit<Cause, "kind" | "rest">;
/** What is wrong now: the keys of the causes, and the words for an alarm about new ones. `isOpen`: an alarm of this kind is open. */
type Found = {
  keys: readonly string[];
  tell(news: readonly string[]): Omit<Finding, "heads">;
  /** Why an alarm about these keys ends, if they are not well. */
  why?(heads: readonly string[]): string | undefined;
};
type Asked = { db: Reader; org: Ruled; now: number; value: number; isOpen: boolean };
type Finder = (asked: Asked) => Promise<Found>;

const dayMs = 86_400_000;
const none: Found = {
  keys: [],
  tell: () => ({ title: "", text: "", isUrgent: false, since: 0 }),
};

/** The one key of what exists once. */
const itself = "";
const once = (told: Omit<Finding, "heads">): Found => ({ keys: [itself], tell: () => told });

export const certificateTitle = (names: readonly string[]) =>
  `${namesOf(names)}: the certificate was not renewed`;

export const finders: Readonly<Partial<Record<AlarmKind, Finder>>> = {
  async certificate({ db, org, now, isOpen }) {
    const { first } = await notRenewed(db, org.id, now, { ofOnline: true });
    const all = isOpen ? await notRenewed(db, org.id, now) : { first: [] };
    return {
      keys: first.map(({ id }) => String(id)),
      why(heads) {
        const names = all.first.flatMap(({ id, name }) => (heads.includes(String(id)) ? [name] : []));
        if (names.length === 0) return undefined;
        return `${namesOf(names)} ${names.length === 1 ? "does" : "do"} not check in any more`;
      },
      tell(news) {
        const late = first.filter(({ id }) => news.includes(String(id)));
        const ends = late.map(({ name, not_after }) => `${name}: ${not_after}`);
        return {
          title: certificateTitle(late.map(({ name }) => name)),
          text: `It ends, and with it the connection to all nodes. ${ends.join(", ")}. On the node: \`sudo ${brand.executable} checkin\`.`,
          isUrgent: true,
          since: now,
        };
      },
    };
  },
  async ca({ db, org, now, value }) {
    const sql = `SELECT ${ending.select()} FROM authorities
      WHERE org_id = $1 AND state = 'active' AND not_after < $2 ORDER BY not_after`;
    const found = await queryAll(db, ending, sql, [org.id, now + value * dayMs]);
    return {
      keys: found.map(({ fingerprint }) => fingerprint),
      tell: (news) => ({
        title: `A CA of ${org.slug} ends soon, and was not replaced`,
        text: `${found.flatMap(({ fingerprint, kind, notAfter }) => (news.includes(fingerprint) ? [`${kind}: ${formatTime(notAfter)}`] : [])).join(", ")}. All nodes lose each other then. See: \`${brand.executable} admin ca show ${org.slug}\`.`,
        isUrgent: true,
        since: now,
      }),
    };
  },
  async backup({ db, org, now, value }) {
    // The control plane belongs to its operator: only organizations that staff own get this alarm.
    if ((await queryNumber(db, ownedByStaff, [org.id])) === 0) return none;
    const made = await lastBackupAt(db);
    const last = made ?? (await queryNumber(db, firstUse));
    if (now - last < value * dayMs) return none;
    return once({
      title:
        made === undefined
          ? `The control plane has no backup, after ${value} days`
          : `The last backup of the control plane is older than ${value} days`,
      text: `${made === undefined ? "No backup was ever made" : `Last one: ${formatTime(made)}`}. Without a backup, a lost disk is the end of all organizations. Make one: \`sudo ${brand.executable} admin backup FILE\`.`,
      isUrgent: false,
      since: last + value * dayMs,
    });
  },
  async update({ db, org, now, isOpen }) {
    const sql = `SELECT ${newestRollout.select()} FROM rollouts WHERE org_id = $1 ORDER BY id DESC LIMIT 1`;
    const [row] = await queryAll(db, newestRollout, sql, [org.id]);
    if (row === undefined || row.failedNode === null || !["stopped", "returning"].includes(row.state))
      return none;
    const key = `rollout/${row.id}`;
    if (row.state === "stopped" && (await isRolloutOver(db, org, { ...row, key, isOpen, now })))
      return { ...none, why: () => "Its nodes run their former version again, and are online" };
    return {
      keys: [key],
      tell: () => ({
        title: `The update ${row.id} of ${org.slug} stopped in ring ${row.ring}`,
        // Not the line of the log, which names network addresses of peers: members and webhooks read alarms.
        text: `${[row.reason, row.probe].filter((each) => each !== "").join("; ")}. See: \`${brand.executable} admin rollout show ${org.slug} ${row.id}\`.`,
        isUrgent: false,
        since: row.since,
      }),
    };
  },
  async policy({ db, org, now }) {
    const sql = `SELECT ${failing.select()} FROM policies WHERE org_id = $1 AND failing <> '[]' AND tests <> '[]'`;
    const [row] = await queryAll(db, failing, sql, [org.id]);
    const keys = row?.failing ?? [];
    return {
      keys,
      tell: (news) => ({
        title: `${news.length === 1 ? "A test" : `${news.length} tests`} of the policy of ${org.slug} ${news.length === 1 ? "fails" : "fail"}`,
        text: news.slice(0, 5).join("\n"),
        isUrgent: false,
        since: now,
      }),
    };
  },
  async sign_ins({ db, org, now, value, isOpen }) {
    const hour = Math.floor(now / 3_600_000);
    const refused = await queryNumber(db, refusals, [org.id, hour - 1, hour, now - 600_000]);
    // An open alarm ends at a quarter of the value, so that it does not flap.
    if (refused < (isOpen ? Math.ceil(value / 4) : value)) return none;
    return once({
      title: `${refused} sign-ins to ${org.slug} were refused within 10 minutes`,
      text: `Wrong passwords or codes. For whom, and from where: \`${brand.executable} admin events ${org.slug} --type security.login_failed\`.`,
      isUrgent: false,
      since: now,
    });
  },
};

/** Nodes of the ring that have not gone back, or have not checked in since. */
const notBack = `SELECT count(*) AS n FROM rollout_nodes m JOIN nodes n ON n.id = m.node_id
    LEFT JOIN sightings s ON s.node_id = m.node_id
  WHERE m.rollout_id = $1 AND m.ring = $2 AND n.state = 'active'
    AND (m.state IN ('told', 'applied', 'passed', 'failed', 'returning')
      OR (m.state = 'returned' AND coalesce(s.last_checkin_at, 0) <= $3))`;
const raisedBefore = "SELECT count(*) AS n FROM alarms WHERE org_id = $1 AND kind = 'update' AND heads = $2";

/** A rollout that stopped raises one alarm in any case, also if its nodes have gone back already. */
async function isRolloutOver(
  db: Reader,
  org: Pick<Ruled, "id">,
  { id, ring, since, key, isOpen, now }: Pick<RolloutRow, "id" | "ring" | "since"> & Rolled,
): Promise<boolean> {
  if (isOpen) return (await queryNumber(db, notBack, [id, ring, now - onlineMs])) === 0;
  return now - since > dayMs || (await queryNumber(db, raisedBefore, [org.id, JSON.stringify([key])])) > 0;
}
type Rolled = Pick<Asked, "isOpen" | "now"> & { key: string };

const ending = authorities.pick("kind", "fingerprint", "notAfter");
const newestRollout = rollouts.pick("id", "state", "ring", "reason", "probe", "failedNode", "since");
const failing = policies.pick("failing");
const ownedByStaff = `SELECT count(*) AS n FROM memberships m JOIN users u ON u.id = m.user_id
  WHERE m.org_id = $1 AND m.role IN ('owner', 'admin') AND u.is_staff = 1 AND u.bound_org_id IS NULL`;
const firstUse = "SELECT coalesce(min(created_at), 0) AS n FROM organizations";
/** The hours are those of the index `events_hours`. */
const refusals = `SELECT count(*) AS n FROM events WHERE org_id = $1 AND (at / 3600000) IN ($2, $3)
  AND type = 'security.login_failed' AND at > $4`;
