// What holds on every page of the console: it fits a window of 320 px, the keyboard alone reaches all of it and shows where
// it is, menus open and close by keys, and nothing moves for who asked for that.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import partsPage from "../../src/console/pages/all-components.html";
import {
  addRule,
  type Console,
  noViolations,
  overflowOf,
  password,
  signIn,
  speakingMachine,
  startConsole,
  violationsInSchemes,
} from "../support/console.ts";

const limitMs = 300_000;
const staff = "staff@example.org";
/** Beside those of the navigation. */
const otherPages = [
  ...["add/", "add/?kind=lighthouse", "waiting/", "1/"].map((path) => `acme/machines/${path}`),
  "acme/phones/",
  ...["account/", "join/", "command-line/"].map((path) => `-/${path}`),
];

describe("every page of the console", () => {
  let scene: Console;
  let page: Page;
  let paths: string[];
  /** All components in their states, which the console itself does not have. */
  const parts = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    development: false,
    routes: { "/": partsPage },
  });

  beforeAll(async () => {
    scene = await startConsole();
    ({ page } = scene);
    await scene.admin(["user", "create", staff, "--staff", "--password-file", "-"], password);
    await scene.admin(["member", "create", "acme", staff, "--role", "admin"]);
    await scene.admin(["org", "update", "acme", "--self-enrollment", "members"]);
    const long = await speakingMachine(
      scene,
      "a-machine-whose-name-is-as-long-as-names-of-machines-in-clouds",
      ["web"],
    );
    const other = await speakingMachine(scene, "db-1", ["db"]);
    await long.report([{ peer: other.address, path: "direct", probe: "broken" }]);
    await addRule(
      scene,
      "--direction inbound --protocol tcp --ports 5432 --peer group:web --target group:db",
    );
    await page.goto(`${scene.url()}/console/`);
    await signIn(page, staff);
    await page.getByRole("heading", { name: "Overview" }).waitFor();
    const links = `[...document.querySelectorAll(".side li a")].map(({ pathname }) => pathname.slice(9))`;
    paths = [...(await page.evaluate<string[]>(links)), ...otherPages];
    expect(paths.length).toBeGreaterThan(20);
  }, limitMs);
  afterAll(async () => {
    await parts.stop(true);
    await scene[Symbol.asyncDispose]();
  });

  async function open(path: string): Promise<void> {
    await page.goto(`${scene.url()}/console/${path}`);
    await page.getByRole("heading", { level: 1 }).first().waitFor();
    await page.locator("[aria-busy=true]").first().waitFor({ state: "detached" });
  }

  test(
    "fits a window of 320 px",
    async () => {
      await page.setViewportSize({ width: 320, height: 640 });
      const wide: unknown[] = [];
      for (const path of paths) {
        await open(path);
        const overflow = await overflowOf(page);
        if (overflow > 0) wide.push([path, overflow, await page.evaluate(widest)]);
      }
      await page.setViewportSize({ width: 1280, height: 800 });
      expect(wide).toEqual([]);
    },
    limitMs,
  );

  test(
    "is reached whole by Tab, which shows where it is",
    async () => {
      const faults: unknown[] = [];
      for (const path of paths) {
        await open(path);
        const count = await page.evaluate<number>(mark);
        const [reached, unseen] = [new Set<string>(), new Set<string>()];
        // Behind the last one the focus leaves the page. A field of a date has several stops.
        for (let at = 0; at < count * 3 && reached.size < count; at++) {
          await page.keyboard.press("Tab");
          const [name, isSeen] = await page.evaluate<[string, boolean]>(focused);
          if (name === "" && reached.size > 0) break;
          if (name !== "" && name !== "new") reached.add(name);
          if (!isSeen) unseen.add(name);
        }
        const missed = (await page.evaluate<string[]>(marked)).filter((name) => !reached.has(name));
        if (missed.length + unseen.size > 0) faults.push([path, { missed, unseen: [...unseen] }]);
      }
      expect(faults).toEqual([]);
    },
    limitMs,
  );

  test(
    "opens its menus by Enter and closes them by Escape, which gives the focus back",
    async () => {
      let menus = 0;
      for (const path of paths) {
        await open(path);
        const all = page.locator("main .menu > summary:visible, .side .menu > summary:visible");
        for (const menu of (await all.all()).slice(0, 4)) {
          menus++;
          await menu.focus();
          await page.keyboard.press("Enter");
          await menu.locator("xpath=..").locator(".menu-list").waitFor();
          await page.keyboard.press("Tab");
          await page.keyboard.press("Escape");
          await menu.locator("xpath=..").locator(".menu-list").waitFor({ state: "hidden" });
          expect([path, await menu.and(page.locator(":focus")).count()]).toEqual([path, 1]);
        }
      }
      expect(menus).toBeGreaterThan(paths.length);
    },
    limitMs,
  );

  test(
    "moves nothing where the system asks for that",
    async () => {
      await page.emulateMedia({ reducedMotion: "reduce" });
      const moving: unknown[] = [];
      for (const path of paths) {
        await open(path);
        const found = await page.evaluate<string[]>(motions);
        if (found.length > 0) moving.push([path, found]);
      }
      expect(moving).toEqual([]);
      // The page of all parts has something that turns.
      await page.emulateMedia({ reducedMotion: "no-preference" });
      await page.goto(parts.url.href);
      await page.getByRole("heading", { level: 1, name: "Parts" }).waitFor();
      expect(await page.evaluate<string[]>(motions)).not.toEqual([]);
    },
    limitMs,
  );

  test(
    "the page of all parts is accessible in both schemes, wide and narrow",
    async () => {
      for (const width of [1280, 320]) {
        await page.setViewportSize({ width, height: 800 });
        await page.goto(parts.url.href);
        await page.getByRole("heading", { level: 1, name: "Parts" }).waitFor();
        // It shows loading on purpose.
        await page.evaluate(
          `document.querySelectorAll("[aria-busy]").forEach((each) => each.removeAttribute("aria-busy"))`,
        );
        expect([width, await overflowOf(page)]).toEqual([width, 0]);
        expect([width, await violationsInSchemes(page)]).toEqual([width, noViolations]);
      }
      await page.setViewportSize({ width: 1280, height: 800 });
    },
    limitMs,
  );

  test("no page complained", () => {
    scene.expectQuiet();
  });
});

/** The elements that stick out of the window, for the message. */
const widest = `[...document.querySelectorAll("body *")]
  .filter((each) => each.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .slice(0, 3).map((each) => each.outerHTML.slice(0, 120))`;

/** Numbers what a keyboard has to reach: of radio buttons of one name, the chosen one. */
const mark = `(() => {
  const all = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")]
    .filter((each) => !each.disabled && each.tabIndex >= 0 && each.checkVisibility({ visibilityProperty: true }))
    .filter((each) => each.type !== "radio" || each.checked);
  all.forEach((each, at) => (each.dataset.tab = [at, (each.ariaLabel ?? each.textContent).trim().slice(0, 40)].join(" ")));
  return all.length;
})()`;
const marked = `[...document.querySelectorAll("[data-tab]")].map((each) => each.dataset.tab)`;
const focused = `(() => {
  const each = document.activeElement;
  if (each === null || each === document.body) return ["", true];
  // It came after the others were numbered.
  if (each.dataset.tab === undefined) return ["new", true];
  const shape = each.type === "radio" || each.closest(".choice") ? (each.closest("label") ?? each) : each;
  const { outlineStyle, outlineWidth } = getComputedStyle(shape);
  return [each.dataset.tab, each.type === "date" || outlineStyle !== "none" && parseFloat(outlineWidth) > 0];
})()`;

const motions = `[...document.querySelectorAll("body *")].filter((each) => {
  const { animationName, animationDuration, transitionDuration } = getComputedStyle(each);
  const moves = animationName !== "none" && parseFloat(animationDuration) > 0;
  return moves || transitionDuration.split(", ").some((time) => parseFloat(time) > 0);
}).slice(0, 3).map((each) => each.outerHTML.slice(0, 120))`;
