// `bun test/bench/polls-at-rest.ts [MINUTES] [NODES]`: anonymous memory of a control plane whose nodes do nothing but hold
// polls, after ten quiet minutes (bar: 28 MB for 100 nodes). The kernel can drop file pages, so RssAnon counts, not VmRSS.

import { join } from "node:path";
import { buildAgent } from "../support/agent.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { anonymousMb, print, startServer } from "./measure.ts";
import { sendAll } from "./poll-client.ts";
import { poll } from "./polls.ts";
import { seed } from "./seed.ts";

const [minutes = 10, nodes = 100] = process.argv.slice(2).map(Number);
buildAgent();
using directory = temporaryDirectory();
const data = join(directory.path, "data");
await seed({ dataDirectory: data }, nodes);
await using server = await startServer(["--data-dir", data]);
const polls = Array.from({ length: nodes }, (_, at) => poll(new URL(server.url).host, at + 1));
for (let minute = 0; minute < minutes; minute++) {
  const waiting = await sendAll(server.url, polls);
  await Bun.sleep(50_000);
  print(`minute ${minute + 1}: ${anonymousMb(server.pid).toFixed(1)} MB while ${nodes} polls are held`);
  await waiting.answered;
  waiting.close();
}
