// `bun test/bench/checkin.ts [ROUNDS] [SECONDS]`: check-ins a second beside a bare handler that parses and validates the
// same bodies (bar: 0.6 of it), with 1,000 nodes and with 100,000 (bar: no difference for the same check-ins): where the
// others have not been heard of since the start, and where all are in memory because all have checked in once. Where all
// 100,000 report, instead of the same 1,000 again and again, each half second has twenty times as many rows to write.

import { cpSync } from "node:fs";
import { join } from "node:path";
import { paths } from "../support/paths.ts";
import { buildAgent } from "../support/agent.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import {
  describeFloor,
  describeLoads,
  figure,
  guide,
  inTurns,
  load,
  print,
  ratios,
  startFloor,
  startServer,
  writeRequests,
  type Request,
} from "./measure.ts";
import { seed, slug, tokenOf } from "./seed.ts";

/** Every node in an order that no cache likes, each with a body of its own. */
export function* checkins(nodes: number, count: number): Generator<Request> {
  for (let at = 0; at < count; at++) {
    const id = ((at * 7919) % nodes) + 1;
    const body = { version: "0.1.0", uptime: at, config_version: 1, overlay_version: "1.10.3" };
    yield { method: "POST", path: paths.checkin(slug, id), token: tokenOf(id), body };
  }
}

if (import.meta.main) {
  const rounds = Number(process.argv[2] ?? 5);
  const seconds = Number(process.argv[3] ?? 3);
  buildAgent();
  using directory = temporaryDirectory();
  const small = join(directory.path, "small");
  const large = join(directory.path, "large");
  await seed({ dataDirectory: small }, 1000);
  await seed({ dataDirectory: large }, 100_000);
  const away = join(directory.path, "away");
  cpSync(large, away, { recursive: true });
  const few = writeRequests(join(directory.path, "few"), checkins(1000, 100_000));
  const many = writeRequests(join(directory.path, "many"), checkins(100_000, 100_000));
  await using floor = await startFloor("handler");
  await using thousand = await startServer(["--data-dir", small]);
  await using mostAway = await startServer(["--data-dir", away]);
  await using hundredThousand = await startServer(["--data-dir", large]);
  // Each node once, so that no round measures what is read for the first time.
  await load(hundredThousand.url, many, { seconds: 8 });
  await load(thousand.url, few, { seconds: 2 });
  await load(mostAway.url, few, { seconds: 2 });
  const loads = await inTurns(rounds, {
    floor: () => load(floor.url, few, { seconds }),
    thousand: () => load(thousand.url, few, { seconds }),
    away: () => load(mostAway.url, few, { seconds }),
    same: () => load(hundredThousand.url, few, { seconds }),
    all: () => load(hundredThousand.url, many, { seconds }),
  });
  print(describeFloor("bare handler", loads.floor, guide.handler));
  print(describeLoads("check-in, 1,000 nodes", loads.thousand));
  print(describeLoads("1,000 of 100,000, others away", loads.away));
  print(describeLoads("1,000 of 100,000 nodes", loads.same));
  print(describeLoads("all of 100,000 nodes", loads.all));
  const of = (what: string, ratio: readonly number[], bar = {}) => figure(what, ratio, { digits: 2, ...bar });
  of("of the floor, 1,000 nodes", ratios(loads.thousand, loads.floor), { least: 0.6 });
  of("100,000 nodes, others away, of 1,000 (1 is the aim)", ratios(loads.away, loads.thousand));
  of("100,000 nodes, same check-ins, of 1,000 (1 is the aim)", ratios(loads.same, loads.thousand));
  of("of the floor, same check-ins", ratios(loads.same, loads.floor), { least: 0.6 });
  of("100,000 nodes, all reporting, of 1,000", ratios(loads.all, loads.thousand));
  of("of the floor, all reporting", ratios(loads.all, loads.floor));
}
