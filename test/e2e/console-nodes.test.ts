// The list of nodes with the panel beside it, and the page of a node, in a real browser.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import {
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

describe("nodes in the console", () => {
  let scene: Console;
  let page: Page;
  let ids: readonly string[];

  const row = (name: string) => page.getByRole("row").filter({ hasText: name });
  const panel = (name: string) => page.getByRole("complementary", { name, exact: true });
  const heading = (name: string) => page.getByRole("heading", { level: 1, name });
  const open = (path: string) => page.goto(`${scene.url()}/console/acme/${path}`);
  const queryOf = (name: string) => new URL(page.url()).searchParams.get(name);

  beforeAll(async () => {
    scene = await startConsole();
    ({ page } = scene);
    const hub = await speakingMachine(scene, "hub", ["infra"], { is_relay: true, public_ip: "192.0.2.7" });
    const app = await speakingMachine(scene, "app", ["app"]);
    const web = await speakingMachine(scene, "web", ["web"]);
    await app.checkin({});
    await web.report([
      { peer: app.address, path: "none", probe: "broken" },
      { peer: hub.address, path: "direct", probe: "answers", rtt_ms: 12.5 },
    ]);
    ids = [hub, app, web].map(({ id }) => `${id}`);
    await page.goto(`${scene.url()}/console/acme/nodes/`);
    await signIn(page);
    await row("web").getByRole("img", { name: "1 broken, 1 direct" }).waitFor();
  }, limitMs);
  afterAll(() => scene[Symbol.asyncDispose]());

  test(
    "chips count what they leave, what needs somebody comes first, and former addresses lead to the new ones",
    async () => {
      const names = () => page.locator(".body .first").allInnerTexts();
      await until(async () => (await names()).join() === "web,hub,app");
      await row("hub").getByText("relay away").waitFor();
      // As on Overview: it cuts no path.
      expect(await row("hub").locator(".is-bad").count()).toBe(0);
      for (const [words, count] of [
        ["All", 3],
        ["Needs you", 2],
        ["Waiting", 0],
        ["Relayed", 0],
        ["Away", 1],
        ["Revoked", 0],
      ] as const)
        await page.getByRole("link", { name: `${words} ${count}`, exact: true }).waitFor();
      await page.getByRole("link", { name: "Needs you 2" }).click();
      await row("app").waitFor({ state: "detached" });
      expect(queryOf("show")).toBe("needs");
      await page.getByText("2 of 3").waitFor();
      // A filter without a chip of its own is one while it is used, and a press ends it.
      await open("machines/?show=hubs&search=hu#x");
      await page.getByRole("link", { name: /^Lighthouses and relays away 1/ }).waitFor();
      expect(new URL(page.url()).pathname + new URL(page.url()).search).toBe(
        "/console/acme/nodes/?show=hubs&search=hu",
      );
      await page.getByRole("link", { name: /^Lighthouses and relays away/ }).click();
      expect(queryOf("show")).toBeNull();
      await open(`machines/${ids[2]}/`);
      await heading("web").waitFor();
      expect(new URL(page.url()).pathname).toBe(`/console/acme/nodes/${ids[2]}/`);
      await open("machines/waiting/");
      await page.getByText("No node waits for approval.").waitFor();
      expect(queryOf("show")).toBe("waiting");
    },
    limitMs,
  );

  test(
    "a row opens beside the list, j and k step, Enter opens its page, Escape closes it",
    async () => {
      await open("nodes/");
      await row("web").getByText("broken path").click();
      await panel("web").getByText("Does not reach").waitFor();
      expect(queryOf("node")).toBe(ids[2] ?? "");
      await panel("web").getByText("12.5 ms").waitFor();
      await panel("web").getByRole("row").filter({ hasText: "hub" }).getByText("direct").waitFor();
      await panel("web").getByText("web.acme.internal").waitFor();
      expect(await violationsInSchemes(page)).toEqual(noViolations);
      expect(await overflowOf(page)).toBeLessThanOrEqual(0);
      // The focus is on the row, wherever it was pressed.
      await page.keyboard.press("j");
      await panel("hub").getByText("This relay is away").waitFor();
      expect(await panel("web").count()).toBe(0);
      await page.keyboard.press("j");
      await panel("app").waitFor();
      await page.keyboard.press("k");
      await page.keyboard.press("k");
      await panel("web").waitFor();
      await page.keyboard.press("Escape");
      await panel("web").waitFor({ state: "detached" });
      expect(queryOf("node")).toBeNull();
      // The address alone opens it, too, and the first step begins at it.
      await open(`nodes/?node=${ids[0]}`);
      await panel("hub").waitFor();
      await page.locator(".body .first").first().filter({ hasText: "web" }).waitFor();
      await page.keyboard.press("j");
      await panel("app").waitFor();
      await page.keyboard.press("Enter");
      await heading("app").waitFor();
      // On its page they lead to the neighbours in the list.
      await page.keyboard.press("k");
      await heading("hub").waitFor();
      await page.getByText("previous, next").waitFor();
      await page.goBack();
      await panel("app").waitFor();
      // A menu takes the first Escape.
      await panel("app").locator("summary").click();
      await panel("app").getByRole("button", { name: "Revoke" }).waitFor();
      await page.keyboard.press("Escape");
      await panel("app").getByRole("button", { name: "Revoke" }).waitFor({ state: "detached" });
      await panel("app").waitFor();
      await panel("app").getByRole("button", { name: "Close" }).click();
      await panel("app").waitFor({ state: "detached" });
      await open("nodes/?node=99999");
      await page.getByText("There is no such node.").waitFor();
    },
    limitMs,
  );

  test(
    "what is wrong is on top of the page, with the rules between both and what to do",
    async () => {
      await open(`nodes/${ids[2]}/`);
      // No alarm says yet since when; the time of a report is not the one of the outage.
      await page.getByText("Does not reach app", { exact: true }).waitFor();
      await page.getByText(/^The rules allow .*, (and|but) /).waitFor();
      expect(await page.getByRole("link", { name: "Examine the path" }).getAttribute("href")).toBe(
        "/console/acme/access/?from=web&to=app",
      );
      await page.getByRole("img", { name: /^Issued .*, renews about .*, ends / }).waitFor();
      await page
        .getByTitle(/reach all/)
        .first()
        .waitFor();
      await page.getByRole("list").filter({ hasText: "web joined" }).waitFor();
      // In a small window a row leads to the page.
      await page.setViewportSize({ width: 390, height: 800 });
      expect(await violationsInSchemes(page)).toEqual(noViolations);
      expect(await overflowOf(page)).toBeLessThanOrEqual(0);
      await open("nodes/");
      await row("app").getByText("app").first().click();
      await heading("app").waitFor();
      await page.setViewportSize({ width: 1280, height: 800 });
    },
    limitMs,
  );

  test("no page complained", () => {
    scene.expectQuiet();
  });
});
