// What an organization of a picture has behind it: counts of a month, and events of a week, with the absence of a relay.

import { ourselves, record } from "../../src/server/audit/record.ts";
import type { EventType } from "../../src/api/events.ts";
import type { Database } from "../../src/server/store/database.ts";
import { onlineCounts } from "../../src/server/store/tables/online-counts.ts";

const minuteMs = 60_000;
const hourMs = 60 * minuteMs;
const dayMs = 24 * hourMs;

/** `online`, `pairs`: at most, by day. */
export type Past = { machines: number; online: number; pairs: number; relayed: number; broken: number };

/** By day more is online than at night; a little noise, always the same. */
const wave = (at: number) => Math.sin((((at % dayMs) / hourMs - 6) / 24) * 2 * Math.PI);
/** From -1 to 1, without a pattern to the eye. */
const flicker = (at: number) => (Math.sin(at / minuteMs) * 43_758.5453) % 1;

/** One row each five minutes of the last 30 days. */
export async function seedCounts(db: Database, orgId: number, past: Past, now: number): Promise<void> {
  const { machines: active, pairs } = past;
  await db.write(async (tx) => {
    for (let at = now - 30 * dayMs - (now % (5 * minuteMs)); at < now; at += 5 * minuteMs) {
      const online = Math.round(
        past.online * (active < 100 ? 1 : 0.985 + 0.006 * wave(at) + 0.007 * flicker(at)),
      );
      const relayed = Math.round(past.relayed * (0.9 + 0.1 * flicker(at)));
      // Two paths broke a quarter of an hour ago, and others for an hour some days ago.
      const isBad = at > now - 15 * minuteMs || Math.abs(now - 2.3 * dayMs - at) < hourMs / 2;
      const broken = isBad ? past.broken : 0;
      const median = 9500 + 500 * wave(at) + 900 * flicker(at);
      await onlineCounts.insert(tx, {
        orgId,
        at,
        active,
        online: Math.max(0, online),
        applied: at > now - 20 * minuteMs && past.broken > 0 ? active - 2 : active,
        direct: pairs - relayed - broken,
        relayed,
        broken,
        rttMedian: pairs === 0 ? null : Math.round(median),
        rtt95: pairs === 0 ? null : Math.round(median * 4.3),
      });
    }
  });
}

type Details = Record<string, unknown>;
type Happened = {
  hoursAgo: number;
  type: EventType;
  subject: string;
  before?: Details;
  after?: Details;
};

/** What happened in the last week: renewals all day, changes by people at work, and the relay that went away. */
export async function seedEvents(
  db: Database,
  orgId: number,
  { machines, relay }: { machines: readonly { id: number; name: string }[]; relay: string },
  now: number,
): Promise<void> {
  const all: Happened[] = [];
  for (let hoursAgo = 7 * 24; hoursAgo >= 1; hoursAgo--) {
    const hour = (24 + Math.floor(((now - hoursAgo * hourMs) % dayMs) / hourMs)) % 24;
    const count = (hoursAgo * 31) % (hour > 7 && hour < 19 ? 5 : 2);
    for (let at = 0; at < count; at++) {
      const { id } = machines[(hoursAgo * 17 + at * 5) % machines.length] ?? { id: 1, name: "" };
      const event = { hoursAgo: hoursAgo - at / 7, subject: `node/${id}` };
      const renewed = { fingerprint: `${id}`.padStart(64, "0") };
      if (at % 3 < 2) all.push({ ...event, type: "certificate.renewed", after: renewed });
      else all.push({ ...event, type: "node.updated", before: { groups: [] }, after: { groups: ["eu"] } });
    }
  }
  const away = machines.find(({ name }) => name === relay);
  if (away !== undefined) {
    const away_since = new Date(now - hourMs).toISOString();
    const [type, subject, after] = ["node.away", `node/${away.id}`, { name: relay, away_since }] as const;
    all.push({ hoursAgo: 0.75, type, subject, after });
  }
  await db.writeFor({ org: orgId }, (tx) =>
    record(
      tx,
      all.map(({ hoursAgo, ...event }) => ({
        orgId,
        at: Math.round(now - hoursAgo * hourMs),
        actor: ourselves,
        ...event,
      })),
    ),
  );
}
