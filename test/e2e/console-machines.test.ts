// Machines in the console, in a real browser: approval, the join key as a QR code, the map, and the keys.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import type { Page, Request } from "playwright-core";
import { encode } from "uqr";
import { parseJoinKey } from "../../src/protocol/join-key.ts";
import {
  addRule,
  type Console,
  cutListsIn,
  holdRequests,
  noViolations,
  openAccount,
  overflowOf,
  password,
  shownJoinKey,
  signIn,
  speakingMachine,
  startConsole,
  violationsIn,
  violationsInSchemes,
} from "../support/console.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { until } from "../support/until.ts";

const limitMs = 120_000;

describe("machines in the console", () => {
  const directory = temporaryDirectory();
  let scene: Console;
  let page: Page;

  const button = (name: string) => page.getByRole("button", { name, exact: true });
  const token = async () => String((await scene.adminJson(["token", "create", "acme"]))["token"]);

  beforeAll(async () => {
    scene = await startConsole();
    ({ page } = scene);
    await page.goto(`${scene.url()}/console/acme/`);
    await page.locator(":focus[name=email]").waitFor();
    await signIn(page);
    await page.getByRole("heading", { name: "Overview" }).waitFor();
  }, limitMs);
  afterAll(async () => {
    directory[Symbol.dispose]();
    await scene[Symbol.asyncDispose]();
  });

  test(
    "a machine that waits is counted at once, and approved with the key that it shows; another is refused",
    async () => {
      await page.goto(`${scene.url()}/console/acme/settings/`);
      const choice = page.getByLabel("These wait for approval");
      await choice.selectOption("all");
      // Another choice while it is saved stays.
      const path = `${scene.url()}/api/org/acme/`;
      await page.route(path, async (route) => {
        if (route.request().method() === "PATCH") await choice.selectOption("unapproved");
        await route.continue();
      });
      await Promise.all([page.waitForResponse(path), button("Save").click()]);
      await page.getByText("Saved.").waitFor();
      await until(() => button("Save").isEnabled());
      await page.unroute(path);
      expect(await choice.inputValue()).toBe("unapproved");
      // The page of those that wait was one of its own before.
      await page.goto(`${scene.url()}/console/acme/machines/waiting/?search=`);
      await page.getByRole("link", { name: "Waiting 0" }).waitFor();
      expect(new URL(page.url()).pathname).toBe("/console/acme/nodes/");
      await page.getByText("No node waits for approval.").waitFor();
      // Whoever adds it is told, too.
      const adding = await scene.context.newPage();
      await adding.goto(`${scene.url()}/console/acme/nodes/add/`);
      await adding.getByRole("button", { name: "1 hour" }).click();
      await adding.getByLabel("The join key is valid for").fill("a while");
      await adding.getByRole("button", { name: "no name" }).click();
      await adding.getByLabel("Name of the join key").fill("build machines");
      await adding.getByRole("button", { name: "Make the join key" }).click();
      await adding.getByText("Enter a duration such as").waitFor();
      await adding.getByLabel("Groups").fill("ci, x y");
      await adding.getByRole("button", { name: "Make the join key" }).click();
      await adding.getByRole("alert").getByText("x y: A group name").waitFor();
      await adding.getByLabel("Groups").fill("");
      await adding.getByLabel("The join key is valid for").fill("48h");
      await adding.getByRole("button", { name: "Make the join key" }).click();
      await adding.getByText("“build machines” under Tokens").waitFor();
      // agent up takes no key of two days as a word of its command line.
      await adding.getByText("which may not stand on a command line").waitFor();
      const key = (await adding.getByText(/^oaj1/).textContent()) ?? "";
      const admitted = scene.register("web-1", parseJoinKey(key).registrationToken);
      await adding.getByText("web-1 asks to join. Compare its key").waitFor();
      await adding.getByRole("button", { name: "Approve web-1" }).waitFor();
      await adding.close();
      await page.getByRole("row").filter({ hasText: "web-1" }).waitFor();
      await page.getByRole("link", { name: "Waiting 1" }).waitFor();
      await button("Export CSV").waitFor();
      const count = page.getByRole("link", { name: "1 waiting for you" });
      await count.waitFor();
      // Also beside the pages that belong to no organization.
      await openAccount(page);
      await page.getByRole("heading", { name: "Account", level: 1 }).waitFor();
      await count.click();
      await page.getByRole("link", { name: "Approve or refuse" }).first().click();
      await button("Approve web-1").click();
      await page.getByRole("dialog").getByRole("button", { name: "Approve web-1" }).click();
      await page.getByText("web-1 is approved.").waitFor();
      await admitted;
      await count.waitFor({ state: "detached" });
      const refused = scene.register("web-2", await token()).then(
        () => "admitted",
        () => "refused",
      );
      await button("Refuse web-2").click();
      expect(await page.getByText("Another node has this name").count()).toBe(0);
      await page.getByRole("dialog").getByRole("button", { name: "Refuse web-2" }).click();
      expect(await refused).toBe("refused");
      await page.getByText("No node waits for approval.").waitFor();
      await page.getByRole("link", { name: "All 1" }).click();
      await page.getByRole("link", { name: "web-1" }).waitFor();
      expect(await page.getByRole("link", { name: "web-2" }).count()).toBe(0);
    },
    limitMs,
  );

  test(
    "the QR code holds the join key",
    async () => {
      await page.goto(`${scene.url()}/console/acme/nodes/add/`);
      await button("Make the join key").click();
      await page.getByText("1 node, in no group").waitFor();
      const key = await shownJoinKey(page);
      await page.getByRole("button", { name: "QR code" }).click();
      const drawn = await page
        .getByRole("img", { name: "The join key as a QR code" })
        .locator("path")
        .getAttribute("d");
      const { data } = encode(key, { border: 4 });
      const dark = data.flatMap((row, y) => row.flatMap((isDark, x) => (isDark ? [`${x} ${y}`] : [])));
      expect([...(drawn ?? "").matchAll(/M(\d+ \d+)/g)].map(([, at]) => at)).toEqual(dark);
    },
    limitMs,
  );

  const machine = (name: string, groups: readonly string[], roles: object = {}) =>
    speakingMachine(scene, name, groups, roles);
  /** It reports a broken path. */
  let db: Awaited<ReturnType<typeof machine>>;

  test(
    "the map shows which paths carry traffic, and draws those of a few nodes by kind",
    async () => {
      await scene.admin(["org", "update", "acme", "--approval", "none"]);
      const hub = await machine("hub", []);
      const web = await machine("web", ["web"]);
      db = await machine("db", ["db"]);
      const answers = { probe: "answers", rtt_ms: 12.5 };
      await web.report([
        { peer: hub.address, path: "direct", ...answers },
        { peer: db.address, path: "relayed", relays: ["hub"], ...answers },
      ]);
      await db.report([{ peer: hub.address, path: "none", probe: "broken" }]);
      // The control plane writes reports a moment later, and the page looks every 15 s.
      const count = () =>
        page.evaluate(
          "fetch('/api/org/acme/paths/').then((answer) => answer.json()).then((all) => all.length)",
        );
      await until(async () => (await count()) === 3);
      await page.getByRole("link", { name: "Map" }).first().click();
      // The relay is away, so the path over it is as it was reported.
      await page.getByText("paths: 1 direct, 0 relayed, 1 broken, 1 old").waitFor();
      const map = page.getByRole("group", { name: "Nodes and the paths between them" });
      await map.waitFor();
      const broken = page.getByRole("list", { name: "Broken paths" }).getByRole("listitem");
      // The node that reports it is named first.
      expect(await broken.allInnerTexts()).toEqual([expect.stringMatching(/^db – hub/)]);
      expect(await broken.getByRole("link", { name: "Why?" }).getAttribute("href")).toMatch(
        /\?from=db&to=hub$/,
      );
      for (const kind of ["direct", "relay", "broken"])
        expect([kind, await map.locator(`path.${kind}`).count()]).toEqual([kind, 1]);
      await map.getByText("as reported").waitFor({ state: "attached" });
      await page.getByRole("button", { name: "Table" }).click();
      const relayed = page.getByRole("row").filter({ hasText: "relayed by hub" });
      await relayed.getByText("as reported").waitFor();
      expect(await relayed.innerText()).not.toContain("12.5");
      // The machine that is searched stands first, and leads to its page.
      await page.getByRole("searchbox", { name: "Search paths" }).fill("db relayed");
      await relayed.getByRole("link").first().getByText("db").waitFor();
      await page.getByRole("searchbox", { name: "Search paths" }).fill("");
      await page.locator(".body [role=row]").first().getByText("broken").waitFor();
      // The page of a machine says the same of the relay that is away, and leads to what is wrong.
      const tabOf = async (path: string) => {
        const opened = await scene.context.newPage();
        await opened.goto(`${scene.url()}/console/acme/${path}`);
        return opened;
      };
      const webs = await tabOf(`nodes/${web.id}/`);
      await webs.getByText(/relayed by hub, as reported/).waitFor();
      await webs.close();
      const list = await tabOf("nodes/?search=web");
      await list.getByRole("img", { name: "1 direct, 1 old" }).waitFor();
      await list.close();
      const dbs = await tabOf(`nodes/${db.id}/`);
      await dbs.getByRole("link", { name: "Why?" }).click();
      await dbs.getByRole("heading", { name: "Access" }).waitFor();
      expect(new URL(dbs.url()).search).toBe("?from=db&to=hub");
      await dbs.close();
      expect(new URL(page.url()).search).toBe("?view=table");
      // A tab that was opened in the background is ready when it is looked at.
      const tab = await scene.context.newPage();
      await tab.addInitScript('Object.defineProperty(document, "visibilityState", { value: "hidden" })');
      await tab.goto(`${scene.url()}/console/acme/map/`);
      await tab.getByText("paths: 1 direct, 0 relayed, 1 broken, 1 old").waitFor();
      await tab.close();
    },
    limitMs,
  );

  test(
    "what a relay forwards is on the overview and on its page, and at its limit it says so",
    async () => {
      const relay = await machine("relay-1", [], { is_relay: true, public_ip: "192.0.2.9" });
      const forwarded = (bytes: number) => relay.checkin({ relayed: { counter: "c1", bytes } });
      await forwarded(0);
      await forwarded(2_500_000);
      await page.getByRole("link", { name: "Overview" }).click();
      await page.getByRole("listitem").filter({ hasText: "relay-1" }).getByText("(UTC): 2.5 MB.").waitFor();
      await scene.admin(["relay", "limit", "acme", "relay-1", "2MB"]);
      await page.getByText("2.5 MB of 2 MB. The limit is reached").first().waitFor();
      await page.getByRole("link", { name: "relay-1" }).first().click();
      await page.getByRole("heading", { name: "relay-1" }).waitFor();
      await page.getByText("2.5 MB of 2 MB. The limit is reached").waitFor();
    },
    limitMs,
  );

  test(
    "the overview lists what needs a person, each with its action, and draws how many were online",
    async () => {
      // Paths of a machine that is away for long are old: the tests before this one took their time.
      await db.checkin({});
      // Nothing is shown before all of it is known, so that the page does not grow while it is looked at.
      const release = await holdRequests(page, /\/relays\/$/);
      const machines = page.waitForResponse(/nodes\/attention\/$/);
      await page.goto(`${scene.url()}/console/acme/`);
      await (await machines).finished();
      await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
      const online = page.getByRole("link", { name: /^Online \d+ of \d+/ });
      expect(await online.count()).toBe(0);
      release();
      await online.waitFor();
      await page.unroute(/\/relays\/$/);
      await scene.admin(["node", "update", "acme", "hub", "--lighthouse", "--public-ip", "192.0.2.1"]);
      const hub = page.getByRole("listitem").filter({ hasText: "nodes find each other by this lighthouse" });
      await hub.getByRole("link", { name: "hub" }).waitFor();
      await page.getByText("Lighthouse hub is away").waitFor();
      await page.getByRole("listitem").filter({ hasText: "does not reach hub" }).waitFor();
      // What is not shown is behind a link.
      const attention = /nodes\/attention\/$/;
      let answer: { broken_paths: { count: number }; failing_tests?: object | undefined } | undefined;
      await page.route(attention, async (route) => {
        const response = await route.fetch();
        answer ??= (await response.json()) as NonNullable<typeof answer>;
        answer.broken_paths.count = 30;
        return route.fulfill({ response, json: answer });
      });
      // Control planes of the previous version do not send `failing_tests`.
      const counted = async (tests: object | undefined) => {
        if (answer !== undefined) answer.failing_tests = tests;
        await page.reload();
        await page.getByRole("listitem").filter({ hasText: "29 more" }).waitFor();
        return parseInt(
          (await page
            .getByTitle(/waiting for you$/)
            .first()
            .getAttribute("title")) ?? "",
          10,
        );
      };
      const before = await counted(undefined);
      expect(await counted({ count: 2, all: 5 })).toBe(before + 1);
      const tests = page.getByRole("listitem").filter({ hasText: "2 of 5 tests of the policy fail" });
      expect(await tests.getByRole("link", { name: "Show" }).getAttribute("href")).toBe(
        "/console/acme/access/",
      );
      await page
        .getByRole("listitem")
        .filter({ hasText: "29 more" })
        .getByRole("link", { name: "Show all" })
        .click();
      await page.getByText("1 of ").waitFor();
      await page.getByRole("row").getByRole("img", { name: "1 broken" }).waitFor();
      expect(new URL(page.url()).search).toBe("?show=broken");
      await page.unroute(attention);
      await page.goBack();
      await scene.admin(["ca", "rotate", "acme"]);
      await page.getByText("Step 1 of 3").waitFor();
      // Only staff can make a backup.
      const rotation = page.getByRole("listitem").filter({ hasText: "Step 1 of 3" });
      expect(await page.getByRole("listitem").filter({ hasText: "Backup" }).count()).toBe(0);
      await rotation.getByRole("link", { name: "Show" }).click();
      await page.getByRole("heading", { level: 1, name: "Certificates" }).waitFor();
      await scene.admin(["ca", "rotate", "acme", "--rollback"]);
      // The control plane counts every 20 s until there is something to count.
      const points = () =>
        page.evaluate(
          "fetch('/api/org/acme/online/').then((answer) => answer.json()).then(({ points }) => points.length)",
        );
      await until(async () => Number(await points()) > 0);
      await page.goto(`${scene.url()}/console/acme/?days=7`);
      expect(await page.getByRole("button", { name: "7 d" }).getAttribute("aria-pressed")).toBe("true");
      await page.getByRole("link", { name: /^Online/ }).waitFor();
      expect(await violationsIn(page)).toEqual([]);
    },
    limitMs,
  );

  test(
    "staff are told on the overview when there is no backup",
    async () => {
      const { page: other, context } = await scene.open();
      await scene.admin(["user", "create", "staff@example.org", "--staff", "--password-file", "-"], password);
      await scene.admin(["member", "create", "acme", "staff@example.org", "--role", "member"]);
      await other.goto(`${scene.url()}/console/acme/`);
      await signIn(other, "staff@example.org");
      const backup = other.getByRole("listitem").filter({ hasText: "The control plane has none yet" });
      await backup.waitFor();
      // As browsers do where nobody permitted it.
      await other.evaluate("navigator.clipboard.writeText = () => Promise.reject(new Error('denied'))");
      await backup.getByRole("button", { name: "Backup command" }).click();
      await backup.getByText("Not copied: select the text").waitFor();
      await scene.admin(["backup", join(directory.path, "backup.db")]);
      await other.reload();
      await other.getByRole("heading", { name: "Needs you" }).waitFor();
      await backup.waitFor({ state: "detached" });
      // A low window scrolls the navigation.
      await other.setViewportSize({ width: 1280, height: 500 });
      const scrolled =
        "document.querySelector('nav').scrollTo(0, 999), document.querySelector('nav').scrollTop";
      expect(await other.evaluate<number>(scrolled)).toBeGreaterThan(0);
      await other.setViewportSize({ width: 360, height: 740 });
      for (const [path, shown] of [
        ["organizations/", "10.77.0.0/16"],
        ["users/", "staff@example.org"],
        ["servers/", "The last day"],
      ] as const) {
        await other.goto(`${scene.url()}/console/-/${path}`);
        await other.locator("main").getByText(shown).first().waitFor();
        expect([path, await violationsIn(other)]).toEqual([path, []]);
        expect([path, await overflowOf(other), await cutListsIn(other)]).toEqual([path, 0, []]);
      }
      await context.close();
    },
    limitMs,
  );

  test(
    "a machine's page shows what may reach it, and its configuration beside the newest one",
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
      await page.getByLabel("Page or node").fill("intranet");
      await page.getByRole("option", { name: /^app / }).waitFor();
      await page.keyboard.press("Escape");
      await alias.getByRole("button", { name: "Delete intranet" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Delete intranet" }).click();
      await alias.waitFor({ state: "detached" });
    },
    limitMs,
  );

  test(
    "a machine that came while no page showed the list is there when one does again",
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
    "a machine that checks in is online within a moment, and no list is read for it",
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
    "the first machines of a list are not exported or selected as all of them",
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
    "Ctrl K finds pages and machines, ? lists the keys, j and Enter open a row",
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
    "every page is accessible, light and dark, and fits on a phone",
    async () => {
      await scene.admin(["org", "update", "acme", "--approval", "all"]);
      const refused = scene.register("web-3", await token()).catch(() => "refused");
      await page.setViewportSize({ width: 360, height: 740 });
      await page.goto(`${scene.url()}/console/acme/map/`);
      await page.getByRole("group", { name: "Nodes and the paths between them" }).waitFor();
      expect([await violationsInSchemes(page), await overflowOf(page)]).toEqual([noViolations, 0]);
      await page.goto(`${scene.url()}/console/acme/nodes/`);
      const [name, address] = [
        page.locator(".cards .body a").first(),
        page.locator(".cards .body .c2").first(),
      ];
      await name.waitFor();
      // A card has its name on the first line, the rest below it.
      expect((await address.boundingBox())?.y).toBeGreaterThan(((await name.boundingBox())?.y ?? 0) + 10);
      expect([await violationsInSchemes(page), await overflowOf(page)]).toEqual([noViolations, 0]);
      for (const path of ["", "nodes/waiting/"]) {
        await page.goto(`${scene.url()}/console/acme/${path}`);
        await page.getByText("web-3").first().waitFor();
        expect([path, await overflowOf(page)]).toEqual([path, 0]);
        expect([path, await violationsInSchemes(page)]).toEqual([path, noViolations]);
      }
      // Otherwise it would wait beyond the test.
      await button("Refuse web-3").click();
      await page.getByRole("dialog").getByRole("button", { name: "Refuse web-3" }).click();
      expect(await refused).toBe("refused");
    },
    limitMs,
  );

  test("no page complained", () => {
    scene.expectQuiet();
  });
});
