// The health of organizations in server mode, between the runs of check-auth: what `status` shows, readable for everyone,
// and what the next run goes on with, for root alone. Not in the daemon's run directory, which goes when it stops; and not
// on a disk, since nothing of it is true after another boot.

import { given } from "../../base/given.ts";
import { join, resolve } from "node:path";
import * as v from "valibot";
import { brand, defaultPlaces } from "../../brand.ts";
import { makeDirectory, readTextIfThere, writeFileUntilBoot } from "../../base/files.ts";
import { ConfirmationAnswer } from "../../protocol/confirmation.ts";
import { RelayedAnswer } from "../../protocol/traffic-reports.ts";
import { ownPlatform } from "../../platform/own-directory.ts";
import type { System } from "../../base/system.ts";
import type { PlaneFacts } from "./assessment.ts";
import type { NamedPeers } from "./named-peers.ts";
import { allKinds } from "./findings.ts";
import type { Prober } from "./prober.ts";
import type { ProbeRecord } from "./probe-record.ts";

const text = (max: number) => v.pipe(v.string(), v.maxLength(max));
const count = v.pipe(v.number(), v.integer(), v.minValue(0));
const age = v.pipe(v.number(), v.minValue(0));

/** A finding names up to 20 peers. */
const longestText = 10_000;

const SavedHealth = v.object({
  written_at: text(64),
  /** When a check last ran. Unset: at `written_at`. */
  run_at: v.optional(text(64)),
  /** When a check-in was last answered. */
  last_checkin_at: v.optional(text(64)),
  /** What that answer said to a relay. */
  relayed: v.optional(RelayedAnswer),
  /** What that answer said about confirming the node, if it did. */
  confirm: v.optional(ConfirmationAnswer),
  health: v.optional(
    v.object({
      verdict: v.picklist(["running", "degraded", "not_probed"]),
      reason: v.exactOptional(text(longestText)),
      lighthouses: v.object({ answering: count, of: count }),
      routes: v.exactOptional(
        v.object({
          answering: count,
          of: count,
          used: v.exactOptional(
            v.pipe(v.array(v.object({ network: text(64), router: text(255) })), v.maxLength(64)),
          ),
        }),
      ),
      tunnels: v.exactOptional(v.object({ direct: count, relayed: count })),
      findings: v.exactOptional(
        v.pipe(
          v.array(
            v.object({
              kind: v.picklist(allKinds),
              light: v.picklist(["degraded", "unknown", "note"]),
              what: text(longestText),
              cure: text(longestText),
            }),
          ),
          v.maxLength(100),
        ),
      ),
      broken: v.pipe(v.array(text(1024)), v.maxLength(100)),
      engine_version: v.exactOptional(text(64)),
      is_lighthouse: v.exactOptional(v.literal(true)),
      checked_at: text(64),
    }),
  ),
});
export type SavedHealth = v.InferOutput<typeof SavedHealth>;

const mostProbes = 1000;
/** Ages instead of times: the next process has another monotonic clock. */
const SavedProbes = v.object({
  /** ms since 1970. */
  at: v.number(),
  probes: v.pipe(
    v.record(
      text(64),
      v.object({
        answered_ms: v.nullable(v.pipe(v.number(), v.minValue(0))),
        rtt_ms: v.nullable(v.pipe(v.number(), v.minValue(0))),
        missed: count,
        /** How long it has been probed. */
        since_ms: v.optional(v.pipe(v.number(), v.minValue(0))),
        /** The tunnel's index at its last answer. */
        index: v.optional(count),
        /** How long ago a user asked for this peer; absent if none did. */
        named_ms: v.optional(v.pipe(v.number(), v.minValue(0))),
      }),
    ),
    v.maxEntries(mostProbes),
  ),
  /** Overlay addresses to which larger packets are lost. */
  lost: v.optional(v.pipe(v.record(text(64), count), v.maxEntries(mostProbes)), {}),
  /** What the control plane said. */
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

/** A result of this age is outdated: check-auth runs each minute. */
const freshMs = 90_000;

export function savedHealthDirectory(configRoot: string, platform: NodeJS.Platform = ownPlatform): string {
  const directory = `/run/${brand.id}-health`;
  const root = resolve(configRoot);
  if (root === resolve(defaultPlaces(platform, {}).configRoot)) return directory;
  return join(directory, `at-${Bun.hash(root).toString(36)}`);
}

/** The files of one organization, whether they exist or not. Others: saved-healing.ts, contact/server-mode/watch-health.ts. */
export function savedHealthFiles(directory: string, slug: string): string[] {
  return ["", ".probes", ".healing", ".reported"].map((what) => join(directory, `${slug}${what}.json`));
}

export function readSavedHealth(directory: string, slug: string, now: number): SavedHealth | undefined {
  const saved = parse(SavedHealth, join(directory, `${slug}.json`));
  if (saved === undefined) return undefined;
  const { health, ...rest } = saved;
  const age = now - Date.parse(saved.written_at);
  // The absolute value, because the clock may have been set back.
  return Math.abs(age) < freshMs && health !== undefined ? { ...rest, health } : rest;
}

/** Throws disk_full and os_permission. */
export function writeSavedHealth(directory: string, slug: string, saved: SavedHealth): void {
  makeDirectory(directory, 0o755);
  writeFileUntilBoot(join(directory, `${slug}.json`), `${JSON.stringify(saved)}\n`, 0o644);
}

type Clock = Pick<System, "now"> & { monotonic(): number };
/** The state of a process's peers. */
type ProbeState = {
  prober: Prober;
  named: NamedPeers;
  lostLarge: Map<string, number>;
  planeFacts: PlaneFacts;
  goneAmong(addresses: readonly string[]): readonly string[];
};

/**
 * Writes what check-auth and `agent ping` know, and takes over what the other has written meanwhile: check-auth goes on
 * with the peers that a user asked for. Whom this node talks to is for root alone.
 */
export function exchangeProbes(directory: string, slug: string, known: ProbeState, clock: Clock): void {
  const now = clock.monotonic();
  // This process drops peers that never answered: it would take its own ones back.
  takeOver(directory, slug, known, clock, (record) => record.answeredAt !== undefined);
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
  /** By this process's clock. */
  const savedAt = clock.monotonic() - Math.max(0, clock.now() - saved.at);
  const { others, cloned, elsewhere, unreached, clockAhead } = saved.told;
  known.planeFacts = {
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

/** Adds the saved probes of addresses that this process has not probed itself. */
function takeOver(
  directory: string,
  slug: string,
  known: ProbeState,
  clock: Clock,
  isWanted: (record: ProbeRecord) => boolean,
): SavedProbes | undefined {
  const saved = parse(SavedProbes, join(directory, `${slug}.probes.json`));
  if (saved === undefined) return undefined;
  const now = clock.monotonic();
  const savedAt = now - Math.max(0, clock.now() - saved.at);
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

function parse<T extends v.GenericSchema>(schema: T, path: string): v.InferOutput<T> | undefined {
  let source: string | undefined;
  try {
    source = readTextIfThere(path);
  } catch {
    // The probes are for root alone.
    return undefined;
  }
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), schema), source);
  return parsed.success ? parsed.output : undefined;
}
