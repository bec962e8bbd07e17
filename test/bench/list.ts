// `bun test/bench/list.ts`: the list of 10,000 nodes: a page of 100 anywhere in it (bar: 5 ms), and all of it in pages of
// 1,000 (bar: 1 s).

import { buildAgent } from "../support/agent.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { print, spread, startServer } from "./measure.ts";
import { seed, slug } from "./seed.ts";

const nodes = 10_000;

if (import.meta.main) {
  buildAgent();
  using directory = temporaryDirectory();
  const { admin } = await seed({ dataDirectory: directory.path }, nodes);
  await using server = await startServer(["--data-dir", directory.path]);
  const get = async (query: string) => {
    const from = performance.now();
    const answer = await fetch(`${server.url}/api/org/${slug}/nodes/?${query}`, {
      headers: { Authorization: `Bearer ${admin}` },
    });
    const list: unknown = await answer.json();
    if (!Array.isArray(list)) throw new Error(`${answer.status} ${JSON.stringify(list)}`);
    return { ms: performance.now() - from, length: list.length };
  };
  const pages = [1, 2, 50, 99, 100];
  for (let warm = 0; warm < 50; warm++) await get(`page=${(warm % 100) + 1}`);
  for (const page of pages) {
    const times: number[] = [];
    for (let run = 0; run < 20; run++) {
      const { ms, length } = await get(`page=${page}`);
      if (length !== 100) throw new Error(`Page ${page} has ${length} nodes`);
      times.push(ms);
    }
    print(`page ${String(page).padEnd(4)} of 100 nodes          ${spread(times, 1)} ms, bar 5`);
  }
  const whole: number[] = [];
  for (let run = 0; run < 5; run++) {
    const from = performance.now();
    let seen = 0;
    for (let page = 1; page <= 10; page++) seen += (await get(`page=${page}&page_size=1000`)).length;
    if (seen !== nodes) throw new Error(`${seen} nodes`);
    whole.push(performance.now() - from);
  }
  print(`all ${nodes}, pages of 1,000     ${spread(whole)} ms, bar 1,000`);
  await server.stop();
}
