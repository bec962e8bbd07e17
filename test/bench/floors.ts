// `bun test/bench/floors.ts [ROUNDS] [SECONDS]`: the floors alone, beside the guide's figures, and what the group
// commit's fsyncs are. A floor that does not count makes every ratio to it worthless.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  countFsyncs,
  describeFloor,
  guide,
  inTurns,
  load,
  print,
  startFloor,
  writeRequests,
  type Request,
} from "./measure.ts";

/** Check-ins as nodes send them, the path and token of nobody. */
function* checkins(): Generator<Request> {
  for (let at = 0; at < 20_000; at++) {
    const body = { version: "0.1.0", uptime: at, config_version: 7, overlay_version: "1.10.3" };
    yield { method: "POST", path: `/api/org/bench/nodes/${at}/checkin/`, token: "x".repeat(43), body };
  }
}

/** Each changes its row, also in the second pass over the rows: SQLite writes nothing where nothing changes. */
export function* updates(rows: number): Generator<Request> {
  for (let at = 0; at < rows * 4; at++) {
    const value = Bun.hash(`${at}`).toString(36).repeat(15).slice(0, 200);
    yield { method: "POST", path: "/", body: { id: (at % rows) + 1, value } };
  }
}

if (import.meta.main) {
  const rounds = Number(process.argv[2] ?? 5);
  const seconds = Number(process.argv[3] ?? 3);
  const directory = mkdtempSync(join(tmpdir(), "agent-floors-"));
  try {
    const parse = writeRequests(join(directory, "checkins"), checkins());
    const write = writeRequests(join(directory, "updates"), updates(10_000));
    await using handler = await startFloor("handler");
    await using commit = await startFloor("commit", [directory]);
    const loads = await inTurns(rounds, {
      handler: () => load(handler.url, parse, { seconds }),
      commit: () => load(commit.url, write, { seconds }),
    });
    print(describeFloor("POST, parse, validate", loads.handler, guide.handler));
    print(describeFloor("POST, parse, group commit", loads.commit, guide.commit));
    await commit.stop();
    // A run of its own, because strace slows each fsync.
    const fsyncs = join(directory, "fsyncs");
    const traced = await startFloor("commit", [directory], { fsyncs });
    const { requests } = await load(traced.url, write, { seconds: 2 });
    await traced.stop();
    print(countFsyncs(fsyncs, requests));
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}
