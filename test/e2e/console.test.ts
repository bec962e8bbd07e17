// The console in a real browser, against the compiled executable.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Page, Request } from "playwright-core";
import { parseJoinKey } from "../../src/protocol/join-key.ts";
import {
  addMember,
  type Console,
  holdRequests,
  noViolations,
  owner,
  shownJoinKey,
  signIn,
  signOut,
  startConsole,
  violationsInSchemes,
} from "../support/console.ts";
import { until } from "../support/until.ts";

const member = "member@example.org";
const limitMs = 120_000;

describe("the console", () => {
  let scene: Console;
  let page: Page;

  const createNode = (name: string) => scene.admin(["node", "create", "acme", name]);

  beforeAll(async () => {
    scene = await startConsole();
    await addMember(scene, member);
    ({ page } = scene);
  }, limitMs);
  afterAll(() => scene[Symbol.asyncDispose]());

  test(
    "/ leads a browser there, and a program gets the API's 404",
    async () => {
      const program = await fetch(`${scene.url()}/`, { redirect: "manual" });
      expect([program.status, await program.json()]).toMatchObject([404, { code: "not_found" }]);
      await page.goto(`${scene.url()}/`);
      expect(new URL(page.url()).pathname).toBe("/console/");
    },
    limitMs,
  );

  test(
    "a wrong password is told in the server's words, the right one opens the only organization",
    async () => {
      await signIn(page, owner, "wrong horse battery");
      await page.getByRole("alert").filter({ hasText: "password" }).waitFor();
      await signIn(page);
      await page.getByRole("heading", { name: "Overview" }).waitFor();
      expect(new URL(page.url()).pathname).toBe("/console/acme/");
      await page.getByText("Your network has no node yet").waitFor();
    },
    limitMs,
  );

  test(
    "a browser that does not keep the session's cookie is told to use TLS",
    async () => {
      const { page: other, context } = await scene.open();
      // Safari refuses the cookie without TLS.
      await other.route("**/api/session/", (route) => route.fulfill({ status: 201, json: {} }));
      await other.goto(`${scene.url()}/console/`);
      await signIn(other);
      await other.getByText("does not keep the session").waitFor();
      await context.close();
    },
    limitMs,
  );

  test(
    "a machine is added by one line, and seen when it arrives",
    async () => {
      await page.getByRole("link", { name: "Add a node", exact: true }).click();
      await page.getByLabel("Groups").fill("web");
      await page.getByRole("button", { name: "Make the join key" }).click();
      const key = await shownJoinKey(page);
      const { registrationToken: token } = parseJoinKey(key);
      await scene.register("web-1", token);
      await page.getByRole("link", { name: /web-1/ }).click();
      await page.getByRole("heading", { name: "web-1" }).waitFor();
      await page.getByText("away").first().waitFor();
      await page.getByText("web-1 joined").waitFor();
    },
    limitMs,
  );

  test(
    "a browser with an empty cache loads at most 60 KB of scripts for its first page",
    async () => {
      const storageState = await page.context().storageState();
      const scripts = async (path: string, state: typeof storageState | undefined) => {
        const { page: other, context } = await scene.open(state === undefined ? {} : { storageState: state });
        await other.goto(`${scene.url()}/console/${path}`);
        await other.getByRole("heading", { level: 1 }).waitFor();
        await other
          .getByText(state === undefined ? "Password" : "web-1")
          .first()
          .waitFor();
        const sizes = await other.evaluate<number[]>(`(async () => {
          await (await fetch(document.querySelector("script[data-worker]").dataset.worker)).text();
          const scripts = performance.getEntriesByType("resource").filter(({ name }) => name.endsWith(".js"));
          return scripts.map(({ encodedBodySize }) => encodedBodySize);
        })()`);
        await context.close();
        expect(sizes.length).toBeGreaterThan(3);
        return sizes.reduce((sum, size) => sum + size, 0);
      };
      expect(await scripts("", undefined)).toBeLessThan(39_000);
      expect(await scripts("acme/nodes/", storageState)).toBeLessThanOrEqual(60 * 1024);
    },
    limitMs,
  );

  test.each(["", "acme/", "acme/nodes/", "acme/map/"])(
    "what the page at /console/%s asks first is on its way before a script runs",
    async (path) => {
      const storageState = await page.context().storageState();
      const { page: other, context } = await scene.open({ storageState });
      await other.addInitScript(`{
        const { fetch } = globalThis;
        globalThis.asked = [];
        globalThis.fetch = (path, more) => (asked.push(path), fetch(path, more));
      }`);
      await other.goto(`${scene.url()}/console/${path}`);
      // What nothing asks for would be read for nothing, and what differs by a letter twice.
      const early = `[...document.querySelectorAll("link[rel=preload]")].map((each) => each.getAttribute("href"))`;
      // The policy of the page refuses what Playwright's own waiting evaluates there.
      await until(() => other.evaluate<boolean>(`${early}.every((each) => asked.includes(each))`));
      expect(await other.evaluate<number>(`${early}.length`)).toBeGreaterThan(path === "" ? 2 : 3);
      // Those that the script adds for the next pages are not in the text of the page.
      const text = await (await other.request.get(`${scene.url()}/console/${path}`)).text();
      await context.close();
      const scripts = text.split('rel="modulepreload"').length - 1;
      expect([scripts > 1, scripts <= 8]).toEqual([true, true]);
    },
    limitMs,
  );

  test(
    "the file of a page is loaded while the pointer is on its link",
    async () => {
      const scripts: string[] = [];
      const note = (request: Request) => {
        if (request.url().endsWith(".js")) scripts.push(request.url());
      };
      page.on("request", note);
      const link = page.getByRole("link", { name: "Certificates" });
      const [file] = await Promise.all([
        page.waitForResponse((answer) => answer.url().includes("/c-operation-")),
        link.hover(),
      ]);
      // It runs before the click.
      await page.evaluate(`import(${JSON.stringify(file.url())}).then(() => undefined)`);
      const loaded = scripts.splice(0);
      await page.evaluate(`globalThis.gaps = 0;
        new MutationObserver(() => { globalThis.gaps += document.querySelector("main h1") === null ? 1 : 0; })
          .observe(document.querySelector("main"), { childList: true, subtree: true });`);
      await link.click();
      await page.getByRole("heading", { level: 1, name: "Certificates" }).waitFor();
      expect([loaded.length > 0, scripts]).toEqual([true, []]);
      // Nothing stood between the two pages.
      expect(await page.evaluate<number>("globalThis.gaps")).toBe(0);
      page.off("request", note);
    },
    limitMs,
  );

  test(
    "a change made elsewhere is seen, in every tab, without loading the page again",
    async () => {
      await page.getByRole("link", { name: "Nodes" }).first().click();
      const tabs = await Promise.all(Array.from({ length: 9 }, () => page.context().newPage()));
      // As in Chrome on Android before version 148.
      await tabs[0]?.addInitScript("delete globalThis.SharedWorker");
      await Promise.all(tabs.map((tab) => tab.goto(`${scene.url()}/console/acme/nodes/`)));
      await Promise.all(tabs.map((tab) => tab.getByText("web-1").waitFor()));
      await createNode("live-1");
      await Promise.all([page, ...tabs].map((tab) => tab.getByText("live-1").waitFor()));
      await Promise.all(tabs.map((tab) => tab.close()));
    },
    limitMs,
  );

  test(
    "many changes at once change their rows, and the list is not read whole",
    async () => {
      const whole: string[] = [];
      // A tab in the background does not read the list each 20 s.
      await page.evaluate(
        `Object.defineProperty(document, "visibilityState", { value: "hidden", configurable: true })`,
      );
      const note = (request: Request) => {
        if (/nodes\/\?page_size=\d+&page=/.test(request.url())) whole.push(request.url());
      };
      page.on("request", note);
      await page.evaluate(async () => {
        const headers = { "Content-Type": "application/json" };
        const one = (at: number) =>
          fetch("/api/org/acme/nodes/", {
            method: "POST",
            headers,
            body: JSON.stringify({ name: `many-${at}` }),
          });
        await Promise.all(Array.from({ length: 12 }, (_, at) => one(at)));
      });
      await page.getByText("14 of 14").waitFor();
      await page.getByText("many-11").waitFor();
      expect(whole).toEqual([]);
      page.off("request", note);
      await page.evaluate("delete document.visibilityState");
      await page.evaluate(async () => {
        const nodes = (await (await fetch("/api/org/acme/nodes/?search=many-")).json()) as { id: number }[];
        const gone = ({ id }: { id: number }) => fetch(`/api/org/acme/nodes/${id}/`, { method: "DELETE" });
        await Promise.all(nodes.map(gone));
      });
      await page.getByText("2 of 2").waitFor();
    },
    limitMs,
  );

  test(
    "machines are renamed, revoked after a question, and restored",
    async () => {
      await page.getByRole("link", { name: "live-1" }).press("Enter");
      await page.getByRole("button", { name: "Edit", exact: true }).click();
      await page.getByRole("textbox", { name: "Name", exact: true }).fill("web-1");
      await page.getByRole("button", { name: "Save" }).click();
      await page.getByRole("dialog").getByRole("alert").first().waitFor();
      await page.getByRole("textbox", { name: "Name", exact: true }).fill("beta");
      await page.getByRole("button", { name: "Save" }).click();
      await page.getByRole("heading", { level: 1, name: "beta" }).waitFor();
      await page.getByRole("link", { name: "Nodes" }).first().click();
      await page.getByRole("link", { name: "web-1" }).press("Enter");
      await page.getByRole("button", { name: "Revoke" }).click();
      await page.getByRole("dialog").waitFor();
      await page.keyboard.press("Escape");
      await page.getByRole("dialog").waitFor({ state: "detached" });
      await until(() => page.evaluate<boolean>('document.activeElement.innerText === "Revoke"'));
      await page.getByRole("button", { name: "Revoke" }).click();
      await page.getByRole("button", { name: "Revoke web-1" }).click();
      await page.getByRole("button", { name: "Restore" }).click();
      await page.getByRole("button", { name: "Restore web-1" }).click();
      await page.getByRole("button", { name: "Revoke" }).waitFor();
      await page.getByText(/restored the .* web-1/).waitFor();
    },
    limitMs,
  );

  test(
    "a member sees no buttons for changes; the end of the session leads to the form, and the next user to a new page",
    async () => {
      const { page: other, context } = await scene.open({ viewport: { width: 360, height: 740 } });
      await other.goto(`${scene.url()}/console/acme/nodes/`);
      await signIn(other, member);
      // The form does not change the address.
      await other.getByRole("heading", { name: "Nodes" }).waitFor();
      await other.getByText("web-1").waitFor();
      // A member sees no paths, so the page does not say that there are none.
      expect(await other.getByRole("option", { name: "Broken paths" }).count()).toBe(0);
      await other.goto(`${scene.url()}/console/acme/map/`);
      await other.getByText("paths of yours, as only administrators see all: 0 direct").waitFor();
      await other.goBack();
      await other.getByText("web-1").click();
      await other.getByRole("heading", { name: "web-1" }).waitFor();
      expect(await other.getByRole("button", { name: "Revoke" }).count()).toBe(0);
      // Another role is seen without loading the page again.
      await scene.admin(["member", "update", "acme", member, "--role", "admin"]);
      await other.locator("summary[title='Edit, renew, revoke']").waitFor();
      expect(await context.cookies()).toMatchObject(
        expect.arrayContaining([expect.objectContaining({ httpOnly: true, secure: true, sameSite: "Lax" })]),
      );
      await scene.admin(["member", "delete", "acme", member]);
      await scene.admin(["user", "disable", member]);
      await other.getByRole("heading", { name: "Your session has ended" }).waitFor();
      // What was read before is not for who looks now.
      await other.locator("#content").waitFor({ state: "hidden" });
      // Nor for the next user of the browser, whatever the page would have kept.
      await other.evaluate(`addEventListener("beforeunload", (event) => event.preventDefault())`);
      await Promise.all([other.waitForEvent("load"), signIn(other)]);
      await other.locator(".me").getByText(owner).waitFor({ state: "attached" });
      await other.getByRole("heading", { name: "web-1" }).waitFor();
      await context.close();
    },
    limitMs,
  );

  test(
    "what changed before the stream of events was open is seen: a role, and a machine that joined",
    async () => {
      const early = "early@example.org";
      await addMember(scene, early);
      const { page: other, context } = await scene.open();
      await other.addInitScript(
        "globalThis.requestIdleCallback = (work) => void (globalThis.startLive = work)",
      );
      await other.goto(`${scene.url()}/console/acme/nodes/`);
      await signIn(other, early);
      await other.getByText("web-1").waitFor();
      await scene.admin(["member", "update", "acme", early, "--role", "admin"]);
      expect(await other.getByRole("link", { name: "Add a node" }).count()).toBe(0);
      await other.evaluate("startLive()");
      await other.getByRole("link", { name: "Add a node" }).click();
      await other.reload();
      await other.getByRole("button", { name: "Make the join key" }).click();
      const key = await shownJoinKey(other);
      await scene.register("early-1", parseJoinKey(key).registrationToken);
      await other.getByText("Waiting for the machine.").waitFor();
      await other.evaluate("startLive()");
      await other.getByRole("link", { name: /early-1/ }).waitFor();
      expect(await other.getByRole("link", { name: /web-1/ }).count()).toBe(0);
      await context.close();
    },
    limitMs,
  );

  test(
    "signing out forgets the page, and says so if it fails",
    async () => {
      const { page: other, context } = await scene.open();
      await other.goto(`${scene.url()}/console/acme/`);
      await signIn(other);
      await other.getByRole("heading", { name: "Overview" }).waitFor();
      await other.route("**/api/session/", (route) => route.abort("connectionrefused"));
      await signOut(other);
      await other.getByText("You are still signed in.").waitFor();
      await other.unroute("**/api/session/");
      await other.evaluate(`addEventListener("beforeunload", (event) => event.preventDefault())`);
      await Promise.all([other.waitForEvent("load"), signOut(other)]);
      await other.getByRole("heading", { name: "Sign in" }).waitFor();
      expect(new URL(other.url()).pathname).toBe("/console/");
      await context.close();
    },
    limitMs,
  );

  test(
    "tabs of a browser follow the signed-in user, and a change for another user is refused",
    async () => {
      const second = "second@example.org";
      await addMember(scene, second);
      const { page: one, context } = await scene.open();
      const machines = `${scene.url()}/console/acme/nodes/`;
      await one.goto(machines);
      await signIn(one, second);
      await one.getByText("web-1").waitFor();
      const two = await context.newPage();
      await two.goto(machines);
      await two.getByText("web-1").waitFor();
      const deaf = await context.newPage();
      await deaf.addInitScript("BroadcastChannel.prototype.addEventListener = () => undefined");
      await deaf.goto(`${scene.url()}/console/-/command-line/?port=9&state=a&challenge=${"b".repeat(43)}`);
      await deaf.getByText(`wants to act as ${second}`).waitFor();
      // The end of the session: the same user signs in again in one tab, and the other one goes on.
      await two.getByRole("searchbox").fill("web");
      const sessions = await one.request.get(`${scene.url()}/api/user/sessions/`);
      const [{ id } = { id: 0 }] = (await sessions.json()) as { id: number }[];
      const ended = (tab: Page) => tab.getByRole("heading", { name: "Your session has ended" });
      await one.evaluate(`fetch("/api/user/sessions/${id}/", { method: "DELETE" }).then(() => undefined)`);
      for (const tab of [one, two]) await ended(tab).waitFor();
      await signIn(one, second);
      for (const tab of [one, two]) await ended(tab).waitFor({ state: "detached" });
      expect(await two.getByRole("searchbox").inputValue()).toBe("web");
      // Another user: no tab shows the former one.
      await signOut(one);
      await two.getByRole("heading", { name: "Sign in", exact: true }).waitFor();
      await signIn(one);
      await two.locator(".me").getByText(owner).waitFor();
      await deaf.getByRole("button", { name: "Sign it in" }).click();
      await ended(deaf).waitFor();
      await context.close();
    },
    limitMs,
  );

  test(
    "after another page is opened, its heading has the focus",
    async () => {
      const isFocused = (name: string) => page.locator("h1:focus", { hasText: name }).waitFor();
      await page.goto(`${scene.url()}/console/acme/nodes/`);
      await page.getByText("web-1").first().waitFor();
      // The first page is the browser's to begin: Tab goes to its top.
      expect(await page.evaluate("document.activeElement.tagName")).toBe("BODY");
      await page.getByRole("link", { name: "web-1" }).press("Enter");
      await isFocused("web-1");
      // The link to the content, which Tab comes to first on a page that was loaded, moves nothing.
      const places = `[...document.querySelectorAll("nav, .frame")].map((each) => {
        const { x, y, width } = each.getBoundingClientRect();
        return [x, y, width].join();
      }).join(" ")`;
      const before = await page.evaluate<string>(places);
      await page.getByRole("link", { name: "To the content" }).focus();
      expect(await page.evaluate<string>(places)).toBe(before);
      await page.evaluate(`document.querySelector("h1").focus()`);
      expect(await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")).toBe("none");
      await page.keyboard.press("g");
      await page.keyboard.press("v");
      await isFocused("Activity");
      // A filter changes the address and no page.
      await page.getByLabel("Search events").fill("node");
      expect(await page.evaluate("document.activeElement.tagName")).toBe("INPUT");
      expect(await violationsInSchemes(page)).toEqual(noViolations);
      await page.goBack();
      await isFocused("web-1");
      await page.keyboard.press("Control+k");
      await page.getByRole("combobox").fill("Access");
      await page.keyboard.press("Enter");
      await isFocused("Access");
      // Also if its data comes later, and with it another heading.
      const release = await holdRequests(page, "**/api/org/acme/nodes/?*");
      await page.goto(`${scene.url()}/console/acme/`);
      await page.getByRole("heading", { name: "Overview" }).waitFor();
      await page.keyboard.press("g");
      await page.keyboard.press("m");
      await isFocused("Nodes");
      release();
      await page.getByText("web-1").first().waitFor();
      await isFocused("Nodes");
      await page.unroute("**/api/org/acme/nodes/?*");
    },
    limitMs,
  );

  test(
    "the organization deleted: the page says so, and not that the control plane is away",
    async () => {
      await scene.admin(["org", "create", "gone", "--network", "10.79.0.0/16", "--owner", owner]);
      const tab = await page.context().newPage();
      await tab.goto(`${scene.url()}/console/gone/activity/`);
      await tab.getByText("live", { exact: true }).waitFor();
      await scene.admin(["org", "delete", "gone", "--confirm", "gone"]);
      await tab.getByText("There is no such organization").waitFor();
      expect(await tab.getByText("does not answer").count()).toBe(0);
      await tab.getByRole("link", { name: "acme" }).first().click();
      await tab.locator(".side").getByRole("link", { name: "Activity" }).click();
      await tab.getByText("live", { exact: true }).waitFor();
      // Nor is a page, or a machine, that does not exist without a heading and a way back.
      for (const [path, heading, back] of [
        ["acme/nothing/", "No such page", "/console/"],
        ["-/nothing/", "No such page", "/console/"],
        ["acme/nodes/99999/", "No such node", "/console/acme/nodes/"],
      ] as const) {
        await tab.goto(`${scene.url()}/console/${path}`);
        await tab.getByRole("heading", { level: 1, name: heading }).waitFor();
        expect(await tab.locator("main a").getAttribute("href")).toBe(back);
      }
      const here = tab.locator(".side [aria-current=page]");
      await tab.goto(`${scene.url()}/console/acme/phones/`);
      await here.waitFor();
      expect((await here.textContent())?.trim()).toBe("Nodes");
      await tab.close();
    },
    limitMs,
  );

  test(
    "what the page reads without a person is marked, so that it keeps no session alive",
    async () => {
      const marks = async (open: () => Promise<unknown>, path: string) => {
        const [asked] = await Promise.all([page.waitForRequest((each) => each.url().includes(path)), open()]);
        return asked.headers()["session-use"];
      };
      const byScript = (name: string) =>
        page.evaluate(
          `[...document.querySelectorAll("nav a")].find((a) => a.text.startsWith("${name}")).click()`,
        );
      // Of the last minute, however long the test before took.
      await page.keyboard.press("Shift");
      expect(await marks(() => byScript("Members"), "/members/")).toBeUndefined();
      await page.evaluate("{ const real = Date.now; Date.now = () => real() + 61_000; }");
      expect(await marks(() => byScript("Keys and tokens"), "service_tokens/")).toBe("none");
      const click = () => page.getByRole("link", { name: "Access" }).click();
      expect(await marks(click, "/firewall_rules/")).toBeUndefined();
    },
    limitMs,
  );

  test(
    "every page is accessible, light and dark",
    async () => {
      for (const path of ["", "nodes/", "nodes/add/", "nodes/1/", "activity/"]) {
        await page.goto(`${scene.url()}/console/acme/${path}`);
        await page.getByRole("heading", { level: 1 }).waitFor();
        expect([path, await violationsInSchemes(page)]).toEqual([path, noViolations]);
      }
    },
    limitMs,
  );

  test("no page complained", () => {
    scene.expectQuiet();
  });
});
