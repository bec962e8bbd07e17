// Nodes in a list that changes while it is looked at, on their page, and found by keys, in a real browser.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Page, Request } from "playwright-core";
import {
  addRule,
  type Console,
  holdRequests,
  noViolations,
  overflowOf,
  signIn,
  speakingMachine,
  startConsole,
  violationsIn,
  violationsInSchemes,
} from "../support/console.ts";
import { until } from "../support/until.ts";

const limitMs = 120_000;

describe("a list of nodes in the console", () => {
  let scene: Console;
  let page: Page;

  const button = (name: string) => page.getByRole("button", { name, exact: true });
  const machine = (name: string, groups: readonly string[], roles: object = {}) =>
    speakingMachine(scene, name, groups, roles);

  beforeAll(async () => {
    scene = await startConsole();
    ({ page } = scene);
    await page.goto(`${scene.url()}/console/acme/`);
    await page.locator(":focus[name=email]").waitFor();
    await signIn(page);
    await page.getByRole("heading", { name: "Overview" }).waitFor();
    await machine("web-1", ["web"]);
    await machine("db", ["db"]);
    // More rows than a low window shows.
    for (const at of [1, 2, 3, 4, 5, 6]) await scene.admin(["node", "create", "acme", `more-${at}`]);
  }, limitMs);
  afterAll(() => scene[Symbol.asyncDispose]());

  test(
    "a node's page shows what may reach it, and its configuration beside the newest one",
    async () => {
      await (await machine("app", ["app"])).applied();
      await page.goto(`${scene.url()}/console/acme/nodes/`);
      await page.getByRole("link", { name: "app", exact: true }).press("Enter");
      await page.getByText("It has applied the newest configuration").waitFor();
      await page.getByRole("heading", { name: "May be reached by" }).waitFor();
      const status = await page.evaluate(async () => {
        const rule = { direction: "inbound", protocol: "tcp", ports: "2222", peer: { group: "db" } };
        const answer = await fetch("/api/org/acme/firewall_rules/", {
          method: "POST",
          headers: { "Content-Type": "application/json" },
          body: JSON.stringify({ ...rule, target: { any: true }, description: "" }),
        });
        return answer.status;
      });
      expect(status).toBe(201);
      await page
        .getByTitle(/in db may reach all \w+ on tcp 2222/)
        .first()
        .waitFor();
      await page.getByText("The newest changes this").waitFor();
      // What is below the paths does not move when they are there.
      const release = await holdRequests(page, /\/peers\/\?/);
      await page.reload();
      const below = page.getByText("app.acme.internal", { exact: true });
      await below.waitFor({ state: "attached" });
      expect(await below.isVisible()).toBe(false);
      release();
      await below.waitFor();
      await page.unroute(/\/peers\/\?/);
      // No machine is called deleted while its name is read, or if that fails.
      await machine("named", []);
      await addRule(scene, "--protocol tcp --ports 2223 --peer node:named --target group:app");
      const names = /nodes\/\?page_size=1000&ids=/;
      await page.route(names, (route) => route.fulfill({ status: 400, json: {} }));
      await Promise.all([page.waitForResponse(names), page.reload()]);
      await page.getByRole("heading", { name: "Firewall" }).waitFor();
      expect(await page.getByTitle("a deleted").count()).toBe(0);
      await page.unroute(names);
      await scene.admin(["group", "create", "acme", "reads-again"]);
      await page.getByTitle(/^named may reach \w+ in app on tcp 2223/).waitFor();
      await page.locator(".diff ins").filter({ hasText: "2222" }).first().waitFor();
      // Its own name inside the network, and another that is added and deleted.
      await page.getByText("app.acme.internal", { exact: true }).waitFor();
      await button("Add an alias").click();
      await page.getByRole("textbox", { name: "Alias" }).fill("intranet");
      await button("Add the alias").click();
      const alias = page.getByRole("listitem").filter({ hasText: "intranet.acme.internal" });
      await alias.waitFor();
      expect(await scene.admin(["name", "list", "acme"])).toContain("intranet");
      expect(await violationsIn(page)).toEqual([]);
      expect(await overflowOf(page)).toBeLessThanOrEqual(0);
      // It is found by it.
      await page.keyboard.press("Control+k");
      await page.getByLabel("Page or node").fill("no such name");
      await page.getByText("No page or node has this").waitFor();
      for (const words of ["mtu", "engine settings"]) {
        await page.getByLabel("Page or node").fill(words);
        await page.getByRole("option", { name: /^Rollouts / }).waitFor();
      }
      await page.getByLabel("Page or node").fill("intranet");
      await page.getByRole("option", { name: /^app / }).waitFor();
      await page.keyboard.press("Escape");
      // The panel beside the list has it, too.
      const nodePage = page.url();
      const id = /\/nodes\/(\d+)/.exec(nodePage)?.[1];
      await page.goto(`${scene.url()}/console/acme/nodes/?node=${id}`);
      await page.getByRole("complementary").getByText("intranet.acme.internal").waitFor();
      await page.goto(nodePage);
      await alias.getByRole("button", { name: "Delete intranet" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Delete intranet" }).click();
      await alias.waitFor({ state: "detached" });
    },
    limitMs,
  );

  test(
    "a node that came while no page showed the list is there when one does again",
    async () => {
      const to = (name: string) => page.getByRole("navigation").getByRole("link", { name }).first().click();
      await page.goto(`${scene.url()}/console/acme/nodes/`);
      await page.getByRole("row").nth(1).waitFor();
      await to("Settings");
      await page.getByRole("heading", { level: 1, name: "Settings" }).waitFor();
      await machine("unwatched", []);
      await to("Nodes");
      await page.getByRole("row").filter({ hasText: "unwatched" }).waitFor();
      // Once more, at the moment when the change is about to be read.
      await machine("barely-watched", []);
      await to("Settings");
      await page.getByRole("heading", { level: 1, name: "Settings" }).waitFor();
      await to("Nodes");
      await page.getByRole("row").filter({ hasText: "barely-watched" }).waitFor();
    },
    limitMs,
  );

  test(
    "a node that checks in is online within a moment, and no list is read for it",
    async () => {
      const quiet = await machine("quiet", []);
      // All of it is read again when the stream of events is open, and then not for 20 s.
      let readings = 0;
      const isSecond = (request: Request) =>
        /\/nodes\/\?page_size=1000&page=1/.test(request.url()) && ++readings === 2;
      const second = page.waitForRequest(isSecond);
      await page.goto(`${scene.url()}/console/acme/nodes/?search=quiet`);
      const row = page.getByRole("row").filter({ hasText: "quiet" });
      await row.getByText("away").waitFor();
      await (await (await second).response())?.finished();
      const lists: string[] = [];
      const note = (request: Request) => {
        // The number of those that are revoked is asked for, too.
        if (/\/nodes\/\?(?!page_size=1&)/.test(request.url())) lists.push(request.url());
      };
      page.on("request", note);
      await quiet.checkin({});
      await row.getByText("online").waitFor();
      page.off("request", note);
      expect(lists).toEqual([]);
    },
    limitMs,
  );

  test(
    "rows that are read keep their places until they are sorted again, and a changed cell is marked",
    async () => {
      const [first, second] = [await machine("calm-1", []), await machine("calm-2", [])];
      await first.checkin({});
      // Times of contacts are told in seconds.
      await Bun.sleep(1100);
      await second.checkin({});
      const tab = await scene.context.newPage();
      await tab.addInitScript(`
        const { animate } = Element.prototype;
        globalThis.marked = [];
        Element.prototype.animate = function (...how) {
          globalThis.marked.push(this.innerText);
          return animate.apply(this, how);
        };
        const later = setTimeout;
        setTimeout = (work, ms, ...given) => later((...all) => {
          work(...all);
          if (ms === 2000) globalThis.isSettled = true;
        }, ms, ...given);`);
      await tab.goto(`${scene.url()}/console/acme/nodes/?search=calm&order=-seen`);
      const names = () => tab.locator(".body .first").allInnerTexts();
      const sort = tab.getByRole("button", { name: "sort again" });
      await tab.getByText("2 of ").waitFor();
      await until(async () => (await names()).join() === "calm-2,calm-1");
      // What an earlier visit kept is brought up to date first.
      await until(() => tab.evaluate<boolean>("globalThis.isSettled"));
      await first.checkin({});
      await tab.getByText("1 new or moved: sort again").waitFor();
      await scene.admin(["node", "create", "acme", "calm-0"]);
      await tab.getByText("3 of ").waitFor();
      // The space for it comes first.
      await until(async () => (await names()).length === 3);
      expect(await names()).toEqual(["calm-2", "calm-1", "calm-0"]);
      await scene.admin(["node", "update", "acme", "calm-0", "--add-group", "new", "--name", "calm-3"]);
      await until(() => tab.evaluate<boolean>('marked.includes("calm-3")'));
      expect(await tab.evaluate("marked")).toEqual(["calm-3"]);
      // Shift begins at the machine that was picked, wherever it stands now.
      await tab.getByLabel("Select calm-2").click();
      await sort.click();
      await until(async () => (await names()).join() === "calm-1,calm-2,calm-3");
      await sort.waitFor({ state: "detached" });
      await tab.getByLabel("Select calm-3").click({ modifiers: ["Shift"] });
      await tab.getByText("2 selected").waitFor();
      await tab.close();
    },
    limitMs,
  );

  test(
    "the first nodes of a list are not exported or selected as all of them",
    async () => {
      const held = Promise.withResolvers<void>();
      await page.route(/nodes\/\?page_size=1000&page=/, async (route) => {
        if (!route.request().url().endsWith("page=1")) {
          await held.promise;
          return route.fulfill({ status: 502, json: { code: "internal", detail: "It did not work." } });
        }
        const response = await route.fetch();
        const headers = { ...response.headers(), link: '</next>; rel="next"', "x-total-count": "1500" };
        return route.fulfill({ response, headers });
      });
      await page.goto(`${scene.url()}/console/acme/nodes/`);
      await page.getByText("of 1500").waitFor();
      const areDisabled = async () => [
        await button("Export CSV").isDisabled(),
        await page.getByLabel("Select all that are shown").isDisabled(),
      ];
      expect(await areDisabled()).toEqual([true, true]);
      held.resolve();
      await page.getByRole("alert").getByText("It did not work.").waitFor();
      expect(await areDisabled()).toEqual([true, true]);
      await page.unroute(/nodes\/\?page_size=1000&page=/);
      await page.reload();
      await page.getByRole("row").nth(1).waitFor();
      expect(await areDisabled()).toEqual([false, false]);
    },
    limitMs,
  );

  test(
    "Ctrl K finds pages and nodes, ? lists the keys, j and Enter open a row",
    async () => {
      await page.keyboard.press("Control+k");
      const field = page.getByRole("combobox", { name: "Page or node" });
      await field.fill("web");
      await page.getByRole("option", { name: /^web-1/ }).waitFor();
      expect(await violationsIn(page)).toEqual([]);
      await field.fill("activ");
      await field.press("Enter");
      await page.getByRole("heading", { level: 1, name: "Activity" }).waitFor();
      await page.keyboard.press("Control+k");
      await field.fill("10.77.");
      await page.getByRole("option").first().waitFor();
      // The option that the arrows choose is in sight.
      await page.setViewportSize({ width: 1280, height: 400 });
      await field.fill("");
      await field.press("ArrowUp");
      const isInSight = `(() => {
        const [list, option] = ["[role=listbox]", "[aria-selected=true]"].map((each) =>
          document.querySelector(each).getBoundingClientRect());
        return option.top >= list.top - 1 && option.bottom <= list.bottom + 1;
      })()`;
      await page.getByRole("option", { name: "Account", selected: true }).waitFor();
      await until(() => page.evaluate<boolean>(isInSight));
      // Enter waits for what is searched.
      const release = await holdRequests(page, /page_size=8/);
      await field.fill("web-1");
      await field.press("Enter");
      await page.getByText("Searching").waitFor();
      release();
      await page.getByRole("heading", { level: 1, name: "web-1" }).waitFor();
      await until(async () => (await page.title()) === "web-1 · Nodes · acme");
      await page.unroute(/page_size=8/);
      await field.waitFor({ state: "detached" });
      await page.keyboard.press("?");
      await page.getByText("Next and previous row").waitFor();
      await page.keyboard.press("Escape");
      await page.getByText("Next and previous row").waitFor({ state: "detached" });
      await page.keyboard.press("g");
      await page.keyboard.press("n");
      await page.getByRole("row").nth(1).waitFor();
      // From the search to its results. Escape empties it, and then leaves it.
      await page.keyboard.press("/");
      await page.keyboard.type("web-1");
      const isOn = (name: string) => page.locator(".body :focus").filter({ hasText: name }).waitFor();
      for (const key of ["ArrowDown", "Enter"]) {
        await page.getByText(/^1 of/).waitFor();
        await page.keyboard.press(key);
        await isOn("web-1");
        await page.keyboard.press("/");
      }
      await page.keyboard.press("Escape");
      await page.locator("[type=search]:focus").waitFor();
      await page.getByText(/^1 of/).waitFor({ state: "detached" });
      await page.keyboard.press("Escape");
      expect(await page.evaluate("document.activeElement === document.body")).toBe(true);
      // What has the focus is not below the head.
      for (const key of "jjjjjjjjjjjjkkkkkk") await page.keyboard.press(key);
      const isSeen = `document.activeElement.getBoundingClientRect().top >=
        document.querySelector(".rows .head").getBoundingClientRect().bottom`;
      expect(await page.evaluate("document.activeElement.closest('[role=row]') !== null")).toBe(true);
      expect(await page.evaluate(isSeen)).toBe(true);
      await page.setViewportSize({ width: 1280, height: 800 });
      await page.keyboard.press("Enter");
      await page.getByRole("heading", { name: "Facts" }).waitFor();
      // Rows without a link have a button.
      await page.keyboard.press("g");
      await page.keyboard.press("p");
      await page.getByRole("heading", { level: 1, name: "Members" }).waitFor();
      await page
        .getByLabel(/^Actions for/)
        .first()
        .waitFor();
      await page.keyboard.press("j");
      expect(await page.evaluate("document.activeElement.closest('[role=row]') !== null")).toBe(true);
      const [file] = await Promise.all([page.waitForEvent("download"), button("Export CSV").click()]);
      expect(file.suggestedFilename()).toBe("acme-members.csv");
    },
    limitMs,
  );

  test(
    "on a phone, a node is a card: its name on the first line, the rest below it",
    async () => {
      await page.setViewportSize({ width: 360, height: 740 });
      await page.goto(`${scene.url()}/console/acme/nodes/`);
      const [name, address] = [
        page.locator(".cards .body a").first(),
        page.locator(".cards .body .c2").first(),
      ];
      await name.waitFor();
      expect((await address.boundingBox())?.y).toBeGreaterThan(((await name.boundingBox())?.y ?? 0) + 10);
      expect([await violationsInSchemes(page), await overflowOf(page)]).toEqual([noViolations, 0]);
    },
    limitMs,
  );

  test("no page complained", () => {
    scene.expectQuiet();
  });
});
