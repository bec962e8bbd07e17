// `bun test/bench/demo.ts [RUNS]`: the figures of `agent demo` over some runs on each engine. Bars: each registration under
// 150 ms; first ping under 200 ms in the median and 3 s at most; the last ping at most 3.5 s after the deletion's answer; no
// run fails.
// `bun test/bench/demo.ts browser [RUNS]`: how long a machine needs that joins by a browser, beside the person's own time:
// from `agent up URL` to the words, and from the click to the first ping. Bar: both together under 15 s.
// `bun test/bench/demo.ts picture`: runs `agent demo --yes` and writes what it prints to docs/demo.svg. Needs root.

import * as v from "valibot";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { agentJson, buildAgent, cleanEnvironment, root } from "../support/agent.ts";
import { engines } from "../support/engines.ts";
import { signIn } from "../support/console.ts";
import { member, pings, startJoiningScene } from "../support/joining-scene.ts";
import { choose, figure, print } from "./measure.ts";

const Run = v.object({
  register_ms: v.number(),
  first_handshake_ms: v.number(),
  first_ping_ms: v.number(),
  revocation_to_last_ping_ms: v.number(),
});

async function figures([runs = "10"]: string[]): Promise<void> {
  buildAgent();
  const count = Number(runs);
  for (const { nebula, version } of engines) {
    const done: v.InferOutput<typeof Run>[] = [];
    for (let run = 0; run < count; run++)
      done.push(v.parse(Run, await agentJson(["demo", "--overlay-binary", nebula])));
    print(`engine ${version}, ${count} runs, none failed`);
    const show = (name: keyof v.InferOutput<typeof Run>, bars: { most?: number; mostEver?: number }) => {
      const values = done.map((run) => run[name]);
      const { mostEver, ...bar } = bars;
      figure(name, values, { unit: "ms", digits: 0, ...bar });
      if (mostEver !== undefined)
        figure(`${name}, longest`, Math.max(...values), { unit: "ms", digits: 0, most: mostEver });
    };
    show("register_ms", { mostEver: 150 });
    show("first_handshake_ms", {});
    show("first_ping_ms", { most: 200, mostEver: 3000 });
    show("revocation_to_last_ping_ms", { mostEver: 3500 });
  }
}

async function browser([given = "10"]: string[]): Promise<void> {
  const count = Number(given);
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
  for (const name of ["words", "ping", "both"] as const) {
    const values = runs.map((run) => run[name]);
    figure(name, values, { unit: "ms", digits: 0 });
    if (name === "both")
      figure("both, longest", Math.max(...values), { unit: "ms", digits: 0, most: 15_000 });
  }
}

const command = "agent demo --yes";
const line = { height: 19, top: 62, left: 20, character: 7.85 };

const escaped = (text: string) =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

/** A terminal with its own dark background, so that it reads the same on a light and a dark page. */
function draw(lines: readonly string[]): string {
  const width = Math.ceil(Math.max(...lines.map((each) => each.length)) * line.character) + 2 * line.left;
  const height = line.top + lines.length * line.height + 4;
  const rows = lines.map((each, at) => {
    const kind = each.startsWith("$ ") ? "command" : /^[a-z]+ {2,}/.test(each) ? "step" : "result";
    return `  <text class="${kind}" x="${line.left}" y="${line.top + at * line.height}">${escaped(each)}</text>`;
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="Output of ${command}">
  <style>
    text { font: 13px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; white-space: pre; fill: #d7dde4 }
    .command { fill: #ffffff; font-weight: bold }
    .step { fill: #9fb0c0 }
    .result { fill: #8fd6a0 }
  </style>
  <rect width="${width}" height="${height}" rx="8" fill="#1c232b"/>
  <rect width="${width}" height="34" rx="8" fill="#2a333d"/>
  <circle cx="20" cy="17" r="6" fill="#e0675c"/><circle cx="40" cy="17" r="6" fill="#e2b34f"/><circle cx="60" cy="17" r="6" fill="#62b56d"/>
${rows.join("\n")}
</svg>
`;
}

async function picture(): Promise<void> {
  const ran = Bun.spawnSync(
    ["/bin/sh", "-c", `exec "$0" ${command.slice("agent ".length)} 2>&1`, buildAgent()],
    {
      env: cleanEnvironment(),
    },
  );
  const printed = ran.stdout.toString().trimEnd();
  if (ran.exitCode !== 0) throw new Error(`${command} ended with ${ran.exitCode}\n${printed}`);
  const path = join(root, "docs/demo.svg");
  writeFileSync(path, draw([`$ ${command}`, ...printed.split("\n")]));
  print(`${printed}\n${path}`);
}

await choose({ figures, browser, picture });
