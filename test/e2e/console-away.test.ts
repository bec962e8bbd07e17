// The console while the control plane, or the way to it, is away, in a real browser.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { useAccess } from "../support/console-access.ts";
import { password, signIn, startConsole, type Console } from "../support/console.ts";
import { until } from "../support/until.ts";

const limitMs = 120_000;

describe("the console without answers", () => {
  let scene: Console;
  let page: Page;
  const { add, discard } = useAccess(() => page);

  beforeAll(async () => {
    scene = await startConsole();
    ({ page } = scene);
    await scene.admin(["node", "create", "acme", "web-1"]);
    await page.goto(`${scene.url()}/console/acme/nodes/`);
    await signIn(page);
    await page.getByText("web-1").waitFor();
  }, limitMs);
  afterAll(() => scene[Symbol.asyncDispose]());

  test(
    "the server away: the page says so, keeps what was typed, and goes on by itself",
    async () => {
      await page.goto(`${scene.url()}/console/acme/nodes/`);
      await page.getByText("web-1").waitFor();
      await page.getByRole("searchbox").fill("web");
      await scene.restart(() => page.getByText("does not answer since").waitFor());
      await page.getByText("does not answer since").waitFor({ state: "detached" });
      expect(await page.getByRole("searchbox").inputValue()).toBe("web");
      await scene.admin(["node", "create", "acme", "web-2"]);
      await page.getByText("web-2").waitFor();
    },
    limitMs,
  );

  test(
    "a page without a stream goes on by itself, too",
    async () => {
      await page.goto(`${scene.url()}/console/-/account/`);
      await page.getByRole("heading", { level: 1, name: "Account" }).waitFor();
      await page.getByLabel("Current password").fill("correct horse");
      await page.getByLabel("New password").fill(password);
      const change = page.getByRole("button", { name: "Change the password and sign out everywhere" });
      await scene.restart(async () => {
        await change.click();
        await page.getByText("does not answer since").waitFor();
      });
      await page.getByText("does not answer since").waitFor({ state: "detached" });
      expect(await page.getByLabel("New password").inputValue()).toBe(password);
      await change.click();
      await page.getByText("This is not your password.").waitFor();
    },
    limitMs,
  );

  test(
    "one request lost while the stream goes on: it is asked again",
    async () => {
      await page.goto(`${scene.url()}/console/acme/access/`);
      await page.getByRole("heading", { level: 1, name: "Access" }).waitFor();
      // After it, nothing else is asked, whose answer would tell that the control plane is there.
      let asked = Date.now();
      page.on("request", () => (asked = Date.now()));
      await until(() => Date.now() - asked > 1500, { what: "a page that asks nothing" });
      // As when a network of this machine appears, such as that of an overlay.
      await page.route("**/policy/plan/", (route) => route.abort("connectionrefused"), { times: 1 });
      const lost = page.waitForEvent("requestfailed");
      await add("any", "any", "7400");
      await lost;
      await page.getByText("No node, and no network behind one, gains or loses access").first().waitFor();
      await discard();
    },
    limitMs,
  );

  test(
    "the network gone in the middle of an answer: the page says so",
    async () => {
      await page.evaluate(`(() => {
        const real = fetch;
        globalThis.fetch = async (...asked) => {
          const answer = await real(...asked);
          return new Response(new ReadableStream({ start: (body) => body.error(new TypeError("Load failed")) }), answer);
        };
      })()`);
      await page.getByRole("link", { name: "Members" }).click();
      await page.getByText("does not answer").first().waitFor();
    },
    limitMs,
  );

  test(
    "the first answers fail: the page says so, and goes on by itself",
    async () => {
      await page.route("**/api/user/", (route) =>
        route.fulfill({ status: 502, json: { code: "bad_gateway", detail: "Nothing answers here." } }),
      );
      await page.goto(`${scene.url()}/console/acme/nodes/`);
      await page.getByRole("alert").filter({ hasText: "Nothing answers here." }).waitFor();
      await page.getByRole("button", { name: "Try again" }).waitFor();
      await page.unroute("**/api/user/");
      await page.getByText("web-1").waitFor();
    },
    limitMs,
  );

  test(
    "an overview of which a part cannot be read says so, and not that all is well",
    async () => {
      await page.route("**/relays/", (route) => route.fulfill({ status: 502, json: { detail: "Not now." } }));
      await page.goto(`${scene.url()}/console/acme/`);
      await page.getByRole("alert").filter({ hasText: "Not now." }).waitFor();
      await page.unroute("**/relays/");
    },
    limitMs,
  );

  test(
    "a page whose file does not arrive says so, and is loaded again",
    async () => {
      await page.goto(`${scene.url()}/console/acme/nodes/`);
      await page.getByText("web-1").waitFor();
      await page.route("**/console/files/*.js", (route) => route.fulfill({ status: 404 }));
      await page.getByRole("link", { name: "Access" }).click();
      await page.getByText("This page could not be loaded").waitFor();
      await page.unroute("**/console/files/*.js");
      await page.getByRole("button", { name: "Load it again" }).click();
      await page.getByRole("heading", { level: 1, name: "Access" }).waitFor();
    },
    limitMs,
  );

  test("no page complained", () => {
    scene.expectQuiet();
  });
});
