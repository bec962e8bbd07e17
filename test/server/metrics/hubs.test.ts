// Which nodes are online, by group, and which of those that others need is away; the disk and the clock of the server.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import * as v from "valibot";
import { alarmRules } from "../../../src/api/webhooks/alarms.ts";
import { runSync } from "../../support/debian.ts";
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

test("each metric that alert rules, dashboard and documents name is there", () => {
  const sources = ["metrics/metrics.ts", "http/meters.ts", "http/heavy-work.ts", "retention/archive.ts"];
  const source = sources
    .map((file) => readFileSync(new URL(`../../../src/server/${file}`, import.meta.url), "utf8"))
    .join("\n");
  for (const file of ["prometheus-alerts.yml", "grafana-dashboard.json", "production.md"]) {
    const asked = new Set(readFileSync(`docs/${file}`, "utf8").match(/overlay_agent_\w+/g));
    expect(asked.size).toBeGreaterThan(5);
    for (const name of asked)
      expect(source).toContain(`"${name.replace("overlay_agent_", "").replace(/_(bucket|count|sum)$/, "")}"`);
  }
});

test("the dashboard is what Grafana imports: each panel has a place of its own and asks the chosen data source", () => {
  const Panel = v.object({
    id: v.number(),
    type: v.picklist(["stat", "timeseries"]),
    title: v.string(),
    datasource: v.object({ type: v.literal("prometheus"), uid: v.literal("${datasource}") }),
    gridPos: v.object({ x: v.number(), y: v.number(), w: v.number(), h: v.number() }),
    targets: v.pipe(v.array(v.object({ expr: v.string(), refId: v.string() })), v.minLength(1)),
  });
  const Dashboard = v.object({ title: v.string(), schemaVersion: v.number(), panels: v.array(Panel) });
  const { panels } = v.parse(Dashboard, JSON.parse(readFileSync("docs/grafana-dashboard.json", "utf8")));
  expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
  const cells = panels.flatMap(({ gridPos: { x, y, w, h } }) =>
    Array.from({ length: w * h }, (_, at) => `${x + (at % w)} ${y + Math.floor(at / w)}`),
  );
  expect(new Set(cells).size).toBe(cells.length);
  expect(Math.max(...panels.map(({ gridPos: { x, w } }) => x + w))).toBeLessThanOrEqual(24);
});

test("Prometheus tells of an old backup and of the end of a CA at the same age as the control plane's own alarms", () => {
  const rules = readFileSync("docs/prometheus-alerts.yml", "utf8");
  const numberIn = (pattern: RegExp) => Number(pattern.exec(rules)?.[1]);
  expect(numberIn(/last_backup_age_seconds > (\d+) \* 86400 /)).toBe(alarmRules.backup.initial);
  expect(numberIn(/ca_days_left < (\d+)$/m)).toBe(alarmRules.ca.initial);
});

const promtool = "/usr/bin/promtool";
test.skipIf(!existsSync(promtool))("promtool accepts the alert rules", () => {
  expect(runSync([promtool, "check", "rules", "docs/prometheus-alerts.yml"])).toContain("SUCCESS");
});
