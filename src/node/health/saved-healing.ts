// Stores the state of healing between the runs of check-auth. Times are monotonic ms of the process that wrote them. Each process has a
// clock of its own, so the next one moves them.

import { join } from "node:path";
import * as v from "valibot";
import { makeDirectory, readTextIfThere, writeFileAtomic } from "../../base/files.ts";
import { Healing, maxHealings } from "../../protocol/path-report.ts";
import type { System } from "../../base/system.ts";
import { mostClosings, mostDenials, type HealingState } from "./healing.ts";
import { noLoss } from "./paths/relay-loss.ts";

const text = (max: number) => v.pipe(v.string(), v.maxLength(max));
const count = v.pipe(v.number(), v.integer(), v.minValue(0));
/** Monotonic ms. JSON has no infinity: it has null instead. */
const time = v.pipe(
  v.nullable(v.number()),
  v.transform((at) => at ?? Number.NEGATIVE_INFINITY),
);
const remote = v.optional(text(64));

/** A HealingState as JSON: its declaration explains the members. `loss` is left out. */
const State = v.object({
  peers: v.pipe(
    v.record(
      text(64),
      v.object({
        attempt: v.optional(
          v.object({ closedAt: time, index: count, remote, deniedAt: v.optional(v.number()) }),
        ),
        failures: count,
        notBefore: time,
        denials: count,
        deniedAt: time,
        healed: v.optional(v.object({ at: time })),
      }),
    ),
    v.maxEntries(10_000),
  ),
  denials: v.pipe(
    v.array(v.object({ peer: text(64), underlay: text(64), until: v.number() })),
    v.maxLength(mostDenials),
  ),
  closings: v.pipe(v.array(v.number()), v.maxLength(mostClosings)),
  tryPromote: v.optional(count),
  promoteAt: time,
  relays: v.optional(v.object({ chosen: v.pipe(v.array(text(64)), v.maxLength(8)), reviewAt: v.number() })),
  relayed: v.object({ at: time, counters: v.pipe(v.record(text(64), count), v.maxEntries(10_000)) }),
});
const Saved = v.object({
  /** When it was written: ms since 1970, and by the clock of that process. */
  at: v.number(),
  monotonic: v.number(),
  state: State,
  healings: v.optional(v.pipe(v.array(Healing), v.maxLength(maxHealings)), []),
});

type Clock = Pick<System, "now"> & { monotonic(): number };

/** Throws disk_full and os_permission. For root alone: it shows whom this node talks to. */
export function writeHealing(
  directory: string,
  slug: string,
  { state, healings }: { state: HealingState; healings: readonly Healing[] },
  clock: Clock,
): void {
  makeDirectory(directory, 0o755);
  const saved = { at: clock.now(), monotonic: clock.monotonic(), state, healings };
  writeFileAtomic(join(directory, `${slug}.healing.json`), `${JSON.stringify(saved)}\n`, 0o600);
}

/** Undefined if nothing was saved, or if it is damaged. */
export function readHealing(
  directory: string,
  slug: string,
  clock: Clock,
): { state: HealingState; healings: Healing[] } | undefined {
  const source = readTextIfThere(join(directory, `${slug}.healing.json`));
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), Saved), source);
  if (!parsed.success) return undefined;
  const { at, monotonic, state, healings } = parsed.output;
  // The time of the writing by this process's clock, less that by the writer's. After the system's clock was set back, no time counts as
  // passed since.
  const shift = clock.monotonic() - Math.max(0, clock.now() - at) - monotonic;
  return { state: moveTimes(state, shift), healings };
}

/** `shift`: the ms by which each time moves, to become a time of this process's clock. */
function moveTimes(state: v.InferOutput<typeof State>, shift: number): HealingState {
  const { tryPromote, relayed, relays } = state;
  const peers = Object.entries(state.peers).map(([address, peer]) => {
    const { attempt, healed } = peer;
    return [
      address,
      {
        ...peer,
        notBefore: peer.notBefore + shift,
        deniedAt: peer.deniedAt + shift,
        attempt: attempt && {
          closedAt: attempt.closedAt + shift,
          index: attempt.index,
          remote: attempt.remote,
          deniedAt: attempt.deniedAt === undefined ? undefined : attempt.deniedAt + shift,
        },
        healed: healed && { at: healed.at + shift },
      },
    ] as const;
  });
  return {
    peers: Object.fromEntries(peers),
    denials: state.denials.map((denial) => ({ ...denial, until: denial.until + shift })),
    closings: state.closings.map((closedAt) => closedAt + shift),
    tryPromote,
    promoteAt: state.promoteAt + shift,
    relays: relays && { chosen: relays.chosen, reviewAt: relays.reviewAt + shift },
    // A lost relay is found again by its probes.
    loss: noLoss,
    relayed: { at: relayed.at + shift, counters: relayed.counters },
  };
}
