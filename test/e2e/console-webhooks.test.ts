// The console's pages for alarms, their rules, webhooks and their deliveries, in a real browser.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Database } from "bun:sqlite";
import { join } from "node:path";
import type { Page, Request } from "playwright-core";
import {
  askToDelete,
  noViolations,
  openPage,
  overflowOf,
  signIn,
  startConsole,
  violationsInSchemes,
  type Console,
} from "../support/console.ts";
import { until } from "../support/until.ts";

const limitMs = 120_000;

describe("webhooks in the console", () => {
  const received: string[] = [];
  const receiver = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    async fetch(request) {
      received.push(await request.text());
      return new Response("thanks");
    },
  });
  let scene: Console;
  let page: Page;

  const button = (name: string | RegExp) => page.getByRole("button", { name });

  beforeAll(async () => {
    scene = await startConsole(["--webhook-allow", "127.0.0.0/8"]);
    ({ page } = scene);
    await page.goto(`${scene.url()}/console/acme/`);
    await signIn(page);
    await page.getByRole("heading", { name: "Overview" }).waitFor();
  }, limitMs);
  afterAll(async () => {
    await scene[Symbol.asyncDispose]();
    await receiver.stop(true);
  });

  test(
    "alarms are one place, found by any of their words: what is wrong, and rules that are changed there",
    async () => {
      for (const word of ["alarm", "webhook", "rules"]) {
        await page.keyboard.press("Control+k");
        await page.getByLabel("Page or node").fill(word);
        await page.getByRole("option", { name: /^Alarms/ }).waitFor();
        await page.keyboard.press("Escape");
      }
      using database = new Database(join(scene.data, "control.db"));
      database.run("PRAGMA busy_timeout = 5000");
      const now = Date.now();
      database.run(
        `INSERT INTO alarms (org_id, kind, heads, rest, title, text, is_urgent, since, raised_at)
         SELECT id, 'router', '["node/1"]', '[]', 'Router gw is away', ?2, 1, ?1, ?1
         FROM organizations`,
        [now, "Since 2026-11-29T12:50:51Z.\nNobody reaches 192.168.7.0/24. There: `sudo agent doctor`."],
      );
      await openPage(page, "Alarms");
      await page.getByRole("row").filter({ hasText: "Router gw is away" }).getByText("open").waitFor();
      // A long title takes several lines.
      const titleCell = `document.querySelector(".body [data-column=alarm]")`;
      expect(await page.evaluate<string>(`getComputedStyle(${titleCell}).whiteSpace`)).toBe("normal");
      // Its column has the time.
      expect(await page.getByTitle("Nobody reaches").innerText()).toBe(
        "Nobody reaches 192.168.7.0/24. There: sudo agent doctor.",
      );
      const rule = (words: string) => page.getByRole("row").filter({ hasText: words });
      await rule("A relay has been away for this time").getByText("3 minutes").waitFor();
      await button("Change: A relay has been away for this time").click();
      const dialog = page.getByRole("dialog");
      await dialog.getByLabel("Value").fill("1");
      await button("Save").click();
      await dialog.getByText("relay=1: Enter RULE=VALUE").waitFor();
      await dialog.getByLabel("Value").fill("30");
      await dialog.getByLabel("From the terminal").click();
      await dialog.getByText("agent admin org update acme --alarm relay=30", { exact: true }).waitFor();
      expect(await violationsInSchemes(page)).toEqual(noViolations);
      await button("Save").click();
      await rule("A relay has been away for this time").getByText("30 minutes").waitFor();
      await button("Change: A test of the policy fails").press("Enter");
      await dialog.getByLabel("Value").selectOption("off");
      await button("Save").click();
      await rule("A test of the policy fails").getByText("off").waitFor();
      await scene.admin(["group", "create", "acme", "laptops"]);
      await button("Add a rule for a group").click();
      await dialog.getByLabel("Groups").fill("laptops");
      await dialog.getByLabel("Value").fill("60");
      await button("Save").click();
      await rule("A node of laptops has been away for this time").getByText("60 minutes").waitFor();
      await button("Change: A relay has been away for this time").click();
      await dialog.getByLabel("Value").fill("");
      await button("Save").click();
      await rule("A relay has been away for this time").getByText("3 minutes").waitFor();
      const { alarm_rules: rules } = await scene.adminJson(["org", "show", "acme"]);
      expect(rules).toEqual(["policy=off", "node:laptops=60"]);
      expect(await violationsInSchemes(page)).toEqual(noViolations);
      await page.setViewportSize({ width: 320, height: 700 });
      expect(await overflowOf(page)).toBe(0);
      await page.setViewportSize({ width: 1280, height: 800 });
      // Settings have them no more.
      await openPage(page, "Settings");
      await page.getByText("Nodes report their paths").waitFor();
      expect(await page.getByText("Rules of alarms").count()).toBe(0);
      // Its end would be an event in a later test: no cause explains it.
      database.run("UPDATE alarms SET ended_at = since");
    },
    limitMs,
  );

  test(
    "a webhook is created, its deliveries are listed, and it is deleted",
    async () => {
      await openPage(page, "Alarms");
      await button("Create a webhook").click();
      await page.getByLabel(/^URL/).fill("https://hooks.slack.com/services/T/B/x");
      await page.getByText("Slack, by its address.").waitFor();
      await page.getByLabel(/^URL/).fill(`http://127.0.0.1:${receiver.port}/hook`);
      await page.getByText("JSON, by its address.").waitFor();
      expect(await page.getByLabel("Events").inputValue()).toBe("alarm.*");
      // Families and types are offered, behind what is typed already.
      await page.getByLabel("Events").fill("node.*, ");
      for (const offered of ["node.*, ca.*", "node.*, node.revoked"])
        await page.locator(`option[value="${offered}"]`).waitFor({ state: "attached" });
      await page.getByLabel("Events").fill("no.such.event");
      await button("Create the webhook").click();
      await page.getByText("This event type does not exist.").waitFor();
      await page.getByLabel("Events").fill("node.created");
      await button("Create the webhook").click();
      await button("I have kept it").click();
      await scene.admin(["node", "create", "acme", "beta"]);
      while (received.length === 0) await Bun.sleep(20);
      await page.getByRole("link", { name: /\/hook/ }).click();
      await page.getByText("delivered").first().waitFor();
      await page.getByText(/Last success: (now|\d+[sm] ago)\./).waitFor();
      await page.getByRole("link", { name: /^node\.created beta$/ }).waitFor();
      expect(received.join()).toContain("beta");
      await button("Send again").click();
      while (received.length === 1) await Bun.sleep(20);
      expect(received[1]).toBe(received[0] ?? "");
      await page.getByText("Delivered: the receiver answered 200.").waitFor();
      await askToDelete(page);
      const host = `127.0.0.1:${receiver.port}`;
      await page.getByRole("heading", { name: `Delete the webhook http://${host}/hook?` }).waitFor();
      expect(await button("Delete the webhook").isDisabled()).toBe(true);
      await page.getByLabel(`Type ${host} to go on`).fill(host);
      await button("Delete the webhook").click();
      await page.getByText("A webhook sends alarms").waitFor();
      // One that fails needs a person.
      const nowhere = "http://127.0.0.1:1/nowhere";
      await scene.admin(["webhook", "create", "acme", nowhere, "--event", "group.*"]);
      await scene.admin(["group", "create", "acme", "fails"]);
      const listed = "fetch('/api/org/acme/webhooks/').then((answer) => answer.text())";
      await until(async () => String(await page.evaluate(listed)).includes('"failing":true'));
      await page.goto(`${scene.url()}/console/acme/`);
      await page
        .getByRole("listitem")
        .filter({ hasText: "127.0.0.1:1" })
        .getByRole("link", { name: "Deliveries" })
        .click();
      await page.getByText("The last attempt failed: The connection failed").waitFor();
      await page.getByRole("heading", { name: "Deliveries are failing" }).waitFor();
      await page.getByText(/Last success: none/).waitFor();
      await button("Send all of them now").click();
      await page.locator(".told.bad").getByText("Not delivered. The connection failed").waitFor();
      await askToDelete(page);
      await page.getByLabel("Type 127.0.0.1:1 to go on").fill("127.0.0.1:1");
      await button("Delete the webhook").click();
      await page.getByText("A webhook sends alarms").waitFor();
    },
    limitMs,
  );

  test(
    "the newest deliveries of a webhook are read, older ones on request, and each of them is sent again",
    async () => {
      const hook = `http://127.0.0.1:${receiver.port}/busy`;
      const { id } = await scene.adminJson(["webhook", "create", "acme", hook, "--event", "ca.*"]);
      using database = new Database(join(scene.data, "control.db"));
      database.run("PRAGMA busy_timeout = 5000");
      // The oldest failed, the next one waits. The others were delivered.
      const now = Date.now();
      database.run(
        `INSERT INTO deliveries (webhook_id, event_id, attempts, next_at, status, message, delivered_at, created_at)
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 450)
         SELECT ?1, (SELECT max(id) FROM events WHERE type = iif(i = 1, 'organization.created', 'webhook.created')), 1,
           iif(i = 2, ?3, NULL), iif(i < 3, 500, 200), iif(i < 3, 'The receiver answered 500.', NULL),
           iif(i < 3, NULL, ?2), ?2 FROM n`,
        [Number(id), now, now + 3_600_000],
      );
      const asked: string[] = [];
      const note = (request: Request) => {
        if (request.url().includes("/deliveries/")) asked.push(`${request.method()} ${request.url()}`);
      };
      page.on("request", note);
      await page.goto(`${scene.url()}/console/acme/webhooks/${String(id)}/`);
      const heading = (text: string) => page.getByRole("heading", { name: text, exact: true }).waitFor();
      const rows = () => page.getByRole("table").getAttribute("aria-rowcount");
      await heading("Newest 200 deliveries of the last 30 days");
      await page.getByText("Search and export cover these.").waitFor();
      expect(await rows()).toBe("201");
      expect(await page.getByText("Waiting for the next attempt").count()).toBe(0);
      const [file] = await Promise.all([page.waitForEvent("download"), button("Export CSV").click()]);
      expect(file.suggestedFilename()).toBe("acme-newest-200-deliveries.csv");
      expect((await Bun.file(await file.path()).text()).trim().split("\r\n")).toHaveLength(201);
      // Nothing is under way: at most the reading of each 20 seconds.
      asked.splice(0);
      await page.waitForTimeout(7000);
      expect(asked.length).toBeLessThan(2);
      await button("Older deliveries").click();
      await heading("Newest 400 deliveries of the last 30 days");
      await button("Older deliveries").click();
      await heading("Deliveries of the last 30 days");
      expect(await rows()).toBe("451");
      expect(await button("Older deliveries").count()).toBe(0);
      await page.getByText("Waiting for the next attempt: 1.").waitFor();
      await button("Send all of them now").click();
      await page.locator(".told.good").getByText("Delivered: the receiver answered 200.").waitFor();
      await page.getByText("Waiting for the next attempt").waitFor({ state: "detached" });
      await page.getByLabel("Search deliveries").fill("organization.created");
      await page.getByText("The receiver answered 500.").waitFor();
      const before = received.length;
      await page.locator(".told.good").waitFor({ state: "detached" });
      await button("Send again").click();
      await page.getByText("Delivered: the receiver answered 200.").waitFor();
      expect(received).toHaveLength(before + 1);
      await page.getByText("The receiver answered 500.").waitFor({ state: "detached" });
      for (const each of asked.filter((one) => one.startsWith("GET"))) expect(each).toContain("&limit=200");
      page.off("request", note);
      await scene.admin(["webhook", "delete", "acme", String(id)]);
    },
    limitMs,
  );

  test("no page complained", () => {
    scene.expectQuiet();
  });
});
