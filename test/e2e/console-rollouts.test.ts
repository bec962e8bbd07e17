// The console's page of updates in rings, in a real browser.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Database } from "bun:sqlite";
import { join } from "node:path";
import {
  addMember,
  noViolations,
  overflowOf,
  signIn,
  speakingMachine,
  startConsole,
  violationsInSchemes,
  type Console,
} from "../support/console.ts";
import { until } from "../support/until.ts";

const limitMs = 120_000;
const member = "member@example.org";

describe("rollouts in the console", () => {
  let scene: Console;
  beforeAll(async () => {
    scene = await startConsole();
    await addMember(scene, member);
    await scene.page.goto(`${scene.url()}/console/acme/rollouts/`);
    await signIn(scene.page);
  }, limitMs);
  afterAll(() => scene[Symbol.asyncDispose]());

  test(
    "without any, the page says what root of a machine must permit, and a refusal is shown in the form",
    async () => {
      const { page } = scene;
      await page.getByText("sudo agent sync-config --org-slug acme --allow-updates agent,engine").waitFor();
      await page.getByRole("button", { name: "Update nodes" }).click();
      const dialog = page.getByRole("dialog", { name: "Update nodes in rings" });
      expect(await dialog.getByRole("button", { name: "Begin" }).isDisabled()).toBe(true);
      await dialog.getByText("Nothing is chosen yet.").waitFor();
      await dialog.getByLabel("Version of the engine").fill("1.12.0");
      await dialog.getByRole("textbox", { name: "Hours" }).fill("at night");
      await dialog.getByText('"at" is not hours').waitFor();
      await dialog.getByRole("textbox", { name: "Hours" }).fill("22-5 sat,sun:0-24");
      await dialog.getByLabel("From the terminal").click();
      await dialog
        .getByText("agent admin rollout create acme --engine 1.12.0 --hours 22-5 --hours sat,sun:0-24")
        .waitFor();
      expect(await violationsInSchemes(page)).toEqual(noViolations);
      await dialog.getByRole("button", { name: "Begin" }).click();
      await dialog.getByText("No node permits updates by this control plane.").waitFor();
      await page.keyboard.press("Escape");
      await page.keyboard.press("Escape");
      await dialog.waitFor({ state: "detached" });
    },
    limitMs,
  );

  test(
    "one is begun by the keyboard alone, its rings fill, and it is paused, resumed and aborted",
    async () => {
      const { page } = scene;
      const updates = { may: ["agent", "engine"], order: 0, zone: 0 };
      for (const name of ["web", "db", "mail"]) {
        const machine = await speakingMachine(scene, name, [], { overlay_version: "1.10.1" });
        await machine.checkin({ overlay_version: "1.10.1", updates });
      }
      using database = new Database(join(scene.data, "control.db"));
      database.run("PRAGMA busy_timeout = 5000");
      const count = (sql: string) => database.query<{ n: number }, []>(sql).get()?.n;
      await until(() => count("SELECT count(*) AS n FROM nodes WHERE may_update IS NOT NULL") === 3);
      await page.getByRole("button", { name: "Update nodes" }).press("Enter");
      await page.getByLabel("Version of the engine").focus();
      await page.keyboard.type("1.12.0");
      // It says what is chosen, what runs now, and what happens in which order.
      const begin = page.getByRole("dialog");
      await begin.getByText("Now 1.10.1 on 3 nodes.").waitFor();
      await begin.getByRole("heading", { name: "engine 1.12.0, up to 3 nodes" }).waitFor();
      await begin.getByText("Nodes whose root does not permit updates are left out.").waitFor();
      await begin.getByText("Ring 1: 1 node, watched for 30 minutes.").waitFor();
      await begin.getByText(/^Ring 2: 2 nodes, lighthouses, relays/).waitFor();
      await page.keyboard.press("Enter");
      await page.getByRole("heading", { name: "engine 1.12.0" }).waitFor();
      await page.getByText("Ring 1, now").waitFor();
      expect(new URL(page.url()).pathname).toBe("/console/acme/rollouts/1/");
      await page.getByText("0 of 3 nodes updated").waitFor();
      // In place of the button.
      await page.getByText("One rollout at a time: end the open one first.").waitFor();
      expect(await violationsInSchemes(page)).toEqual(noViolations);
      for (const [button, state] of [
        ["Pause", "paused"],
        ["Resume", "ring 1 of 2"],
      ] as const) {
        await page.getByRole("button", { name: button, exact: true }).press("Enter");
        const question = page.getByRole("dialog");
        await question.getByLabel("From the terminal").click();
        await question.getByText(`agent admin rollout ${button.toLowerCase()} acme 1`).waitFor();
        await question.getByRole("button", { name: button, exact: true }).press("Enter");
        await page.locator("header").getByText(state).waitFor();
      }
      database.run("UPDATE rollout_nodes SET state = 'passed' WHERE ring = 1");
      await page.getByText("1 of 3 nodes updated").waitFor();
    },
    limitMs,
  );

  test(
    "settings go through rings, too, and the form and the page say which",
    async () => {
      const { page } = scene;
      await scene.admin(["rollout", "abort", "acme", "1"]);
      using database = new Database(join(scene.data, "control.db"));
      database.run("PRAGMA busy_timeout = 5000");
      database.run("UPDATE rollouts SET state = 'stopped', ended_at = 1");
      await page.goto(`${scene.url()}/console/acme/rollouts/`);
      await page.getByRole("button", { name: "Update nodes" }).click();
      const dialog = page.getByRole("dialog");
      await dialog.getByRole("button", { name: "Engine settings" }).click();
      const settings = dialog.getByLabel("Settings of all engines");
      expect(await settings.inputValue()).toBe("{}");
      await settings.fill("");
      expect(await settings.inputValue()).toBe("");
      await settings.fill('{"tun":');
      await dialog.getByText("This is no JSON object.").waitFor();
      await settings.fill('{"mtu":1280}');
      await dialog.getByRole("button", { name: "Begin" }).click();
      await dialog.getByText(/^mtu: This setting is unknown. Known are .*tun,/).waitFor();
      expect(await dialog.getByRole("heading", { name: "Settings: mtu" }).count()).toBe(0);
      await dialog.getByRole("button", { name: "Versions" }).click();
      await dialog.getByText("Nothing is chosen yet.").waitFor();
      expect(await dialog.getByRole("alert").count()).toBe(0);
      await dialog.getByRole("button", { name: "Engine settings" }).click();
      await settings.fill("{}");
      await dialog.getByLabel("MTU of the tunnels").fill("1400");
      expect(JSON.parse(await settings.inputValue())).toEqual({ tun: { mtu: 1400 } });
      await dialog.getByRole("heading", { name: "Settings: tun, up to 3 nodes" }).waitFor();
      await dialog.getByText("If a node does not work with them, all nodes go back.").waitFor();
      await dialog.getByLabel("From the terminal").click();
      await dialog.getByText("agent admin rollout create acme --settings FILE").waitFor();
      expect(await violationsInSchemes(page)).toEqual(noViolations);
      await page.setViewportSize({ width: 320, height: 600 });
      expect(await overflowOf(page)).toBe(0);
      // A form that goes on below its end says so: its buttons stay, above a line.
      const end = await dialog.getByRole("button", { name: "Begin" }).boundingBox();
      expect((end?.y ?? 600) + (end?.height ?? 0)).toBeLessThan(600);
      await page.setViewportSize({ width: 1280, height: 800 });
      await page.keyboard.press("Escape");
      await page.keyboard.press("Escape");
      database.run("UPDATE rollouts SET state = 'running', ended_at = NULL");
    },
    limitMs,
  );

  test(
    "the node that failed is shown with its probe, to a member without actions and the line of its log",
    async () => {
      const { page, context } = await scene.open({ viewport: { width: 320, height: 700 } });
      await page.goto(`${scene.url()}/console/acme/rollouts/`);
      await signIn(page, member);
      await page.getByRole("heading", { name: "engine 1.12.0" }).waitFor();
      using database = new Database(join(scene.data, "control.db"));
      database.run("PRAGMA busy_timeout = 5000");
      database.run(
        `UPDATE rollout_nodes SET state = 'failed', reason = 'No packets', probe = 'large packets to 10.77.0.1',
           log_line = 'level=error msg="no route"' WHERE ring = 1`,
      );
      await page.getByRole("heading", { name: "No packets" }).waitFor();
      await page.getByText("large packets to 10.77.0.1").waitFor();
      const line = 'level=error msg="no route"';
      expect(await page.getByText(line).count()).toBe(0);
      await page.getByRole("row", { name: /failed|goes back|went back/ }).waitFor();
      expect(await page.getByRole("button", { name: /^(Pause|Resume|Abort|Update nodes)$/ }).count()).toBe(0);
      expect(await overflowOf(page)).toBe(0);
      expect(await violationsInSchemes(page)).toEqual(noViolations);
      await context.close();
      await scene.page.reload();
      await scene.page.getByText(line).waitFor();
    },
    limitMs,
  );

  test("no page complained", () => scene.expectQuiet());
});
