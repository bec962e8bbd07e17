// CA rotations and certificate version migrations with tunnels that are idle meanwhile and used right afterwards, on all
// engines concurrently: no ping is lost. With SOAK=1 twenty of each, with all tunnels in use, two, and none.

import { expect, test } from "bun:test";
import { buildAgent } from "../support/agent.ts";
import {
  changes,
  describeOutcome,
  measureChange,
  traffics,
  type Change,
  type Traffic,
} from "../support/certificate-change.ts";
import { allEngines, asRoot, describeTogether, type Engine } from "../support/engines.ts";
import { inFull, shuffled } from "../support/soak.ts";

buildAgent();

/** Migrations need an engine with certificate version 2. */
const canDo = (change: Change, { version }: Engine) =>
  change === "rotation" || Bun.semver.order(version, "1.10.0") >= 0;

/**
 * Engines below 1.7 keep the certificates of a tunnel for its whole life, and one tunnel for each peer. So a tunnel closes
 * when the former CA has left, an idle one a second after its next use, and a packet that is under way then is lost. Nothing
 * outside the engine prevents that: a new handshake also ends the old tunnel at once.
 */
const mayLose = (version: string) => (Bun.semver.order(version, "1.7.0") < 0 ? 1 : 0);

/** On all suitable engines concurrently: most of the time is waiting. */
async function measureAll(
  engines: readonly Engine[],
  wanted: readonly Change[],
  traffic: Traffic,
  names?: readonly string[],
): Promise<void> {
  const jobs = wanted.flatMap((change) =>
    engines.filter((engine) => canDo(change, engine)).map((engine) => ({ change, engine })),
  );
  const outcomes = await Promise.all(
    jobs.map(({ change, engine }) => measureChange(engine, change, traffic, names)),
  );
  for (const outcome of outcomes) process.stderr.write(describeOutcome(outcome));
  for (const [at, { what, lost, control }] of outcomes.entries()) {
    const most = mayLose(jobs[at]?.engine.version ?? "") + control;
    const gone = lost.filter(({ during, after }) => during + after > most);
    expect({ what, gone }).toEqual({ what, gone: [] });
  }
}

asRoot("changes of certificates", () => {
  describeTogether(
    inFull ? "twenty times" : "once",
    (engines) => {
      if (!inFull) {
        test("with idle tunnels, packets right afterwards arrive", async () => {
          await measureAll(engines, changes, "none", ["lighthouse", "alpha", "beta"]);
        }, 360_000);
        return;
      }
      const rounds = Array.from({ length: 20 }, (_, at) => at + 1).flatMap((round) =>
        changes.flatMap((change) => traffics.map((traffic) => ({ round, change, traffic }))),
      );
      for (const { round, change, traffic } of shuffled(rounds)) {
        test(`${change} ${round}, in use: ${traffic}`, async () => {
          await measureAll(engines, [change], traffic);
        }, 360_000);
      }
    },
    allEngines,
  );
});
