// `bun test/bench/startup.ts [RUNS]`: prints the start of the executable beside an empty program's. The bars: 2 times for
// what asks nobody, 3 times and the request for what a server runs every minute. The request is what an otherwise empty
// program needs for one like it.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { Credentials, paths } from "../../src/protocol.ts";
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
const figures = await measureStartup(directory.path, Number(process.argv[2] ?? 60), [
  { name: "empty program, a request", argv: [await buildProgram(directory.path, "request", request)] },
  { name: "agent status", argv: [agent, "status", ...here] },
  { name: "agent checkin", argv: [agent, "checkin", ...here] },
  { name: "agent check-auth", argv: [agent, "check-auth", ...here] },
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
for (const { name, p10, p50, p90, ratio } of figures) {
  const limit = bar[name];
  const verdict =
    limit === undefined ? "" : `, bar ${limit.toFixed(1)} ms: ${p50 <= limit ? "met" : "MISSED"}`;
  const spread = `${p10.toFixed(1)} to ${p90.toFixed(1)}`;
  process.stdout.write(
    `${name.padEnd(26)} ${p50.toFixed(1)} ms (${spread}), ${ratio.toFixed(2)} times the empty program${verdict}\n`,
  );
}
