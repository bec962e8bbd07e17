// What the network does and who is needed, in a real browser: the map of a few nodes, relays, and Overview.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import type { Page } from "playwright-core";
import {
  type Console,
  cutListsIn,
  holdRequests,
  noViolations,
  overflowOf,
  password,
  signIn,
  speakingMachine,
  startConsole,
  violationsIn,
  violationsInSchemes,
} from "../support/console.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { until } from "../support/until.ts";

const limitMs = 120_000;

describe("paths and needs in the console", () => {
  let scene: Console;
  let page: Page;
  const directory = temporaryDirectory();

  const machine = (name: string, groups: readonly string[], roles: object = {}) =>
    speakingMachine(scene, name, groups, roles);
  /** It reports a broken path. */
  let db: Awaited<ReturnType<typeof machine>>;
  /** It does not answer there. */
  let app: Awaited<ReturnType<typeof machine>>;

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
    "the map shows which paths carry traffic, and draws those of a few nodes by kind",
    async () => {
      const hub = await machine("hub", []);
      const web = await machine("web", ["web"]);
      [db, app] = [await machine("db", ["db"]), await machine("app", ["app"])];
      await app.checkin({});
      const answers = { probe: "answers", rtt_ms: 12.5 };
      await web.report([
        { peer: hub.address, path: "direct", ...answers },
        { peer: db.address, path: "relayed", relays: ["hub"], ...answers },
      ]);
      await db.report([{ peer: app.address, path: "none", probe: "broken" }]);
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
      expect(await broken.allInnerTexts()).toEqual([expect.stringMatching(/^db – app/)]);
      expect(await broken.getByRole("link", { name: "Why?" }).getAttribute("href")).toMatch(
        /\?from=db&to=app$/,
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
      expect(new URL(dbs.url()).search).toBe("?from=db&to=app");
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
      for (const each of [db, app]) await each.checkin({});
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
      const hub = page.getByRole("listitem").filter({ hasText: "lighthouse away" });
      await hub.getByRole("link", { name: "hub" }).waitFor();
      await page.getByText("Lighthouse hub is away").waitFor();
      await page
        .getByRole("listitem")
        .filter({ hasText: "does not reach app, though both are online" })
        .waitFor();
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
      await backup.locator("code").getByText("backup").waitFor();
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
    "the map of a few nodes is accessible, light and dark, and fits on a phone",
    async () => {
      await page.setViewportSize({ width: 360, height: 740 });
      await page.goto(`${scene.url()}/console/acme/map/`);
      await page.getByRole("group", { name: "Nodes and the paths between them" }).waitFor();
      expect([await violationsInSchemes(page), await overflowOf(page)]).toEqual([noViolations, 0]);
    },
    limitMs,
  );

  test("no page complained", () => {
    scene.expectQuiet();
  });
});
