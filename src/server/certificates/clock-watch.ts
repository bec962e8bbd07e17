// Reports that the clock of this server is in doubt: a line in the log and an event when the doubt begins and ends, and a line each
// hour in between. store/clock.ts decides whether certificates are signed, independently of this.

import { hostname } from "node:os";
import { formatTime } from "../../base/quantities.ts";
import { ourselves, record } from "../audit/record.ts";
import type { ServerOptions } from "../options.ts";
import { describeDoubt, howToConfirm } from "../store/clock.ts";

type Deps = Pick<ServerOptions, "db" | "system" | "clock" | "log"> & {
  /** One sentence, if nodes agree that this clock is wrong. */
  nodeClocks: { doubt(): string | undefined };
};

const remindEveryMs = 3_600_000;

/** Call the result every second. */
export function makeClockWatch({ db, system, clock, log, nodeClocks }: Deps): () => Promise<void> {
  let isDoubtLogged = false;
  /** As the events say. Another variable, so that an event that cannot be written now is written later. */
  let isDoubtRecorded = false;
  // Monotonic times of the last lines in the log.
  let loggedAt = 0;
  let nodesLoggedAt = Number.NEGATIVE_INFINITY;
  return async () => {
    const byNodes = nodeClocks.doubt();
    if (byNodes !== undefined && system.monotonic() - nodesLoggedAt >= remindEveryMs) {
      nodesLoggedAt = system.monotonic();
      log.warn(byNodes);
    }
    await clock.look();
    const doubt = clock.doubt();
    const isDoubted = doubt !== undefined;
    if (doubt !== undefined && (!isDoubtLogged || system.monotonic() - loggedAt >= remindEveryMs)) {
      loggedAt = system.monotonic();
      log.error(describeDoubt(doubt), { hint: howToConfirm });
    }
    if (isDoubtLogged && !isDoubted)
      log.warn("The clock of this server is believed again; certificates are signed");
    isDoubtLogged = isDoubted;
    if (isDoubted === isDoubtRecorded) return;
    const after =
      doubt === undefined
        ? { clock: formatTime(clock.wall()) }
        : { clock: formatTime(doubt.wall), expected: formatTime(doubt.expected) };
    await db.write((tx) =>
      record(tx, {
        orgId: null,
        at: system.now(),
        type: doubt === undefined ? "server.clock_returned" : "server.clock_jumped",
        actor: ourselves,
        subject: `server/${hostname()}`,
        after,
      }),
    );
    isDoubtRecorded = isDoubted;
  };
}
