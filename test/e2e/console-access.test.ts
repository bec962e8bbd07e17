// The console's page Access in a real browser: rules are edited, judged before they are saved, and explained.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import type { Page } from "playwright-core";
import axe from "axe-core";
import { runAgent, startControlPlane, type ControlPlane } from "../support/agent.ts";
import { startConsoleBrowser, type ConsoleBrowser } from "../support/console.ts";
import { placesBelow } from "../support/daemon.ts";
import { appWith } from "../support/factors.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const password = "correct horse battery";
const [owner, member] = ["owner@example.org", "member@example.org"];
const limitMs = 60_000;
const hostile = `<img src=x onerror="document.title='ran'"> \u202egnp.exe ${"a".repeat(150)}`;
const policy = `tests:
  - deny: {from: group:db, to: group:web, protocol: tcp, port: 22}
`;

describe("the page Access", () => {
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
  const open = async (on: Page, email: string) => {
    await on.goto(`${plane.url}/console/acme/access/`);
    await on.getByLabel("E-mail").fill(email);
    await on.getByLabel("Password").fill(password);
    await on.getByRole("button", { name: "Sign in" }).click();
    await on.getByRole("heading", { name: "Access", level: 1 }).waitFor();
  };
  const register = async (name: string, group: string) => {
    const token = await admin(["token", "create", "acme", "--group", group, "--json"]);
    const places = placesBelow(join(directory.path, name), "/usr/bin/nebula");
    const target = ["--api-base", plane.url, "--org-slug", "acme", "--node-name", name];
    const how = ["--registration-token-file", "-", "--mode", "desktop", "--no-start"];
    const { secret, token: former } = JSON.parse(token) as { secret?: string; token?: string };
    const joined = await runAgent(["register", ...target, ...how, ...places.flags], {
      input: secret ?? former ?? "",
    });
    expect([joined.status, joined.stdout]).toEqual([0, expect.any(String)]);
  };
  const row = (text: string | RegExp) => page.getByRole("row").filter({ hasText: text });
  const add = async (from: string, to: string, ports: string, description = "") => {
    await page.getByRole("button", { name: "Add a rule" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("From").fill(from);
    await dialog.getByLabel("To", { exact: true }).fill(to);
    await dialog.getByLabel("Ports").fill(ports);
    await dialog.getByLabel("Description").fill(description);
    await dialog.getByRole("button", { name: "Add to the draft" }).click();
  };
  const saving = () => page.getByRole("button", { name: "Save the rules" });

  beforeAll(async () => {
    await admin(["user", "create", owner, "--password-file", "-"], password);
    await admin(["user", "create", member, "--password-file", "-"], password);
    await admin(["org", "create", "acme", "--network", "10.77.0.0/16", "--owner", owner]);
    await admin(["member", "create", "acme", member, "--role", "member"]);
    plane = await startControlPlane(data);
    [browser] = await Promise.all([
      startConsoleBrowser(),
      register("web-1", "web").then(() => register("db-1", "db")),
    ]);
    await admin(["policy", "apply", "acme", "-"], policy);
    ({ page } = await browser.open());
    await open(page, owner);
  }, limitMs);
  afterAll(async () => {
    await browser[Symbol.asyncDispose]();
    await plane.stop();
    directory[Symbol.dispose]();
  });

  test(
    "a rule is typed as a sentence; the page tells which machines gain access before it is saved",
    async () => {
      await row("all machines may send to all machines on anything").waitFor();
      await add("web", "db", "5432", hostile);
      await page.getByText("web-1 → db-1 gains tcp/5432").first().waitFor();
      await page.getByText("The saved test passes.").waitFor();
      await page.getByRole("link", { name: "Machines" }).first().click();
      await page.getByRole("heading", { name: "Machines" }).waitFor();
      await page.goBack();
      await row("machines in web may reach machines in db on tcp 5432").getByText("new").waitFor();
      await saving().click();
      await saving().waitFor({ state: "detached" });
      expect(await admin(["rule", "list", "acme"])).toContain("5432");
      expect(await page.title()).not.toContain("ran");
    },
    limitMs,
  );

  test(
    "a group is made where a rule first names it",
    async () => {
      await page.getByRole("button", { name: "Add a rule" }).click();
      const dialog = page.getByRole("dialog");
      await dialog.getByLabel("From").fill("cron");
      await dialog.getByRole("button", { name: "Create the group cron" }).click();
      await dialog.getByRole("button", { name: "Create the group cron" }).waitFor({ state: "detached" });
      await dialog.getByRole("button", { name: "Cancel" }).click();
      await page.getByRole("columnheader", { name: "cron" }).waitFor();
    },
    limitMs,
  );

  test(
    "the matrix and the explainer name the rule that decides",
    async () => {
      await page.getByRole("button", { name: "icmp, tcp 5432" }).click();
      await page
        .getByRole("status")
        .getByText(/web reaches db on/)
        .waitFor();
      await page.getByLabel("From machine").fill("web-1");
      await page.getByLabel("To machine").fill("db-1");
      await page.getByLabel("Port", { exact: true }).fill("5432");
      await page.getByText(/Rule \d+ decides:/).waitFor();
      await page.getByRole("button", { name: "Show it" }).click();
      await page.locator("tr.marked").waitFor();
      await page.reload();
      await page.getByText(/Rule \d+ decides:/).waitFor();
      await page.getByLabel("Port", { exact: true }).fill("5433");
      await page.getByText("No inbound rule of db-1 permits tcp/5433 from web-1.").waitFor();
    },
    limitMs,
  );

  test(
    "rules that fail a test or have a fault cannot be saved, and the server's sentence is beside the rule",
    async () => {
      await add("db", "web", "any");
      await page.getByText(/0 saved tests pass, 1 fails/).waitFor();
      expect(await saving().isDisabled()).toBe(true);
      await row("machines in db may reach").getByRole("button", { name: /^Edit/ }).click();
      await page.getByRole("dialog").getByLabel("Ports").fill("70000");
      await page.getByRole("button", { name: "Change in the draft" }).click();
      await row("machines in db may reach").getByText("Enter ports from 1 to 65535").waitFor();
      expect(await saving().isDisabled()).toBe(true);
      await row("machines in db may reach")
        .getByRole("button", { name: /^Delete/ })
        .click();
      await saving().waitFor({ state: "detached" });
    },
    limitMs,
  );

  test(
    "rules that somebody else saved are shown beside the own edits, and both are kept",
    async () => {
      await row("tcp 5432")
        .getByRole("button", { name: /^Delete/ })
        .click();
      await page.getByText("web-1 → db-1 loses tcp/5432").first().waitFor();
      await admin(["rule", "create", "acme", "--protocol", "udp", "--ports", "53", "--target", "group:db"]);
      await page.getByText("Saved by others").waitFor();
      expect(await saving().isDisabled()).toBe(true);
      await page.getByText("+ all machines may reach machines in db on udp 53").waitFor();
      await page.getByText("− machines in web may reach machines in db on tcp 5432").waitFor();
      await page.getByRole("button", { name: "Put my changes on theirs" }).click();
      await page.getByText("web-1 → db-1 loses tcp/5432").first().waitFor();
      await saving().click();
      await saving().waitFor({ state: "detached" });
      const rules = await admin(["rule", "list", "acme"]);
      expect([rules.includes("5432"), rules.includes("53")]).toEqual([false, true]);
    },
    limitMs,
  );

  test(
    "a fresh second factor is asked for, and the request goes on",
    async () => {
      const { page: other, context } = await browser.open();
      await open(other, owner);
      const secret = await other.evaluate(`(async () => {
        const post = async (path, body) =>
          (await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) })).json();
        window.post = post;
        return (await post("/api/user/totp/", { current_password: ${JSON.stringify(password)} })).secret;
      })()`);
      const app = appWith({ clock: { ms: Date.now() } }, String(secret));
      const codes = await other.evaluate(
        `post("/api/user/totp/confirm/", { otp: "${app.code()}" }).then((answer) => answer.recovery_codes)`,
      );
      await context.close();
      const [recovery = ""] = codes as string[];
      await add("web", "db", "6432");
      await page.getByText("web-1 → db-1 gains tcp/6432").first().waitFor();
      await saving().click();
      const dialog = page.getByRole("dialog", { name: "Confirm that it is you" });
      await dialog.getByRole("button", { name: "Cancel" }).click();
      await page.getByRole("alert").getByText("fresh proof").waitFor();
      await page.getByRole("button", { name: "Discard the changes" }).click();
      await add("web", "db", "6432");
      await page.getByText("web-1 → db-1 gains tcp/6432").first().waitFor();
      await saving().click();
      await dialog.getByLabel("Code").fill("000000");
      await dialog.getByRole("button", { name: "Go on" }).click();
      await dialog.getByRole("alert").first().waitFor();
      await dialog.getByLabel("Code").fill(recovery);
      await dialog.getByRole("button", { name: "Go on" }).click();
      await saving().waitFor({ state: "detached" });
      expect(await admin(["rule", "list", "acme"])).toContain("6432");
    },
    limitMs,
  );

  test(
    "a member reads; where only the file changes the policy, nobody edits",
    async () => {
      const { page: other, context } = await browser.open({ viewport: { width: 360, height: 740 } });
      await open(other, member);
      await other.getByText("Administrators of the organization change rules").waitFor();
      expect(await other.getByRole("button", { name: "Add a rule" }).count()).toBe(0);
      const overflow = await other.evaluate("document.documentElement.scrollWidth - innerWidth");
      expect(Number(overflow)).toBeLessThanOrEqual(0);
      await context.close();
      await admin(["policy", "update", "acme", "--by-file", "on"]);
      await page.reload();
      await page.getByText("changed by their policy file only").waitFor();
      expect(await page.getByRole("button", { name: "Add a rule" }).count()).toBe(0);
      await admin(["policy", "update", "acme", "--by-file", "off"]);
    },
    limitMs,
  );

  test.each(["light", "dark"] as const)(
    "the page and its dialog are accessible, %s",
    async (colorScheme) => {
      await page.emulateMedia({ colorScheme });
      await page.reload();
      await row("udp 53")
        .getByRole("button", { name: /^Delete/ })
        .click();
      await page.getByText("loses udp/53").first().waitFor();
      const audit = () =>
        page.evaluate(`(async () => {
          ${axe.source};
          return (await axe.run()).violations.map(({ id, nodes }) => id + ": " + nodes.map(({ html }) => html).join(" "));
        })()`);
      expect(await audit()).toEqual([]);
      await page.getByRole("button", { name: "Add a rule" }).click();
      await page.getByRole("dialog").waitFor();
      expect(await audit()).toEqual([]);
    },
    limitMs,
  );

  test("no page complained", () => {
    browser.expectQuiet();
  });
});
