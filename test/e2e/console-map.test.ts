// The map of more nodes than have a box each, in a real browser: groups and bands, a pair of groups, matrix and table, live
// changes, members, keys, and a phone.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import {
  addMember,
  addRule,
  type Console,
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
const member = "noor@example.org";
type Node = Awaited<ReturnType<typeof speakingMachine>>;

describe("the map by groups", () => {
  let scene: Console;
  let page: Page;
  let [webs, apps]: [Node[], Node[]] = [[], []];

  const direct = (peer: Node, rtt_ms: number) => ({
    peer: peer.address,
    path: "direct",
    probe: "answers",
    rtt_ms,
  });
  const broken = (peer: Node) => ({ peer: peer.address, path: "none", probe: "broken" });
  const relayed = (peer: Node) => ({ ...direct(peer, 44), path: "relayed", relays: ["web-2"] });
  const node = (of: readonly Node[], at: number): Node => {
    const found = of[at];
    if (found === undefined) throw new Error(`no node ${at}`);
    return found;
  };
  const open = async (words = "") => {
    await page.goto(`${scene.url()}/console/acme/map/${words}`);
    await page.getByText("25 nodes with an agent; paths: ").waitFor();
  };
  const picture = () => page.getByRole("group", { name: "Groups and the paths between them" });
  const heading = (name: string) => page.getByRole("heading", { level: 2, name, exact: true });

  beforeAll(async () => {
    scene = await startConsole();
    ({ page } = scene);
    await scene.admin(["org", "update", "acme", "--approval", "none"]);
    await addMember(scene, member);
    await addRule(scene, "--protocol tcp --ports 8080 --peer group:web --target group:app");
    const make = (group: string, count: number) =>
      Promise.all(
        Array.from({ length: count }, (_, at) => speakingMachine(scene, `${group}-${at + 1}`, [group])),
      );
    webs = await make("web", 13);
    apps = await make("app", 12);
    await Promise.all([...webs, ...apps].map((each) => each.checkin({})));
    await node(webs, 0).report([broken(node(apps, 0)), direct(node(apps, 1), 8)]);
    await node(webs, 1).report([direct(node(apps, 1), 12), relayed(node(apps, 2))]);
    await node(apps, 3).report([direct(node(apps, 4), 3)]);
    await page.goto(`${scene.url()}/console/acme/map/`);
    await signIn(page);
    await page.getByText("25 nodes with an agent; paths: 3 direct, 1 relayed, 1 broken").waitFor();
  }, limitMs);
  afterAll(() => scene[Symbol.asyncDispose]());

  test(
    "groups are boxes, their paths a band whose label says how many, how slow and how many are broken",
    async () => {
      await open();
      const band = picture().getByRole("link", {
        name: "app – web: 4 paths, median 12 ms, 1 relayed, 1 broken",
      });
      expect(await band.count()).toBe(1);
      expect(await picture().getByRole("link", { name: "web: 13 of 13 online" }).count()).toBe(1);
      await picture().getByText("web-1 broken").waitFor();
      const listed = page.getByRole("list", { name: "Broken paths" }).getByRole("listitem");
      expect(await listed.allInnerTexts()).toEqual([expect.stringMatching(/^web-1 – app-1/)]);
      expect(await listed.getByRole("link", { name: "Why?" }).getAttribute("href")).toMatch(
        /\?from=web-1&to=app-1$/,
      );
      expect(await violationsInSchemes(page)).toEqual(noViolations);
    },
    limitMs,
  );

  test(
    "a pressed band shows all about the two groups, and the address names them",
    async () => {
      await open();
      await picture()
        .getByRole("link", { name: /^app – web: / })
        .focus();
      await page.keyboard.press("Enter");
      await heading("app – web").waitFor();
      expect(new URL(page.url()).search).toBe("?pair=app+web");
      await page.getByText("4 of 156 pairs").waitFor();
      await page.getByRole("img", { name: /^Round trips: / }).waitFor();
      const worst = page.getByRole("table", { name: "The worst paths of the two groups" }).getByRole("row");
      expect(await worst.allInnerTexts()).toEqual([
        expect.stringMatching(/web-1\s+app-1\s+broken/),
        expect.stringMatching(/44 ms/),
        expect.stringMatching(/12 ms/),
        expect.stringMatching(/8 ms/),
      ]);
      // What the rules permit, from the one to the other.
      await page.getByRole("link", { name: /tcp 8080/ }).waitFor();
      expect(await violationsIn(page)).toEqual([]);
      await page.getByRole("link", { name: "Close" }).click();
      await heading("Broken paths").waitFor();
      // A link to the pair, in the other order, shows the same.
      await open("?pair=web+app");
      await heading("web – app").waitFor();
      await page.getByText("4 of 156 pairs").waitFor();
      // A group that is gone is no pair.
      await open("?pair=web+gone");
      await heading("Broken paths").waitFor();
    },
    limitMs,
  );

  test(
    "matrix and table have the same facts",
    async () => {
      await open();
      await page.getByRole("button", { name: "Matrix" }).click();
      const cell = page
        .getByRole("table", { name: /^Median round trip/ })
        .getByRole("link", { name: /12.*1 broken/ });
      await cell.waitFor();
      expect(await violationsIn(page)).toEqual([]);
      await cell.click();
      await heading("app – web").waitFor();
      await page.getByRole("button", { name: "Table" }).click();
      await page.getByRole("link", { name: "Close" }).click();
      const rows = page.locator("[role=table]", { hasText: "Median" }).locator(".body [role=row]");
      await until(async () => (await rows.count()) === 2);
      expect((await rows.allInnerTexts()).map((text) => text.replaceAll(/\s+/g, " ").trim())).toEqual([
        "app – web 4 2 1 1 12 44",
        "app – app 1 1 0 0 3 3",
      ]);
      await page.getByRole("searchbox", { name: "Search paths" }).fill("app-5");
      await page.getByRole("row").filter({ hasText: "app-4" }).getByText("3 ms").waitFor();
      expect(await violationsIn(page)).toEqual([]);
    },
    limitMs,
  );

  test(
    "paths change while one looks, and boxes stay where they are",
    async () => {
      await open();
      const box = picture().getByRole("link", { name: "web: 13 of 13 online" });
      const before = await box.boundingBox();
      await node(apps, 5).report([broken(node(webs, 5)), direct(node(webs, 6), 30)]);
      await page.getByText("25 nodes with an agent; paths: 4 direct, 1 relayed, 2 broken").waitFor();
      await page.getByRole("list", { name: "Broken paths" }).getByText("app-6").waitFor();
      await picture()
        .getByRole("link", { name: /^app – web: 6 paths, .*2 broken$/ })
        .waitFor();
      expect(await box.boundingBox()).toEqual(before);
    },
    limitMs,
  );

  test(
    "a member sees the paths of their own nodes, on a phone as matrix and squares",
    async () => {
      const { page: other, context } = await scene.open({ viewport: { width: 360, height: 740 } });
      await other.goto(`${scene.url()}/console/acme/map/`);
      await signIn(other, member);
      await other.getByText("paths of yours, as only administrators see all: 0 direct").waitFor();
      await context.close();
      for (const width of [320, 390]) {
        await page.setViewportSize({ width, height: 740 });
        await open();
        await page.getByRole("table", { name: /^Median round trip/ }).waitFor();
        expect(await picture().count()).toBe(0);
        await heading("Groups").waitFor();
        expect([width, await overflowOf(page)]).toEqual([width, 0]);
        await open("?view=table");
        expect([width, await overflowOf(page)]).toEqual([width, 0]);
        await open("?pair=app+web");
        await heading("app – web").waitFor();
        expect([width, await overflowOf(page)]).toEqual([width, 0]);
      }
      await open();
      expect(await violationsInSchemes(page)).toEqual(noViolations);
    },
    limitMs,
  );

  test("no page complained", () => {
    scene.expectQuiet();
  });
});
