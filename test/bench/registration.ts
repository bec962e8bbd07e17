// `bun test/bench/registration.ts [ROUNDS] [SECONDS]`: registrations a second beside a bare program that does the same
// with the same libraries and commits (bar: 0.4 of it).

import { join } from "node:path";
import { buildAgent } from "../support/agent.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import {
  describeLoads,
  inTurns,
  load,
  print,
  ratios,
  spread,
  startFloor,
  startServer,
  writeRequests,
} from "./measure.ts";
import { registrations } from "./registrations.ts";
import { seed, slug } from "./seed.ts";

const marks = "marks: the Django original 19.6 a second, step-ca 1,164 leaf certificates a second";

if (import.meta.main) {
  const rounds = Number(process.argv[2] ?? 5);
  const seconds = Number(process.argv[3] ?? 3);
  buildAgent();
  using directory = temporaryDirectory();
  const data = join(directory.path, "data");
  const { registration: token } = await seed({ dataDirectory: data }, 1000);
  await using floor = await startFloor("registration", [directory.path]);
  await using server = await startServer(["--data-dir", data]);
  // More than any machine can do, so that none is sent twice.
  const most = 1500 * seconds;
  let made = 0;
  const fresh = (withToken: string) => {
    const path = writeRequests(join(directory.path, "requests"), registrations(slug, withToken, made, most));
    made += most;
    return path;
  };
  const run = async (url: string, withToken: string) => {
    const done = await load(url, fresh(withToken), { seconds });
    if (done.requests > most) throw new Error("There were too few requests: the same were sent again");
    return done;
  };
  await run(floor.url, "floor");
  await run(server.url, token);
  const loads = await inTurns(rounds, {
    floor: () => run(floor.url, "floor"),
    server: () => run(server.url, token),
  });
  print(describeLoads("bare registration", loads.floor));
  print(describeLoads("registration", loads.server));
  print(`of the floor                   ${spread(ratios(loads.server, loads.floor), 2)}, bar 0.4`);
  print(marks);
}
