// The health of organizations in server mode, between the runs of check-auth: what `status` shows, readable for everyone,
// and what the next run goes on with, for root alone. Not in the daemon's run directory, which goes when it stops; and not
// on a disk, since nothing of it is true after another boot.

import { join, resolve } from "node:path";
import * as v from "valibot";
import { brand, defaultPlaces } from "../../brand.ts";
import { makeDirectory, readTextIfThere, writeFileUntilBoot } from "../../files.ts";
import { RelayedAnswer } from "../../protocol/relayed-report.ts";
import type { System } from "../../system.ts";
import type { Prober, ProbeRecord } from "./prober.ts";

const text = (max: number) => v.pipe(v.string(), v.maxLength(max));
const count = v.pipe(v.number(), v.integer(), v.minValue(0));

const SavedHealth = v.object({
  written_at: text(64),
  /** Of the last check-in that was answered. */
  last_checkin_at: v.optional(text(64)),
  /** Of that check-in, by a relay. */
  relayed: v.optional(RelayedAnswer),
  health: v.optional(
    v.object({
      verdict: v.picklist(["running", "degraded", "not_probed"]),
      reason: v.exactOptional(text(1000)),
      lighthouses: v.object({ answering: count, of: count }),
      tunnels: v.exactOptional(v.object({ direct: count, relayed: count })),
      broken: v.pipe(v.array(text(1024)), v.maxLength(100)),
      engine_version: v.exactOptional(text(64)),
      is_lighthouse: v.exactOptional(v.literal(true)),
      checked_at: text(64),
    }),
  ),
});
export type SavedHealth = v.InferOutput<typeof SavedHealth>;

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
      }),
    ),
    v.maxEntries(1000),
  ),
});

/** Older results are outdated: check-auth runs each minute. */
const freshMs = 90_000;

export function savedHealthDirectory(configRoot: string, platform: NodeJS.Platform): string {
  const directory = `/run/${brand.id}-health`;
  const root = resolve(configRoot);
  if (root === resolve(defaultPlaces(platform, {}).configRoot)) return directory;
  return join(directory, `at-${Bun.hash(root).toString(36)}`);
}

/** The files of one organization, whether they exist or not. Others: saved-healing.ts, contact/server-watch.ts. */
export function savedHealthFiles(directory: string, slug: string): string[] {
  return ["", ".probes", ".healing", ".reported"].map((what) => join(directory, `${slug}${what}.json`));
}

export function readSavedHealth(directory: string, slug: string, now: number): SavedHealth | undefined {
  const saved = parse(SavedHealth, join(directory, `${slug}.json`));
  if (saved === undefined) return undefined;
  const { health, ...rest } = saved;
  const age = now - Date.parse(saved.written_at);
  // Both ways: the clock may have been set back.
  return Math.abs(age) < freshMs && health !== undefined ? { ...rest, health } : rest;
}

/** Throws disk_full and os_permission. */
export function writeSavedHealth(directory: string, slug: string, saved: SavedHealth): void {
  makeDirectory(directory, 0o755);
  writeFileUntilBoot(join(directory, `${slug}.json`), `${JSON.stringify(saved)}\n`, 0o644);
}

type Clock = Pick<System, "now"> & { monotonic(): number };

/** Whom this node talks to is for root alone. */
export function writeProbes(directory: string, slug: string, prober: Prober, clock: Clock): void {
  const now = clock.monotonic();
  const probes = Object.fromEntries(
    prober
      .records()
      .map(([address, { answeredAt, rttMs, missed }]) => [
        address,
        { answered_ms: answeredAt === undefined ? null : now - answeredAt, rtt_ms: rttMs ?? null, missed },
      ]),
  );
  const saved: v.InferOutput<typeof SavedProbes> = { at: clock.now(), probes };
  makeDirectory(directory, 0o755);
  writeFileUntilBoot(join(directory, `${slug}.probes.json`), `${JSON.stringify(saved)}\n`, 0o600);
}

export function restoreProbes(directory: string, slug: string, prober: Prober, clock: Clock): void {
  const saved = parse(SavedProbes, join(directory, `${slug}.probes.json`));
  if (saved === undefined) return;
  const now = clock.monotonic();
  const passed = Math.max(0, clock.now() - saved.at);
  for (const [address, { answered_ms, rtt_ms, missed }] of Object.entries(saved.probes)) {
    const record: ProbeRecord = {
      answeredAt: answered_ms === null ? undefined : now - passed - answered_ms,
      rttMs: rtt_ms ?? undefined,
      missed,
      since: now - passed,
      sent: 0,
      history: [],
    };
    prober.restore(address, record);
  }
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
