// What processes of server mode know of the peers of an organization, between the runs of check-auth and `agent ping`: results of
// probes, and what the control plane said. For root alone. Times are saved as ages: each process has a monotonic clock of its own.

import * as v from "valibot";
import { given } from "../../base/given.ts";
import { join } from "node:path";
import { makeDirectory, writeFileUntilBoot } from "../../base/files.ts";
import type { System } from "../../base/system.ts";
import type { PlaneFacts } from "./assessment.ts";
import type { NamedPeers } from "./named-peers.ts";
import type { Prober } from "./prober.ts";
import type { ProbeRecord } from "./probe-record.ts";
import { count, readSaved, text } from "./saved-health.ts";

/** How long ago something was, in ms. */
const age = v.pipe(v.number(), v.minValue(0));

const mostProbes = 1000;
const SavedProbes = v.object({
  /** ms since 1970. */
  at: v.number(),
  probes: v.pipe(
    v.record(
      text(64),
      v.object({
        /** How long ago it answered; null: never. */
        answered_ms: v.nullable(age),
        rtt_ms: v.nullable(v.pipe(v.number(), v.minValue(0))),
        missed: count,
        /** How long it has been probed. */
        since_ms: v.optional(age),
        /** The tunnel's index at its last answer. */
        index: v.optional(count),
        /** How long ago a user asked for this peer; absent if none did. */
        named_ms: v.optional(age),
      }),
    ),
    v.maxEntries(mostProbes),
  ),
  /** Overlay address → the size in bytes above which packets to it are lost. */
  lost: v.optional(v.pipe(v.record(text(64), count), v.maxEntries(mostProbes)), {}),
  /** What the control plane said: PlaneFacts in assessment.ts explains each member. */
  told: v.optional(
    v.object({
      others: v.optional(v.object({ online: v.boolean(), age_ms: age })),
      cloned: v.optional(v.object({ age_ms: age })),
      elsewhere: v.optional(
        v.object({ said: v.object({ public_ip: text(64), seen: text(64) }), age_ms: age }),
      ),
      unreached: v.optional(v.object({ age_ms: age })),
      clockAhead: v.optional(v.object({ ms: v.number(), age_ms: age })),
    }),
    {},
  ),
});
type SavedProbes = v.InferOutput<typeof SavedProbes>;

type Clock = Pick<System, "now"> & { monotonic(): number };
/** What a process knows of its peers. */
type ProbeState = {
  prober: Prober;
  named: NamedPeers;
  lostLarge: Map<string, number>;
  planeFacts: PlaneFacts;
  /** Whether this process has heard of the control plane itself. If not, what another process wrote of it is newer. */
  hasHeardPlane: boolean;
  /** Which of these peers are revoked, deleted, or not reachable by rules any more: they are not taken over. */
  goneAmong(addresses: readonly string[]): readonly string[];
};

/**
 * Writes what this process knows, check-auth or `agent ping`, after it has taken over which peers the other one has probed and, if it
 * has not asked the control plane itself, what that said. So check-auth goes on with the peers that a user asked for. Lost large
 * packets are not taken over: each process measures them. The file is for root alone: it shows whom this node talks to.
 */
export function exchangeProbes(directory: string, slug: string, known: ProbeState, clock: Clock): void {
  const now = clock.monotonic();
  // Without peers that never answered: this process drops such peers itself, and they would come back from its own file.
  const former = takeOver(directory, slug, known, clock, (record) => record.answeredAt !== undefined);
  if (former !== undefined && !known.hasHeardPlane) known.planeFacts = fromAges(former, clock);
  const probes = Object.fromEntries(
    known.prober
      .records()
      .slice(-mostProbes)
      .map(([address, { answeredAt, rttMs, missed, since, index }]) => {
        const namedAt = known.named.namedAt(address, now);
        const probe = {
          answered_ms: answeredAt === undefined ? null : now - answeredAt,
          rtt_ms: rttMs ?? null,
          missed,
          since_ms: Math.max(0, now - since),
          ...given({ index }),
          ...(namedAt === undefined ? {} : { named_ms: now - namedAt }),
        };
        return [address, probe];
      }),
  );
  const saved: SavedProbes = {
    at: clock.now(),
    probes,
    told: toAges(known.planeFacts, now),
    lost: Object.fromEntries(known.lostLarge),
  };
  makeDirectory(directory, 0o755);
  writeFileUntilBoot(join(directory, `${slug}.probes.json`), `${JSON.stringify(saved)}\n`, 0o600);
}

/** Takes over the state of earlier processes. */
export function restoreProbes(directory: string, slug: string, known: ProbeState, clock: Clock): void {
  const saved = takeOver(directory, slug, known, clock, () => true);
  if (saved === undefined) return;
  for (const [to, bytes] of Object.entries(saved.lost)) known.lostLarge.set(to, bytes);
  known.planeFacts = fromAges(saved, clock);
}

function fromAges({ at, told }: SavedProbes, clock: Clock): PlaneFacts {
  const savedAt = savedAtOf(at, clock);
  const { others, cloned, elsewhere, unreached, clockAhead } = told;
  return {
    others: others && { online: others.online, at: savedAt - others.age_ms },
    cloned: cloned && { at: savedAt - cloned.age_ms },
    elsewhere: elsewhere && { said: elsewhere.said, at: savedAt - elsewhere.age_ms },
    unreached: unreached && { at: savedAt - unreached.age_ms },
    clockAhead: clockAhead && { ms: clockAhead.ms, at: savedAt - clockAhead.age_ms },
  };
}

function toAges(
  { others, cloned, elsewhere, unreached, clockAhead }: PlaneFacts,
  now: number,
): SavedProbes["told"] {
  return {
    others: others && { online: others.online, age_ms: now - others.at },
    cloned: cloned && { age_ms: now - cloned.at },
    elsewhere: elsewhere && { said: elsewhere.said, age_ms: now - elsewhere.at },
    unreached: unreached && { age_ms: now - unreached.at },
    clockAhead: clockAhead && { ms: clockAhead.ms, age_ms: now - clockAhead.at },
  };
}

/** When the file was written, by this process's clock. If the system's clock was set back since, no time counts as passed. */
const savedAtOf = (at: number, clock: Clock) => clock.monotonic() - Math.max(0, clock.now() - at);

/** Adds the saved probes of addresses that this process has not probed itself. */
function takeOver(
  directory: string,
  slug: string,
  known: ProbeState,
  clock: Clock,
  isWanted: (record: ProbeRecord) => boolean,
): SavedProbes | undefined {
  const saved = readSaved(SavedProbes, join(directory, `${slug}.probes.json`));
  if (saved === undefined) return undefined;
  const savedAt = savedAtOf(saved.at, clock);
  const { prober, named } = known;
  const gone = new Set(known.goneAmong(Object.keys(saved.probes)));
  for (const [address, probe] of Object.entries(saved.probes)) {
    const { answered_ms, rtt_ms, missed, named_ms, since_ms = 0, index } = probe;
    if (gone.has(address)) continue;
    if (named_ms !== undefined) named.add([address], savedAt - named_ms);
    const record: ProbeRecord = {
      answeredAt: answered_ms === null ? undefined : savedAt - answered_ms,
      rttMs: rtt_ms ?? undefined,
      missed,
      since: savedAt - since_ms,
      index,
      sent: 0,
      history: [],
    };
    if (prober.record(address) === undefined && isWanted(record)) prober.restore(address, record);
  }
  return saved;
}
