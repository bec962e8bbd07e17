// The finders of causes that are not about reachability, by kind of alarm (see finder.ts). evaluate.ts calls them once a minute.

import { formatTime } from "../../base/quantities.ts";
import { brand } from "../../brand.ts";
import type { AlarmKind } from "../../api/webhooks/alarms.ts";
import { readNotRenewed } from "../nodes/attention.ts";
import { lastBackupAt } from "../store/meta.ts";
import type { Reader } from "../store/database.ts";
import { queryAll, queryNumber } from "../store/table.ts";
import { policies } from "../store/tables/policies.ts";
import { maxNamed, namesOf } from "./away-causes.ts";
import { findEndingCas } from "./ca-causes.ts";
import { dayMs, nothing, theOnlyCause, type Finder } from "./finder.ts";
import { findCutOffNetworks, findNoLighthouse } from "./hub-causes.ts";
import { findHeldRollout } from "./rollout-causes.ts";

export const certificateTitle = (names: readonly string[]) =>
  `${namesOf(names)}: the certificate was not renewed`;

const failingPick = policies.pick("failing");
/** Only organizations that staff administer get alarms about the control plane itself, which belongs to its operator. */
const isOfStaff = async (db: Reader, orgId: number) => (await queryNumber(db, ownedByStaff, [orgId])) > 0;
const ownedByStaff = `SELECT count(*) AS n FROM memberships m JOIN users u ON u.id = m.user_id
  WHERE m.org_id = $1 AND m.role IN ('owner', 'admin') AND u.is_staff = 1 AND u.bound_org_id IS NULL`;
const firstUse = "SELECT coalesce(min(created_at), 0) AS n FROM organizations";
/** $2, $3: the hours of the last ten minutes, which the index `events_hours` finds. */
const refusals = `SELECT count(*) AS n FROM events WHERE org_id = $1 AND (at / 3600000) IN ($2, $3)
  AND type = 'security.login_failed' AND at > $4`;

/** Keys: ids of online nodes. */
const findNotRenewed: Finder = async ({ db, org, now, isOpen }) => {
  const ofOnline = await readNotRenewed(db, org.id, now, { ofOnline: true });
  // For `why` alone, which says why an open alarm about the nodes `heads` ends: a node that went away is no longer in `keys`, although
  // its certificate is still not renewed.
  const ofAll = isOpen ? await readNotRenewed(db, org.id, now) : [];
  return {
    keys: ofOnline.map(({ id }) => String(id)),
    why(heads) {
      const ids = new Set(heads);
      const names = ofAll.flatMap(({ id, name }) => (ids.has(String(id)) ? [name] : []));
      if (names.length === 0) return undefined;
      return `${namesOf(names)} ${names.length === 1 ? "does" : "do"} not check in any more`;
    },
    describe(newKeys) {
      const ids = new Set(newKeys);
      const late = ofOnline.filter(({ id }) => ids.has(String(id)));
      const ends = late.map(({ name, not_after }) => `${name}: ${not_after}`);
      return {
        title: certificateTitle(late.map(({ name }) => name)),
        text: `It ends, and with it the connection to all nodes. ${namesOf(ends)}. On the node: \`sudo ${brand.executable} checkin\`.`,
        isUrgent: true,
        since: now,
      };
    },
  };
};

/** `value`: days. */
const findOldBackup: Finder = async ({ db, org, now, value }) => {
  if (!(await isOfStaff(db, org.id))) return nothing;
  const lastAt = await lastBackupAt(db);
  const since = lastAt ?? (await queryNumber(db, firstUse));
  if (now - since < value * dayMs) return nothing;
  return theOnlyCause({
    title:
      lastAt === undefined
        ? `The control plane has no backup, after ${value} days`
        : `The last backup of the control plane is older than ${value} days`,
    text: `${lastAt === undefined ? "No backup was ever made" : `Last one: ${formatTime(lastAt)}`}. Without a backup, a lost disk is the end of all organizations. Make one: \`sudo ${brand.executable} admin backup FILE\`.`,
    isUrgent: false,
    since: since + value * dayMs,
  });
};

/** Keys: codes of warnings. */
const findServerWarnings: Finder = async ({ db, org, now, warnings }) => {
  if (!(await isOfStaff(db, org.id))) return nothing;
  const byCode = new Map(warnings().map((warning) => [warning.code as string, warning]));
  return {
    // A disk that has become full raises its own, urgent alarm. The one about the filling disk must not end as "Well again".
    keys: [...byCode.keys(), ...(byCode.has("disk_full") ? ["disk_filling"] : [])],
    describe(newKeys) {
      const newWarnings = newKeys.flatMap((code) => byCode.get(code) ?? []);
      return {
        title: newWarnings.map(({ text }) => text.replace(/\.$/, "")).join("; "),
        text: newWarnings.map(({ hint }) => hint).join("\n"),
        isUrgent: newWarnings.some(({ code }) => code !== "disk_filling"),
        since: now,
      };
    },
  };
};

/** Keys: sentences of failing tests. */
const findFailingTests: Finder = async ({ db, org, now }) => {
  const sql = `SELECT ${failingPick.select()} FROM policies WHERE org_id = $1 AND failing <> '[]' AND tests <> '[]'`;
  const [row] = await queryAll(db, failingPick, sql, [org.id]);
  const keys = row?.failing ?? [];
  return {
    keys,
    describe(newKeys) {
      const more = newKeys.length - maxNamed;
      return {
        title: `${newKeys.length === 1 ? "A test" : `${newKeys.length} tests`} of the policy of ${org.slug} ${newKeys.length === 1 ? "fails" : "fail"}`,
        text: [...newKeys.slice(0, maxNamed), ...(more > 0 ? [`and ${more} more`] : [])].join("\n"),
        isUrgent: false,
        since: now,
      };
    },
  };
};

/** `value`: refused sign-ins within ten minutes. */
const findRefusedSignIns: Finder = async ({ db, org, now, value, isOpen }) => {
  const hour = Math.floor(now / 3_600_000);
  const refused = await queryNumber(db, refusals, [org.id, hour - 1, hour, now - 600_000]);
  // An open alarm ends at a quarter of the value, so that it does not flap.
  if (refused < (isOpen ? Math.ceil(value / 4) : value)) return nothing;
  return theOnlyCause({
    title: `${refused} sign-ins to ${org.slug} were refused within 10 minutes`,
    text: `Wrong passwords or codes. For whom, and from where: \`${brand.executable} admin events ${org.slug} --type security.login_failed\`.`,
    isUrgent: false,
    since: now,
  });
};

export const finders: Readonly<Partial<Record<AlarmKind, Finder>>> = {
  lighthouse: findNoLighthouse,
  router: findCutOffNetworks,
  certificate: findNotRenewed,
  ca: findEndingCas,
  backup: findOldBackup,
  server: findServerWarnings,
  update: findHeldRollout,
  policy: findFailingTests,
  sign_ins: findRefusedSignIns,
};
