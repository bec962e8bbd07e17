// The console's page of flows, in a real browser.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Database } from "bun:sqlite";
import { join } from "node:path";
import { signIn, startConsole, violationsIn, type Console } from "../support/console.ts";

const limitMs = 120_000;

describe("flows in the console", () => {
  let scene: Console;
  beforeAll(async () => {
    scene = await startConsole();
    await scene.page.goto(`${scene.url()}/console/acme/access`);
    await signIn(scene.page);
  }, limitMs);
  afterAll(() => scene[Symbol.asyncDispose]());

  test(
    "they are read when a person asks, which is one event, with the last use of each rule",
    async () => {
      const { page } = scene;
      await page.getByRole("heading", { level: 1, name: "Access" }).waitFor();
      await scene.adminJson(["org", "update", "acme", "--flows", "on"]);
      await scene.adminJson(["rule", "create", "acme", "--protocol", "tcp", "--ports", "5432"]);
      for (const name of ["web", "db"]) await scene.adminJson(["node", "create", "acme", name]);
      using database = new Database(join(scene.data, "control.db"));
      database.run("PRAGMA busy_timeout = 5000");
      const now = Date.now();
      const day = Math.floor(now / 86_400_000);
      const insert = `INSERT INTO flows (node_id, day, side, peer, address, protocol, port, org_id, flows, answered, first_at, last_at, unseen_s, report, block)
        SELECT d.id, ?, 1, w.id, w.ip, 'tcp', ?, d.org_id, 3, ?, ?, ?, 0, '', ? FROM nodes d JOIN nodes w ON w.name = 'web' WHERE d.name = 'db'`;
      for (const [port, answered] of [
        [5432, 3],
        [23, 0],
      ] as const)
        database.run(insert, [day, port, answered, now, now, Math.floor(day / 10)]);
      await page.getByRole("link", { name: "Flows" }).click();
      await page.getByRole("button", { name: "Read the flows" }).click();
      await page.getByRole("row", { name: /web db tcp\/5432 3 0 receiver/ }).waitFor();
      await page.getByRole("row", { name: /web db tcp\/23 3 3 receiver/ }).waitFor();
      await page.getByRole("row", { name: /^\d+ none 0 0$/ }).waitFor();
      await page.getByRole("row", { name: /^\d+ \d{4}-\S+ 3 1$/ }).waitFor();
      expect(await violationsIn(page)).toEqual([]);
      const { events } = (await scene.adminJson([
        "events",
        "acme",
        "--type",
        "flows.exported",
      ])) as unknown as { events: unknown[] };
      expect(events).toHaveLength(1);
      // Without flows, nothing is known of uses.
      await scene.adminJson(["org", "update", "acme", "--flows", "off"]);
      await page.reload();
      await page.getByRole("button", { name: "Read the flows" }).click();
      await page.getByText(/^Nodes are not asked for flows/).waitFor();
      expect(await page.getByText("Unknown.").count()).toBe(2);
      const setting = page.getByRole("link", { name: "Settings, Nodes report their flows" });
      expect(await setting.getAttribute("href")).toBe("/console/acme/settings/#reports");
    },
    limitMs,
  );
});
