// `bun test/bench/demo.ts [RUNS]`: the figures of `agent demo` over some runs on each engine, as least, median and
// greatest. Bars: each registration under 150 ms; first ping under 200 ms in the median and 3 s at most; the last
// ping at most 3.5 s after the deletion's answer; no run fails.

import * as v from "valibot";
import { agentJson, buildAgent } from "../support/agent.ts";
import { engines } from "../support/engines.ts";
import { print } from "./measure.ts";

const Run = v.object({
  register_ms: v.number(),
  first_handshake_ms: v.number(),
  first_ping_ms: v.number(),
  revocation_to_last_ping_ms: v.number(),
});

const figures = [
  { name: "register_ms", bar: "bar 150 at most" },
  { name: "first_handshake_ms", bar: "" },
  { name: "first_ping_ms", bar: "bar 200 in the median, 3000 at most" },
  { name: "revocation_to_last_ping_ms", bar: "bar 3500 at most" },
] as const;

buildAgent();
const count = Number(process.argv[2] ?? 10);
for (const { nebula, version } of engines) {
  const runs = [];
  for (let run = 0; run < count; run++)
    runs.push(v.parse(Run, await agentJson(["demo", "--overlay-binary", nebula])));
  print(`engine ${version}, ${count} runs, none failed, ms`);
  for (const { name, bar } of figures) {
    const values = runs.map((run) => run[name]).sort((a, b) => a - b);
    print(`  ${name.padEnd(28)} ${values[0]} ${values[Math.floor(count / 2)]} ${values.at(-1)}  ${bar}`);
  }
}
