// Causes that are not about reachability: each finder says what is wrong now, by key. They are looked for once a minute.

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
import { findHeldRollout } from "./rollout-causes.ts";

export const certificateTitle = (names: readonly string[]) =>
  `${namesOf(names)}: the certificate was not renewed`;

export const finders: Readonly<Partial<Record<AlarmKind, Finder>>> = {
  async certificate({ db, org, now, isOpen }) {
    const ofOnline = await readNotRenewed(db, org.id, now, { ofOnline: true });
    const ofAll = isOpen ? await readNotRenewed(db, org.id, now) : [];
    return {
      keys: ofOnline.map(({ id }) => String(id)),
      why(heads) {
        const ids = new Set(heads);
        const names = ofAll.flatMap(({ id, name }) => (ids.has(String(id)) ? [name] : []));
        if (names.length === 0) return undefined;
        return `${namesOf(names)} ${names.length === 1 ? "does" : "do"} not check in any more`;
      },
      tell(news) {
        const ids = new Set(news);
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
  },
  ca: findEndingCas,
  async backup({ db, org, now, value }) {
    if (!(await isOfStaff(db, org.id))) return nothing;
    const made = await lastBackupAt(db);
    const last = made ?? (await queryNumber(db, firstUse));
    if (now - last < value * dayMs) return nothing;
    return theOnlyCause({
      title:
        made === undefined
          ? `The control plane has no backup, after ${value} days`
          : `The last backup of the control plane is older than ${value} days`,
      text: `${made === undefined ? "No backup was ever made" : `Last one: ${formatTime(made)}`}. Without a backup, a lost disk is the end of all organizations. Make one: \`sudo ${brand.executable} admin backup FILE\`.`,
      isUrgent: false,
      since: last + value * dayMs,
    });
  },
  async server({ db, org, now, warnings }) {
    if (!(await isOfStaff(db, org.id))) return nothing;
    const present = new Map(warnings().map((warning) => [warning.code as string, warning]));
    return {
      // A disk that is full now is not well again.
      keys: [...present.keys(), ...(present.has("disk_full") ? ["disk_filling"] : [])],
      tell(news) {
        const told = news.flatMap((code) => present.get(code) ?? []);
        return {
          title: told.map(({ text }) => text.replace(/\.$/, "")).join("; "),
          text: told.map(({ hint }) => hint).join("\n"),
          isUrgent: told.some(({ code }) => code !== "disk_filling"),
          since: now,
        };
      },
    };
  },
  update: findHeldRollout,
  async policy({ db, org, now }) {
    const sql = `SELECT ${failing.select()} FROM policies WHERE org_id = $1 AND failing <> '[]' AND tests <> '[]'`;
    const [row] = await queryAll(db, failing, sql, [org.id]);
    const keys = row?.failing ?? [];
    return {
      keys,
      tell(news) {
        const more = news.length - maxNamed;
        return {
          title: `${news.length === 1 ? "A test" : `${news.length} tests`} of the policy of ${org.slug} ${news.length === 1 ? "fails" : "fail"}`,
          text: [...news.slice(0, maxNamed), ...(more > 0 ? [`and ${more} more`] : [])].join("\n"),
          isUrgent: false,
          since: now,
        };
      },
    };
  },
  async sign_ins({ db, org, now, value, isOpen }) {
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
  },
};

const failing = policies.pick("failing");
/** The control plane belongs to its operator: only organizations that staff own get alarms about it. */
const isOfStaff = async (db: Reader, orgId: number) => (await queryNumber(db, ownedByStaff, [orgId])) > 0;
const ownedByStaff = `SELECT count(*) AS n FROM memberships m JOIN users u ON u.id = m.user_id
  WHERE m.org_id = $1 AND m.role IN ('owner', 'admin') AND u.is_staff = 1 AND u.bound_org_id IS NULL`;
const firstUse = "SELECT coalesce(min(created_at), 0) AS n FROM organizations";
/** The hours are those of the index `events_hours`. */
const refusals = `SELECT count(*) AS n FROM events WHERE org_id = $1 AND (at / 3600000) IN ($2, $3)
  AND type = 'security.login_failed' AND at > $4`;
