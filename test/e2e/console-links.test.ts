// The first day, in a real browser: the first user, the first organization, an invitation, a forgotten password.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { getuid } from "node:process";
import type { Page } from "playwright-core";
import { agentJson, buildAgent, startControlPlane, type ControlPlane } from "../support/agent.ts";
import {
  overflowOf,
  signIn,
  startConsoleBrowser,
  noViolations,
  violationsIn,
  violationsInSchemes,
  type ConsoleBrowser,
} from "../support/console.ts";
import { runSync } from "../support/debian.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();
const password = "correct horse battery";
const [first, guest] = ["first@example.org", "guest@example.org"];
const limitMs = 120_000;
/** A disk of its own, which fills up. */
const isRoot = getuid?.() === 0;

describe("links in the console", () => {
  const directory = temporaryDirectory();
  const data = join(directory.path, "data");
  let plane: ControlPlane;
  let browser: ConsoleBrowser;
  let page: Page;

  const button = (name: string) => page.getByRole("button", { name, exact: true });
  const heading = (name: string) => page.getByRole("heading", { level: 1, name }).waitFor();

  beforeAll(async () => {
    mkdirSync(data);
    if (isRoot) runSync(["mount", "-t", "tmpfs", "-o", "size=300m,mode=0700", "tmpfs", data]);
    plane = await startControlPlane(data);
    browser = await startConsoleBrowser();
    ({ page } = await browser.open());
  }, limitMs);
  afterAll(async () => {
    await browser[Symbol.asyncDispose]();
    await plane.stop();
    if (isRoot) runSync(["umount", "--lazy", data]);
    directory[Symbol.dispose]();
  });

  test(
    "the link of a new server makes the first user, who signs in, and works once",
    async () => {
      const link = /http:\/\/\S+\/setup\/#\S+/.exec(plane.log())?.[0] ?? "";
      await page.goto(link);
      await page.getByLabel("E-mail").fill(first);
      await page.locator("#password").fill("a longer password");
      await button("Create the user").click();
      await heading(`Welcome, ${first}`);
      expect(page.url()).toBe(`${plane.url}/setup/`);
      await page.getByRole("link", { name: "Open the console" }).click();
      await signIn(page, first, "a longer password");
      await page.getByRole("navigation").getByText(first).waitFor();
      await page.getByText("There is no organization yet").waitFor();
      await page.goto(link);
      await page.getByLabel("E-mail").fill("second@example.org");
      await page.locator("#password").fill(password);
      await button("Create the user").click();
      await page.getByRole("alert").waitFor();
    },
    limitMs,
  );

  test(
    "staff create an organization and a user, disable and enable the user, and see the servers",
    async () => {
      await page.goto(`${plane.url}/console/-/organizations/`);
      await button("Create an organization").click();
      await page.getByLabel("Slug").fill("acme");
      await page.getByLabel("Network").fill("10.77.0.1/16");
      await button("Create the organization").click();
      await page.getByRole("dialog").getByRole("alert").waitFor();
      await page.getByLabel("Network").fill("10.77.0.0/16");
      await button("Create the organization").click();
      await heading("Overview");
      expect(page.url()).toBe(`${plane.url}/console/acme/`);
      // The next one is proposed a network of its own, and told of another's while it is typed.
      await page.goto(`${plane.url}/console/-/organizations/`);
      await button("Create an organization").click();
      const network = page.getByLabel("Network");
      expect(await network.inputValue()).toBe("100.64.0.0/16");
      const overlap = page.getByText("It overlaps the network of acme: a machine cannot be in both");
      expect(await overlap.count()).toBe(0);
      await network.fill("10.77.128.0/24");
      await overlap.waitFor();
      await network.fill("10.78.0.0/16");
      await overlap.waitFor({ state: "detached" });
      await button("Cancel").click();
      await page.getByRole("link", { name: "Users" }).click();
      await button("Create a user").click();
      await page.getByLabel("E-mail").fill("ada@example.org");
      await page.getByLabel("Password").fill(password);
      await button("Create the user").click();
      const row = page.getByRole("row").filter({ hasText: "ada@example.org" });
      for (const [verb, state] of [
        ["Disable", "disabled"],
        ["Enable", "active"],
      ] as const) {
        await button(`${verb} ada@example.org`).click();
        if (verb === "Disable") await page.getByText("They have no node and no token.").waitFor();
        await page
          .getByRole("dialog")
          .getByRole("button", { name: `${verb} ada@example.org` })
          .click();
        await row.getByText(state).waitFor();
      }
      await page.request.post(`${plane.url}/api/token/`, { data: { email: "ada@example.org", password } });
      await button("Sessions of ada@example.org").click();
      const sessions = page.getByRole("dialog", { name: "Sessions of ada@example.org" });
      await sessions.getByRole("row").filter({ hasText: "command line" }).waitFor();
      // Wide enough for its table.
      expect((await sessions.boundingBox())?.width).toBe(800);
      await button("Sign out everywhere").click();
      await page
        .getByRole("dialog", { name: "everywhere?" })
        .getByRole("button", { name: "everywhere" })
        .click();
      await sessions.getByText("None.").waitFor();
      await button("Close").click();
      await page.getByText("None. Organizations can have their own.").waitFor();
      await page.getByRole("link", { name: "Audit log" }).click();
      await page.getByText("disabled the user ada@example.org").waitFor();
      await button("Verify the chain").click();
      await page.getByText(/The chain of \d+ events is whole/).waitFor();
      await button("Close").click();
      await page.getByRole("link", { name: "Servers" }).click();
      await page.getByText("SQLite").waitFor();
      const { answering } = (await (await page.request.get(`${plane.url}/api/servers/`)).json()) as {
        answering: { host: string; version: string; started_at: string };
      };
      const own = page.getByText(
        `${answering.host} answers this page: version ${answering.version}, started`,
      );
      await own.waitFor();
      expect(await own.locator("time").getAttribute("datetime")).toBe(
        new Date(answering.started_at).toISOString(),
      );
      // Hours before the first start are no outage: the chart begins with it.
      const points = [60, 55, 50].map((minutes) => ({
        at: new Date(Date.now() - minutes * 60_000).toISOString(),
        requests: 5,
        errors: 0,
        checkins: 1,
        p99_ms: 2,
        waiting: 0,
        memory_bytes: 1,
      }));
      await page.route("**/api/servers/history/", (route) =>
        route.fulfill({ json: { every_s: 300, hosts: [{ host: answering.host, points }] } }),
      );
      await page.goto(`${plane.url}/console/-/servers/`);
      await page.getByText(/^The last day, since the start at .+: at most 1 requests/).waitFor();
      await page.unroute("**/api/servers/history/");
      for (const path of ["organizations/", "users/", "servers/"]) {
        await page.goto(`${plane.url}/console/-/${path}`);
        await page.getByRole("heading", { level: 1 }).waitFor();
        expect([path, await violationsIn(page), await overflowOf(page)]).toEqual([path, [], 0]);
      }
    },
    limitMs,
  );

  test.skipIf(!isRoot)(
    "staff see in the overview that the disk of the control plane fills up, and is full",
    async () => {
      const told = async (fill: string | undefined) => {
        const filling = join(data, "filling");
        rmSync(filling, { force: true });
        if (fill !== undefined) runSync(["fallocate", "-l", fill, filling]);
        const { warnings } = (await agentJson(["admin", "server", "list", "--data-dir", data])) as {
          warnings: { text: string }[];
        };
        await page.goto(`${plane.url}/console/acme/`);
        await Promise.all([page.waitForResponse(`${plane.url}/api/servers/`), page.reload()]);
        await heading("Overview");
        for (const { text } of warnings) await page.getByText(text.split(":")[0] ?? "").waitFor();
        expect(await page.getByText("The disk of the control plane is").count()).toBe(warnings.length);
        return warnings.map(({ text }) => text).join();
      };
      expect(await told(undefined)).toBe("");
      expect(await told("275m")).toMatch(/nearly full: [\d.]+ MB of [\d.]+ MB are free/);
      expect(await told("292m")).toMatch(/may fail: [\d.]+ MB of/);
      expect(await told(undefined)).toBe("");
    },
    limitMs,
  );

  test(
    "an invitation is accepted, after a password that is too short was told beside its field",
    async () => {
      const invite = ["admin", "member", "create", "acme", guest, "--role", "admin", "--data-dir", data];
      const { link } = (await agentJson(invite)) as { link: string };
      const { page: other, context } = await browser.open();
      await other.goto(`${plane.url}/join/${new URL(link).hash}`);
      await other.getByText(`${guest} is invited to the organization acme.`).waitFor();
      const chosen = other.locator("#password");
      await chosen.fill("short");
      await other.evaluate(`document.querySelector("#password").removeAttribute("minlength")`);
      await other.getByRole("button", { name: "Join", exact: true }).click();
      await other.getByRole("alert").filter({ hasText: "8" }).waitFor();
      await chosen.fill(password);
      // It is asked for once: who mistypes it sees that here.
      expect(await chosen.getAttribute("type")).toBe("password");
      await other.getByLabel("Show the password").check();
      expect(await chosen.getAttribute("type")).toBe("text");
      await other.getByLabel("Show the password").uncheck();
      expect(await chosen.getAttribute("type")).toBe("password");
      await other.getByRole("button", { name: "Join", exact: true }).click();
      await other.getByRole("link", { name: "Open the console" }).click();
      await signIn(other, guest, password);
      await other.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
      // The same user accepts another one without the password.
      await agentJson(["admin", "org", "create", "beta", "--network", "10.78.0.0/16", "--data-dir", data]);
      const next = ["admin", "member", "create", "beta", guest, "--data-dir", data];
      const { link: second } = (await agentJson(next)) as { link: string };
      // In the tab of another link, which only the part behind # tells from it.
      await other.goto(`${plane.url}/join/#former`);
      await other.getByRole("alert").filter({ hasText: "no longer valid" }).waitFor();
      await other.goto(`${plane.url}/join/${new URL(second).hash}`);
      await other.getByRole("button", { name: "Join as the user who is signed in" }).click();
      await other.getByRole("heading", { level: 1, name: `Welcome to beta, ${guest}` }).waitFor();
      // A used link says so before it asks for a password.
      await other.goto("about:blank");
      await other.goto(`${plane.url}/join/${new URL(second).hash}`);
      await other.getByRole("alert").filter({ hasText: "no longer valid" }).waitFor();
      expect(await other.locator("#password").count()).toBe(0);
      await context.close();
    },
    limitMs,
  );

  test(
    "a forgotten password and a used link are answered in the server's words",
    async () => {
      await page.goto(`${plane.url}/reset/`);
      await page.getByLabel("E-mail").fill(guest);
      await button("Send the link").click();
      await page.getByRole("alert").filter({ hasText: "e-mail" }).waitFor();
      await page.goto(`${plane.url}/join/`);
      await page.getByText("The link is not whole").waitFor();
      await page.goto(`${plane.url}/reset/#used`);
      await page.reload();
      await page.locator("#password").fill(password);
      await button("Set the password").click();
      await page.getByRole("alert").waitFor();
    },
    limitMs,
  );

  test(
    "every page is accessible, light and dark, and fits on a phone",
    async () => {
      const { page: phone, context } = await browser.open({ viewport: { width: 360, height: 740 } });
      for (const path of [
        "/setup/#x",
        "/join/#x",
        "/reset/#x",
        "/reset/",
        "/join/",
        "/api/docs/",
        "/console/",
      ]) {
        await phone.goto("about:blank");
        await phone.goto(plane.url + path);
        await phone.getByRole("heading", { level: 1 }).waitFor();
        expect([path, await overflowOf(phone)]).toEqual([path, 0]);
        expect([path, await violationsInSchemes(phone)]).toEqual([path, noViolations]);
      }
      await context.close();
    },
    limitMs,
  );

  test("no page complained", () => {
    browser.expectQuiet();
  });
});
