// `bun test/bench/browser-joining.ts [RUNS]`: how long a machine needs that joins by a browser, beside the person's own time:
// from `agent up URL` to the words, and from the click to the first ping. Bar: both together under 15 s.

import { signIn } from "../support/console.ts";
import { member, pings, startJoiningScene } from "../support/joining-scene.ts";
import { print } from "./measure.ts";

const count = Number(process.argv[2] ?? 10);
await using scene = await startJoiningScene(["box"]);
await scene.admin("org update acme --self-enrollment members");
const { page } = scene;
const box = scene.host("box");
const runs: { words: number; ping: number; both: number }[] = [];
for (let run = 0; run < count; run++) {
  const begun = performance.now();
  const machine = scene.up(box, `box-${run}`, scene.here);
  const shown = await machine.waiting();
  const words = performance.now() - begun;
  await page.goto(shown.url);
  if (run === 0) await signIn(page, member);
  await page.getByLabel("The four words that the machine shows").fill(shown.words.join(" "));
  const clicked = performance.now();
  await page.getByRole("button", { name: "Let it join" }).click();
  await pings(box);
  const ping = performance.now() - clicked;
  runs.push({ words, ping, both: words + ping });
  await machine.end("SIGTERM");
}
print(`${count} runs, none failed: least, median, greatest, ms`);
for (const name of ["words", "ping", "both"] as const) {
  const values = runs.map((run) => Math.round(run[name])).sort((a, b) => a - b);
  const bar = name === "both" ? "bar 15000 at most" : "";
  print(`  ${name.padEnd(6)} ${values[0]} ${values[Math.floor(count / 2)]} ${values.at(-1)}  ${bar}`);
}
