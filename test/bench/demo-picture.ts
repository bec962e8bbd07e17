// `bun test/bench/demo-picture.ts`: runs `agent demo --yes` and writes what it prints to docs/demo.svg. Needs root.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { buildAgent, cleanEnvironment, root } from "../support/agent.ts";

const command = "agent demo --yes";
const line = { height: 19, top: 62, left: 20, character: 7.85 };

const escaped = (text: string) =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

/** A terminal with its own dark background, so that it reads the same on a light and a dark page. */
function picture(lines: readonly string[]): string {
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

const ran = Bun.spawnSync(
  ["/bin/sh", "-c", `exec "$0" ${command.slice("agent ".length)} 2>&1`, buildAgent()],
  {
    env: cleanEnvironment(),
  },
);
const printed = ran.stdout.toString().trimEnd();
if (ran.exitCode !== 0) throw new Error(`${command} ended with ${ran.exitCode}\n${printed}`);
const path = join(root, "docs/demo.svg");
writeFileSync(path, picture([`$ ${command}`, ...printed.split("\n")]));
process.stdout.write(`${printed}\n${path}\n`);
