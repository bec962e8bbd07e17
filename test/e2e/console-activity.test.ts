// Activity in a real browser: events as sentences, filters, export, and texts that others chose.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { hostileTexts } from "../support/hostile.ts";
import { overflowOf, owner, signIn, startConsole, type Console } from "../support/console.ts";

const limitMs = 120_000;

describe("activity in the console", () => {
  let scene: Console;
  let page: Page;

  beforeAll(async () => {
    scene = await startConsole();
    ({ page } = scene);
    await page.goto(`${scene.url()}/console/acme/activity/`);
    await signIn(page);
    await page.getByRole("heading", { level: 1, name: "Activity" }).waitFor();
    await page.evaluate(async () => {
      const send = async (method: string, path: string, body?: object) => {
        const answer = await fetch(`/api/org/acme/${path}`, {
          method,
          headers: { "Content-Type": "application/json" },
          body: JSON.stringify(body),
        });
        if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
        return answer.text();
      };
      const { id } = JSON.parse(await send("POST", "nodes/", { name: "live-1" })) as { id: number };
      await send("PATCH", `nodes/${id}/`, { name: "beta" });
      await send("DELETE", `nodes/${id}/`);
      await send("POST", `nodes/${id}/restore/`);
    });
  }, limitMs);
  afterAll(() => scene[Symbol.asyncDispose]());

  test(
    "texts of others are texts: nothing runs, and the layout holds",
    async () => {
      await page.goto(`${scene.url()}/console/acme/activity/`);
      await page.getByRole("heading", { level: 1, name: "Activity" }).waitFor();
      const texts = hostileTexts(240);
      expect(new Set(texts).size).toBeGreaterThan(450);
      // Shown as they happen, and again after the page is loaded, with the name of the organization on every page.
      await page.evaluate(async (all) => {
        const change = async (description: string) => {
          const answer = await fetch("/api/org/acme/firewall_rules/1/", {
            method: "PATCH",
            headers: { "Content-Type": "application/json" },
            body: JSON.stringify({ description }),
          });
          if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
        };
        // Some at a time, as one after the other takes long, and the last one last.
        const left = all.slice(0, -1);
        while (left.length > 0) await Promise.all(left.splice(0, 5).map(change));
        await change(all.at(-1) ?? "");
      }, texts);
      const last = page.getByText(texts.at(-1) ?? "", { exact: true });
      await last.first().waitFor();
      await scene.admin(["org", "update", "acme", "--name", texts[0] ?? ""]);
      for (const path of ["activity/", "access/", ""]) {
        expect(await page.evaluate("'ran' in window")).toBe(false);
        expect(await overflowOf(page)).toBeLessThanOrEqual(0);
        expect(
          await page.locator("main :is(script, iframe, object, img, form[action], base, style)").count(),
        ).toBe(0);
        await page.goto(`${scene.url()}/console/acme/${path}`);
        await page.getByRole("heading", { level: 1 }).waitFor();
      }
    },
    limitMs,
  );

  test(
    "activity is filtered by the address, exported, read back to the first event, and its chain is whole",
    async () => {
      await page.goto(`${scene.url()}/console/acme/activity/?type=node.*`);
      const events = page.locator(".log > li");
      await page.getByText("node.restored").waitFor();
      expect(await events.filter({ hasNotText: "node." }).count()).toBe(0);
      await page.getByLabel("Actor", { exact: true }).fill(owner);
      await page.getByLabel("Subject").fill("beta");
      await events.filter({ hasText: "beta" }).first().waitFor();
      expect(Object.fromEntries(new URL(page.url()).searchParams)).toEqual({
        type: "node.*",
        actor: owner,
        subject: "beta",
      });
      const renamed = events.filter({ hasText: "node.updated" }).first();
      expect(await renamed.locator("del").allInnerTexts()).toContain("live-1");
      expect(await renamed.locator("ins").allInnerTexts()).toContain("beta");
      const [file, said] = await Promise.all([
        page.waitForEvent("download"),
        // It is there for some seconds.
        page.getByText(/\.csv has all/).innerText(),
        page.getByRole("button", { name: "Export CSV" }).click(),
      ]);
      expect(file.suggestedFilename()).toMatch(/^acme-events-\d{4}-\d\d-\d\d-\d{4}-\d\d-\d\d-filtered\.csv$/);
      expect(said).toContain(`${file.suggestedFilename()} has all`);
      const lines = (await Bun.file(await file.path()).text()).split("\r\n");
      expect(lines[0]).toBe(
        '"at","type","subject","actor","changes","before","after","id","hash","sentence"',
      );
      expect(lines.slice(1, -1).every((line) => line.includes("beta") && line.includes(owner))).toBe(true);
      await page.getByRole("button", { name: "Clear the filters" }).click();
      await page.getByLabel("Type").fill("organization.created");
      await events.filter({ hasText: "The operator created the organization acme" }).waitFor();
      await page.getByRole("button", { name: "Verify the chain" }).click();
      const whole = await page.getByText(/The chain of \d+ events is whole/).innerText();
      await page.getByText("agent admin audit verify").waitFor();
      await page.getByRole("button", { name: "Close" }).click();
      // It is a state of the page from then on.
      await page.getByText(/^whole to event \d+, checked /).waitFor();
      await page.getByRole("button", { name: "The last 7 days" }).click();
      expect(Object.keys(Object.fromEntries(new URL(page.url()).searchParams))).toEqual([
        "type",
        "from",
        "to",
      ]);
      // New events do not move what is read further down.
      await page.goto(`${scene.url()}/console/acme/activity/`);
      await events.nth(20).waitFor();
      // The file has every event, also those that the page has not read.
      const count = Number(/\d+/.exec(whole)?.[0]);
      expect(count).toBeGreaterThan(400);
      const [everything] = await Promise.all([
        page.waitForEvent("download"),
        page.getByRole("button", { name: "Export CSV" }).click(),
      ]);
      const text = await Bun.file(await everything.path()).text();
      expect(text.match(/^"\d{4}-\d\d-\d\dT[^"]+Z",/gm)?.length).toBe(count);
      await page.evaluate(`new Promise((done) => {
        addEventListener("scroll", () => requestAnimationFrame(done), { once: true });
        scrollTo(0, 400);
      })`);
      await scene.admin(["group", "create", "acme", "held"]);
      const newer = page.getByRole("button", { name: /^\d+ newer$/ });
      await newer.waitFor();
      expect(await events.filter({ hasText: "held" }).count()).toBe(0);
      await newer.click();
      await events.filter({ hasText: "held" }).first().waitFor();
      // Of a longer log, a file has the newest events, and the page says what is not in it.
      const server = { kind: "server", id: null, ip: null };
      await page.route(/events\/\?before=\d+&limit=1000$/, (route) => {
        const before = Number(new URL(route.request().url()).searchParams.get("before"));
        const first = Math.min(before, 50_000) - 1000;
        const json = Array.from({ length: 1000 }, (_, at) => ({
          id: first + at,
          at: "2026-11-01T12:00:00.000Z",
          type: "group.created",
          actor: server,
          subject: `group/g${first + at}`,
          before: null,
          after: null,
          hash: "",
        }));
        return route.fulfill({ json });
      });
      const [cut] = await Promise.all([
        page.waitForEvent("download"),
        page.getByRole("button", { name: "Export CSV" }).click(),
      ]);
      await page
        .getByText(`${cut.suggestedFilename()} has not all: of the newest 20000 events, 20000 match.`)
        .waitFor();
      await page.getByText("agent admin events acme --json --lines").waitFor();
      expect((await Bun.file(await cut.path()).text()).split("\r\n").length).toBe(20_002);
      await page.unroute(/events\/\?before=\d+&limit=1000$/);
      // It is about that export only.
      await page.getByRole("navigation").getByRole("link", { name: "Members" }).first().click();
      await page.getByRole("heading", { level: 1, name: "Members" }).waitFor();
      await page.getByRole("link", { name: "Activity" }).click();
      await events.first().waitFor();
      expect(await page.getByText("has not all").count()).toBe(0);
    },
    limitMs,
  );

  test(
    "a press on the week leaves the events of these hours, read by their time, and arrows go through it",
    async () => {
      await page.goto(`${scene.url()}/console/acme/activity/`);
      const week = page.getByRole("region", { name: "Events by hours, seven days" });
      const hours = week.getByRole("link", { name: /: [1-9]\d* events/ }).last();
      const [request] = await Promise.all([
        page.waitForRequest(/events\/\?before=\d+&limit=\d+&from=/),
        hours.click(),
      ]);
      const { from = "", to = "" } = Object.fromEntries(new URL(page.url()).searchParams);
      expect([from, to].every((each) => /^\d{4}-\d\d-\d\dT\d\d$/.test(each))).toBe(true);
      // The test and the browser are in the same zone.
      const asked = new URL(request.url()).searchParams;
      expect([asked.get("from"), asked.get("until")]).toEqual(
        [from, to].map((each) => new Date(`${each}:00:00`).toISOString()),
      );
      await page.locator(".log > li").first().waitFor();
      expect(await week.locator("[aria-current]").count()).toBe(1);
      await week.locator("[aria-current]").focus();
      await page.keyboard.press("ArrowLeft");
      expect(await week.locator("a:focus").count()).toBe(1);
      expect(await week.locator("[aria-current]:focus").count()).toBe(0);
      // The same hours once more: all events again.
      await week.locator("[aria-current]").click();
      expect(new URL(page.url()).search).toBe("");
    },
    limitMs,
  );

  test(
    "chips leave a part of the log, and failures are counted",
    async () => {
      await page.goto(`${scene.url()}/console/acme/activity/`);
      await page.getByRole("main").getByRole("link", { name: "Access", exact: true }).click();
      await page.locator(".log > li").first().waitFor();
      expect(
        await page
          .locator(".log > li")
          .filter({ hasNotText: /rule\.|group\.|policy\./ })
          .count(),
      ).toBe(0);
      await page.getByRole("link", { name: /^Failures/ }).click();
      expect(new URL(page.url()).search).toBe("?about=failures");
      await page.getByText("No event matches.").waitFor();
      await page.getByRole("link", { name: "All", exact: true }).click();
      await page.locator(".log > li").first().waitFor();
      expect(new URL(page.url()).search).toBe("");
    },
    limitMs,
  );

  test(
    "what happens before the stream is open is in the activity, too",
    async () => {
      const other = await page.context().newPage();
      await other.addInitScript(
        "globalThis.requestIdleCallback = (work) => void (globalThis.startLive = work)",
      );
      await other.goto(`${scene.url()}/console/acme/activity/`);
      await other.locator(".log > li").first().waitFor();
      await scene.admin(["node", "create", "acme", "early-1"]);
      await other.evaluate("startLive()");
      await other.getByText("early-1").first().waitFor();
      // Neither this event nor one that was read has the name of the machine.
      await scene.admin(["node", "update", "acme", "beta", "--add-group", "held"]);
      await other
        .locator(".log > li")
        .filter({ hasText: "The operator changed the node beta" })
        .filter({ hasText: "held" })
        .waitFor();
      await other.getByRole("button", { name: "node.updated" }).first().click();
      await other.getByRole("button", { name: "As JSON" }).click();
      await other.locator("pre").filter({ hasText: '"subject": "node/1"' }).waitFor();
      await other.close();
    },
    limitMs,
  );

  test(
    "what happened while nothing was heard is read until nothing is missing; a failure is told and read again",
    async () => {
      const other = await page.context().newPage();
      await other.goto(`${scene.url()}/console/acme/activity/`);
      await other.getByText("live", { exact: true }).waitFor();
      // As if far more had happened than one answer has.
      const newest = /before=\d{15}&/;
      let asked = 0;
      await other.route(newest, (route) => {
        asked++;
        return route.continue({
          url: route
            .request()
            .url()
            .replace(/limit=\d+/, "limit=2"),
        });
      });
      const further: string[] = [];
      other.on("request", (request) => {
        if (/events\/\?before=\d{1,14}&/.test(request.url())) further.push(request.url());
      });
      await other.evaluate(`dispatchEvent(new Event("pagehide"))`);
      for (const at of [1, 2, 3, 4, 5]) await scene.admin(["group", "create", "acme", `missed-${at}`]);
      await other.evaluate(`dispatchEvent(new PageTransitionEvent("pageshow", { persisted: true }))`);
      for (const at of [5, 4, 3, 2, 1]) await other.getByText(`missed-${at}`).first().waitFor();
      await other.unroute(newest);
      // What is missing is read in one answer, not event by event.
      expect([asked > 0, further.length]).toEqual([true, 1]);
      const failing = /api\/org\/acme\/events\/\?/;
      await other.route(failing, (route) => route.fulfill({ status: 502, json: { detail: "Not now." } }));
      await other.reload();
      await other.getByRole("alert").filter({ hasText: "Not now." }).waitFor();
      expect(await other.getByText("that were read matches").count()).toBe(0);
      await other.unroute(failing);
      await other.getByText("missed-5").first().waitFor();
      // What was read stays, with its age.
      const stale = /api\/org\/acme\/members\/\?/;
      await other.route(stale, (route) => route.fulfill({ status: 502, json: { detail: "Not now." } }));
      await scene.admin(["group", "create", "acme", "stale"]);
      await other.getByText(/^As of .*; cannot be read now: Not now\.$/).waitFor();
      await other.close();
    },
    limitMs,
  );

  test("no page complained", () => {
    scene.expectQuiet();
  });
});
