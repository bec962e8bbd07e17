// The console in a real browser, against the compiled executable.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import type { Page } from "playwright-core";
import axe from "axe-core";
import { parseJoinKey } from "../../src/join-key.ts";
import { runAgent, startControlPlane, type ControlPlane } from "../support/agent.ts";
import { startConsoleBrowser, type ConsoleBrowser } from "../support/console.ts";
import { placesBelow } from "../support/daemon.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const password = "correct horse battery";
const [owner, member] = ["owner@example.org", "member@example.org"];
const limitMs = 120_000;

/** Texts that would do harm where a page took them for more than texts. */
const hostile = [
  `<img src=x onerror="document.title='ran'">`,
  `"><script>document.title='ran'</script>`,
  "javascript:document.title='ran'",
  "\u202egnp.exe",
  '=HYPERLINK("http://example.org")',
  "${document.title='ran'}",
  "a".repeat(100),
];

describe("the console", () => {
  const directory = temporaryDirectory();
  const data = join(directory.path, "data");
  let plane: ControlPlane;
  let browser: ConsoleBrowser;
  let page: Page;

  const admin = async (args: readonly string[], input = "") => {
    const { status, stdout, stderr } = await runAgent(["admin", ...args, "--data-dir", data], { input });
    if (status !== 0) throw new Error(`agent admin ${args.join(" ")}: exit ${status}\n${stdout}${stderr}`);
    return stdout;
  };
  const signIn = async (on: Page, email: string) => {
    await on.getByLabel("E-mail").fill(email);
    await on.getByLabel("Password").fill(password);
    await on.getByRole("button", { name: "Sign in" }).click();
    await on.getByRole("heading", { name: "Overview" }).waitFor();
  };
  const node = (name: string) => admin(["node", "create", "acme", name]);

  beforeAll(async () => {
    await admin(["user", "create", owner, "--password-file", "-"], password);
    await admin(["user", "create", member, "--password-file", "-"], password);
    await admin(["org", "create", "acme", "--network", "10.77.0.0/16", "--owner", owner]);
    await admin(["member", "create", "acme", member, "--role", "member"]);
    plane = await startControlPlane(data);
    browser = await startConsoleBrowser();
    ({ page } = await browser.open());
  }, limitMs);
  afterAll(async () => {
    await browser[Symbol.asyncDispose]();
    await plane.stop();
    directory[Symbol.dispose]();
  });

  test(
    "/ leads a browser there, and a program gets the API's 404",
    async () => {
      const program = await fetch(`${plane.url}/`, { redirect: "manual" });
      expect([program.status, await program.json()]).toMatchObject([404, { code: "not_found" }]);
      await page.goto(`${plane.url}/`);
      expect(new URL(page.url()).pathname).toBe("/console/");
    },
    limitMs,
  );

  test(
    "a wrong password is told in the server's words, the right one opens the only organization",
    async () => {
      await page.getByLabel("E-mail").fill(owner);
      await page.getByLabel("Password").fill("wrong horse battery");
      await page.getByRole("button", { name: "Sign in" }).click();
      await page.getByRole("alert").filter({ hasText: "password" }).waitFor();
      await signIn(page, owner);
      expect(new URL(page.url()).pathname).toBe("/console/acme/");
      await page.getByText("There is no machine yet.").waitFor();
    },
    limitMs,
  );

  test(
    "a machine is added by one line, and seen when it arrives",
    async () => {
      await page.getByRole("link", { name: "Add a machine" }).click();
      await page.getByLabel("Groups").fill("web");
      await page.getByRole("button", { name: "Make the line" }).click();
      const key = await page.getByText(/^oaj1/).innerText();
      const { registrationToken: token } = parseJoinKey(key);
      const places = placesBelow(join(directory.path, "node"), "/usr/bin/nebula");
      const target = ["--api-base", plane.url, "--org-slug", "acme", "--node-name", "web-1"];
      const how = ["--registration-token-file", "-", "--mode", "desktop", "--no-start"];
      const joined = await runAgent(["register", ...target, ...how, ...places.flags], { input: token });
      expect([joined.status, joined.stdout]).toEqual([0, expect.any(String)]);
      await page.getByRole("link", { name: /web-1/ }).click();
      await page.getByRole("heading", { name: "web-1" }).waitFor();
      await page.getByText("away").first().waitFor();
      await page.getByText("node.registered").waitFor();
    },
    limitMs,
  );

  test(
    "a change made elsewhere is seen, in every tab, without loading the page again",
    async () => {
      await page.getByRole("link", { name: "Machines" }).first().click();
      const tabs = await Promise.all(Array.from({ length: 9 }, () => page.context().newPage()));
      await Promise.all(tabs.map((tab) => tab.goto(`${plane.url}/console/acme/machines/`)));
      await Promise.all(tabs.map((tab) => tab.getByText("web-1").waitFor()));
      await node("live-1");
      await Promise.all([page, ...tabs].map((tab) => tab.getByText("live-1").waitFor()));
      await Promise.all(tabs.map((tab) => tab.close()));
    },
    limitMs,
  );

  test(
    "machines are renamed, revoked after a question, and restored",
    async () => {
      await page.getByText("live-1").click();
      await page.getByRole("button", { name: "Edit" }).click();
      await page.getByRole("textbox", { name: "Name", exact: true }).fill("web-1");
      await page.getByRole("button", { name: "Save" }).click();
      await page.getByRole("dialog").getByRole("alert").first().waitFor();
      await page.getByRole("textbox", { name: "Name", exact: true }).fill("beta");
      await page.getByRole("button", { name: "Save" }).click();
      await page.getByRole("heading", { level: 1, name: "beta" }).waitFor();
      await page.getByRole("link", { name: "Machines" }).first().click();
      await page.getByText("web-1").click();
      await page.getByRole("button", { name: "Revoke" }).click();
      await page.getByRole("button", { name: "Revoke web-1" }).click();
      await page.getByRole("button", { name: "Restore" }).click();
      await page.getByRole("button", { name: "Restore web-1" }).click();
      await page.getByRole("button", { name: "Revoke" }).waitFor();
      await page.getByText("node.restored").waitFor();
    },
    limitMs,
  );

  test(
    "texts of others are texts: nothing runs, and the layout holds",
    async () => {
      for (const text of hostile) await admin(["org", "update", "acme", "--name", text]);
      await page.goto(`${plane.url}/console/acme/activity/`);
      await page.getByText("onerror").first().waitFor();
      expect(await page.title()).not.toContain("ran");
      const overflow = await page.evaluate("document.documentElement.scrollWidth - innerWidth");
      expect(Number(overflow)).toBeLessThanOrEqual(0);
    },
    limitMs,
  );

  test(
    "a member sees no buttons for changes; signing out and the end of the session lead to the form",
    async () => {
      const { page: other, context } = await browser.open({ viewport: { width: 360, height: 740 } });
      await other.goto(`${plane.url}/console/acme/machines/`);
      await signIn2(other);
      await other.getByText("web-1").click();
      await other.getByRole("heading", { name: "web-1" }).waitFor();
      expect(await other.getByRole("button", { name: "Revoke" }).count()).toBe(0);
      expect(await context.cookies()).toMatchObject(
        expect.arrayContaining([expect.objectContaining({ httpOnly: true, secure: true, sameSite: "Lax" })]),
      );
      await admin(["member", "delete", "acme", member]);
      await admin(["user", "disable", member]);
      await other.getByText("Your session has ended").waitFor();
      await context.close();
    },
    limitMs,
  );

  /** The form does not change the address. */
  async function signIn2(on: Page) {
    await on.getByLabel("E-mail").fill(member);
    await on.getByLabel("Password").fill(password);
    await on.getByRole("button", { name: "Sign in" }).click();
    await on.getByRole("heading", { name: "Machines" }).waitFor();
  }

  test(
    "the server away: the page says so, keeps what was typed, and goes on by itself",
    async () => {
      await page.goto(`${plane.url}/console/acme/machines/`);
      await page.getByText("web-1").waitFor();
      await page.getByRole("searchbox").fill("web");
      const port = Number(new URL(plane.url).port);
      await plane.stop();
      await page.getByText("does not answer since").waitFor();
      plane = await startControlPlane(data, [], port);
      await page.getByText("does not answer since").waitFor({ state: "detached", timeout: 30_000 });
      expect(await page.getByRole("searchbox").inputValue()).toBe("web");
      await node("web-2");
      await page.getByText("web-2").waitFor();
    },
    limitMs,
  );

  test.each(["light", "dark"] as const)(
    "every page is accessible, %s",
    async (colorScheme) => {
      await page.emulateMedia({ colorScheme });
      for (const path of ["", "machines/", "machines/add/", "machines/1/", "activity/"]) {
        await page.goto(`${plane.url}/console/acme/${path}`);
        await page.getByRole("heading", { level: 1 }).waitFor();
        await Bun.sleep(300);
        const found = await page.evaluate(`(async () => {
        ${axe.source};
        return (await axe.run()).violations.map(({ id, nodes }) => id + ": " + nodes.map(({ html }) => html).join(" "));
      })()`);
        expect([path, found]).toEqual([path, []]);
      }
    },
    limitMs,
  );

  test("no page complained", () => {
    browser.expectQuiet();
  });
});
