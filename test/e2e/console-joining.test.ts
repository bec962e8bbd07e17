// Nodes that join, in a real browser: approval, refusal, and the join key as a QR code.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { encode } from "uqr";
import { parseJoinKey } from "../../src/protocol/join-key.ts";
import {
  type Console,
  noViolations,
  openAccount,
  overflowOf,
  shownJoinKey,
  signIn,
  startConsole,
  violationsInSchemes,
} from "../support/console.ts";
import { until } from "../support/until.ts";

const limitMs = 120_000;

describe("nodes that join, in the console", () => {
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
  afterAll(() => scene[Symbol.asyncDispose]());

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
      await adding.getByText("“build machines” under Keys and tokens").waitFor();
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
      // In the row, without another page.
      await button("Approve web-1").click();
      await page.getByRole("dialog").getByText("Compare the key with the one that agent up").waitFor();
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
      await button("Refuse web-2").waitFor({ state: "detached" });
      await page.goto(`${scene.url()}/console/acme/nodes/waiting/`);
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
      const { data } = encode(key, { border: 4, boostEcc: false, maskPattern: 2 });
      const dark = data.flatMap((row, y) => row.flatMap((isDark, x) => (isDark ? [`${x} ${y}`] : [])));
      expect([...(drawn ?? "").matchAll(/M(\d+ \d+)/g)].map(([, at]) => at)).toEqual(dark);
    },
    limitMs,
  );

  test(
    "pages with a node that waits are accessible, light and dark, and fit on a phone",
    async () => {
      const refused = scene.register("web-3", await token()).catch(() => "refused");
      await page.setViewportSize({ width: 360, height: 740 });
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
