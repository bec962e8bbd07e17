// Signing in and one's own account, in a real browser against the compiled executable.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import axe from "axe-core";
import type { BrowserContext, Page } from "playwright-core";
import { totpCode, totpStep } from "../../src/pki/totp.ts";
import { buildAgent, runAgent, startControlPlane, type ControlPlane } from "../support/agent.ts";
import { startConsoleBrowser, type ConsoleBrowser } from "../support/console.ts";
import { bytesOfBase32 } from "../support/factors.ts";
import { freePort } from "../support/free-port.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();
const [first, second] = ["correct horse battery", "another horse battery"];
const owner = "owner@example.org";
const limitMs = 120_000;

describe("the account in the console", () => {
  const directory = temporaryDirectory();
  const data = join(directory.path, "data");
  let plane: ControlPlane;
  let here: string;
  let browser: ConsoleBrowser;
  let context: BrowserContext;
  let page: Page;
  let recoveryCodes: string[];

  const admin = async (args: readonly string[], input = "") => {
    const { status, stdout, stderr } = await runAgent(["admin", ...args, "--data-dir", data], { input });
    if (status !== 0) throw new Error(`agent admin ${args.join(" ")}: exit ${status}\n${stdout}${stderr}`);
  };
  const button = (name: string | RegExp, on: Page = page) => on.getByRole("button", { name });
  const givePassword = async (password: string, on: Page = page) => {
    await on.getByLabel("E-mail").fill(owner);
    await on.getByLabel("Password").fill(password);
    await on.getByRole("button", { name: "Sign in", exact: true }).click();
  };
  const overview = (on: Page = page) => on.getByRole("heading", { name: "Overview" }).waitFor();
  const violations = (on: Page): Promise<unknown> =>
    on.evaluate(`(async () => {
      ${axe.source};
      return (await axe.run()).violations.map(({ id, nodes }) => id + ": " + nodes.map(({ html }) => html).join(" "));
    })()`);
  /** Codes count once: the next step's code is accepted, too. */
  const codeOf = (secret: string, later: number) =>
    totpCode(bytesOfBase32(secret), totpStep(Date.now()) + later);
  const keepCodes = async () => {
    const codes = (await page.locator("pre.codes").innerText()).split("\n");
    await button("I have kept them").click();
    return codes;
  };

  beforeAll(async () => {
    await admin(["user", "create", owner, "--password-file", "-"], first);
    await admin(["org", "create", "acme", "--network", "10.77.0.0/16", "--owner", owner]);
    await admin(["org", "update", "acme", "--second-factor", "required"]);
    const port = freePort();
    here = `http://localhost:${port}`;
    plane = await startControlPlane(data, ["--public-url", here], port);
    browser = await startConsoleBrowser();
    ({ page, context } = await browser.open());
  }, limitMs);
  afterAll(async () => {
    await browser[Symbol.asyncDispose]();
    await plane.stop();
    directory[Symbol.dispose]();
  });

  test(
    "without a required second factor, every page is the one that sets it up, by QR code",
    async () => {
      await page.goto(`${here}/console/acme/machines/`);
      await givePassword(first);
      await page.getByRole("heading", { name: "Set up a second factor" }).waitFor();
      await button("Set up an app").click();
      await page.getByLabel("Your password").fill(second);
      await button("Show the QR code").click();
      await page.getByRole("dialog").getByRole("alert").waitFor();
      await page.getByLabel("Your password").fill(first);
      await button("Show the QR code").click();
      await page.getByRole("img", { name: "QR code" }).waitFor();
      const secret = await page.locator("dialog .line code").innerText();
      await page.getByLabel("The code that the app shows now").fill("000000");
      await button("Confirm").click();
      await page.getByText("The code does not belong to this secret.").waitFor();
      await page.getByLabel("The code that the app shows now").fill(codeOf(secret, 0));
      await button("Confirm").click();
      recoveryCodes = await keepCodes();
      expect(recoveryCodes).toHaveLength(10);
      await page.getByRole("heading", { name: "Machines" }).waitFor();

      await button("Sign out").click();
      await givePassword(first);
      await page.getByLabel("Code of your authenticator app").fill("000000");
      await button("Sign in").first().click();
      await page.getByRole("alert").first().waitFor();
      await page.getByLabel("Code of your authenticator app").fill(codeOf(secret, 1));
      await button("Sign in").first().click();
      await page.getByRole("heading", { name: "Machines" }).waitFor();
    },
    limitMs,
  );

  test(
    "a passkey is added, and signs in without a password",
    async () => {
      const devTools = await context.newCDPSession(page);
      await devTools.send("WebAuthn.enable");
      await devTools.send("WebAuthn.addVirtualAuthenticator", {
        options: {
          protocol: "ctap2",
          transport: "internal",
          hasResidentKey: true,
          hasUserVerification: true,
          isUserVerified: true,
          automaticPresenceSimulation: true,
        },
      });
      await page.getByRole("link", { name: owner }).click();
      await button("Add a passkey").click();
      await page.getByLabel("Name").fill("laptop");
      await button("Add the passkey").click();
      await button("Remove laptop").waitFor();
      await button("Sign out").first().click();
      await button("Sign in with a passkey").click();
      await button("Remove laptop").waitFor();
    },
    limitMs,
  );

  test(
    "other browsers are signed out from here; a recovery code signs in once",
    async () => {
      const { page: other, context: elsewhere } = await browser.open();
      await other.goto(`${here}/console/`);
      await givePassword(first, other);
      await other.getByLabel("Code of your authenticator app").fill(recoveryCodes[0] ?? "");
      await button("Sign in", other).first().click();
      await overview(other);
      await page.reload();
      await page.getByText("9 of them are left").waitFor();
      await button("Sign out").nth(0).waitFor();
      await page.locator("td").getByRole("button", { name: "Sign out" }).click();
      await button("Sign it out").click();
      await other.getByText("Your session has ended").waitFor();
      await elsewhere.close();
    },
    limitMs,
  );

  test.each(["light", "dark"] as const)(
    "the account and its dialogs are accessible, %s",
    async (colorScheme) => {
      await page.emulateMedia({ colorScheme });
      await page.goto(`${here}/console/-/account/`);
      await button("Remove laptop").waitFor();
      expect(await violations(page)).toEqual([]);
      await button("Move to another phone").click();
      await button("Show the QR code").click();
      await page.getByRole("img", { name: "QR code" }).waitFor();
      await Bun.sleep(200);
      expect(await violations(page)).toEqual([]);
      await button("Cancel").click();
    },
    limitMs,
  );

  test(
    "a wrong present password leaves the session; a new one ends all sessions",
    async () => {
      const change = button("Change the password and sign out everywhere");
      await page.getByLabel("Present password").fill(second);
      await page.getByLabel("New password").fill(second);
      await change.click();
      await page.getByRole("alert").waitFor();
      expect(await page.getByText("Your session has ended").count()).toBe(0);
      await page.getByLabel("Present password").fill(first);
      await change.click();
      await page.getByText("Your session has ended").waitFor();
      const dialog = page.getByRole("dialog");
      await dialog.getByLabel("Password").fill(second);
      await dialog.getByRole("button", { name: "Sign in", exact: true }).click();
      await dialog.getByLabel("Code of your authenticator app").fill(recoveryCodes[1] ?? "");
      await dialog.getByRole("button", { name: "Sign in", exact: true }).click();
      await dialog.waitFor({ state: "detached" });
    },
    limitMs,
  );

  test("no page complained", () => {
    browser.expectQuiet();
  });
});
