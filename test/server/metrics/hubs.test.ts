// Which nodes are online, by group, and which of those that others need is away; the disk and the clock of the server.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { writeMetrics } from "../../../src/server/metrics/metrics.ts";
import { makeClock } from "../../support/clock.ts";
import { registerNode, registrationToken } from "../../support/nodes.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";

let server: TestServer;
beforeEach(async () => {
  server = await makeTestServer({ network: { sleep: makeClock().sleep }, dataDirectory: "/tmp" });
});
afterEach(() => server[Symbol.asyncDispose]());

const lines = async (name: string) =>
  (await writeMetrics(server.app.services))
    .split("\n")
    .filter((line) => line.startsWith(`overlay_agent_${name}`));

test("nodes online are counted, by group, and a lighthouse that is away is named", async () => {
  const org = await server.organization("acme");
  await registerNode(server, org, "light");
  await server.db.write((tx) => tx.run("UPDATE nodes SET is_lighthouse = 1 WHERE name = 'light'"));
  const registration_token = await registrationToken(server, org, { groups: ["web"] });
  await registerNode(server, org, "one", { registration_token });
  await registerNode(server, org, "two", { registration_token });
  const seen = (name: string) =>
    server.db.write((tx) =>
      tx.run(
        "INSERT INTO sightings (node_id, last_checkin_at) SELECT id, $2 FROM nodes WHERE name = $1 ON CONFLICT (node_id) DO UPDATE SET last_checkin_at = excluded.last_checkin_at",
        [name, server.clock.ms],
      ),
    );
  server.clock.ms += 600_000;
  await seen("one");
  expect(await lines("nodes_online")).toEqual(['overlay_agent_nodes_online{organization="acme"} 1']);
  expect(await lines("group_nodes_online")).toEqual([
    'overlay_agent_group_nodes_online{organization="acme",group="web"} 1',
  ]);
  const hub = 'overlay_agent_hub_online{organization="acme",node="light",role="lighthouse"}';
  expect(await lines("hub_online")).toEqual([`${hub} 0`]);
  await seen("light");
  expect(await lines("hub_online")).toEqual([`${hub} 1`]);
});

test("the disk and a clock in doubt are told", async () => {
  expect(await lines("clock_doubted")).toEqual(["overlay_agent_clock_doubted 0"]);
  server.clock.steppedMs = 86_400_000;
  expect(await lines("clock_doubted")).toEqual(["overlay_agent_clock_doubted 1"]);
  expect((await lines("disk_free_bytes")).length).toBe(1);
});

test("each metric that a rule of the documents asks is there", async () => {
  const source = readFileSync(new URL("../../../src/server/metrics/metrics.ts", import.meta.url), "utf8");
  const [, rules = ""] = /```yaml\n(groups:[^]*?)```/.exec(readFileSync("docs/production.md", "utf8")) ?? [];
  const asked = new Set(rules.match(/overlay_agent_\w+/g));
  expect(asked.size).toBeGreaterThan(5);
  for (const name of asked) expect(source).toContain(`"${name.replace("overlay_agent_", "")}"`);
});
