// `bun test/bench/startup.ts [RUNS] [OTHER]`: start-up times of the executable, and of another build of it (a path), in turns
// with an empty program. Bars: 2 times the empty program for local commands; 3 times, plus the time of one request, for
// commands that a server runs every minute; 1.15 times the processor time of the other build.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { paths } from "../support/paths.ts";
import { Credentials } from "../../src/protocol/stored.ts";
import { agent, buildAgent, startControlPlane } from "../support/agent.ts";
import { makeOrganization, registerNode } from "../support/overlay.ts";
import { buildProgram, measureStartup } from "../support/startup.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();
using directory = temporaryDirectory();
await using plane = await startControlPlane(join(directory.path, "server"));
const acme = await makeOrganization(plane);
const root = join(directory.path, "node");
const node = await registerNode(acme, root, "one", await acme.makeToken());
const credentials = v.parse(
  v.pipe(v.string(), v.parseJson(), Credentials),
  readFileSync(join(node.directory, "credentials.json"), "utf8"),
);
const request = `
const answer = await fetch(${JSON.stringify(plane.url + paths.checkin("acme", node.node_id))}, {
  method: "POST",
  headers: { "Content-Type": "application/json", Authorization: "Bearer ${credentials.api_token}" },
  body: '{"version":"1","uptime":1}',
});
await answer.json();
`;
const here = ["--config-root", root, "--overlay-binary", "/nowhere/overlay"];
const other = process.argv[3];
const lines = [["version", "--no-check"], ["--help"], ["status"], ["checkin"], ["check-auth"]];
const figures = await measureStartup(directory.path, Number(process.argv[2] ?? 60), [
  { name: "empty program, a request", argv: [await buildProgram(directory.path, "request", request)] },
  ...["status", "checkin", "check-auth"].map((word) => ({
    name: `agent ${word}`,
    argv: [agent, word, ...here],
  })),
  ...(other === undefined
    ? []
    : lines.map((words) => ({ name: `other ${words.join(" ")}`, argv: [other, ...words, ...here] }))),
]);
const medianOf = (wanted: string) => figures.find(({ name }) => name === wanted)?.p50 ?? 0;
const [empty, asking] = [medianOf("empty program"), medianOf("empty program, a request")];
const bar: Record<string, number> = {
  "agent version --no-check": 2 * empty,
  "agent --help": 2 * empty,
  "agent status": 3 * empty,
  "agent checkin": 3 * empty + (asking - empty),
  "agent check-auth": 3 * empty + (asking - empty),
};
const cpuOf = (wanted: string) => figures.find(({ name }) => name === wanted)?.cpu ?? Number.NaN;
for (const { name, p10, p50, p90, ratio, cpu } of figures) {
  const limit = bar[name];
  const verdict =
    limit === undefined ? "" : `, bar ${limit.toFixed(1)} ms: ${p50 <= limit ? "met" : "MISSED"}`;
  const spread = `${p10.toFixed(1)} to ${p90.toFixed(1)}`;
  process.stdout.write(
    `${name.padEnd(26)} ${p50.toFixed(1)} ms (${spread}), ${cpu.toFixed(1)} of processor, ${ratio.toFixed(2)} times the empty program${verdict}\n`,
  );
}
if (other !== undefined)
  for (const words of lines) {
    const times = cpuOf(`agent ${words.join(" ")}`) / cpuOf(`other ${words.join(" ")}`);
    process.stdout.write(
      `processor time of ${words.join(" ")}: ${times.toFixed(2)} times the other (bar: 1.15)\n`,
    );
  }
