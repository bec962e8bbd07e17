// Signing in and one's own account, in a real browser against the compiled executable.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { totpCode, totpStep } from "../../src/pki/totp.ts";
import {
  type Console,
  holdRequests,
  noViolations,
  openAccount,
  owner,
  password,
  signIn,
  signOut,
  startConsole,
  violationsInSchemes,
  virtualDevice,
} from "../support/console.ts";
import { bytesOfBase32 } from "../support/factors.ts";
import { freePort } from "../support/free-port.ts";
import { until } from "../support/until.ts";

const second = "another horse battery";
const limitMs = 120_000;

describe("the account in the console", () => {
  let scene: Console;
  let here: string;
  let page: Page;
  let recoveryCodes: string[];

  const button = (name: string | RegExp, on: Page = page) => on.getByRole("button", { name });
  const overview = (on: Page = page) => on.getByRole("heading", { name: "Overview" }).waitFor();
  /** Codes count once: the next step's code is accepted, too. */
  const codeOf = (secret: string, later: number) =>
    totpCode(bytesOfBase32(secret), totpStep(Date.now()) + later);
  const keepCodes = async () => {
    const codes = (await page.locator("pre.codes").innerText()).split("\n");
    await button("I have kept them").click();
    return codes;
  };

  beforeAll(async () => {
    const port = freePort();
    here = `http://localhost:${port}`;
    scene = await startConsole(["--public-url", here], port);
    await scene.admin(["org", "update", "acme", "--second-factor", "required"]);
    ({ page } = scene);
  }, limitMs);
  afterAll(() => scene[Symbol.asyncDispose]());

  test(
    "without a required second factor, every page is the one that sets it up, by QR code",
    async () => {
      await page.goto(`${here}/console/acme/nodes/`);
      await signIn(page);
      await page.getByRole("heading", { name: "Set up a second factor" }).waitFor();
      await button("Set up an app").click();
      await page.getByLabel("Your password").fill(second);
      await button("Show the QR code").click();
      await page.getByRole("dialog").getByText("This is not your password.").waitFor();
      await page.getByLabel("Your password").fill(password);
      await button("Show the QR code").click();
      await page.getByRole("img", { name: "QR code" }).waitFor();
      const secret = await page.locator("dialog .cmd code").innerText();
      await page.getByLabel("The code that the app shows now").fill("000000");
      await button("Confirm").click();
      await page.getByText("The code does not belong to this secret.").waitFor();
      await page.getByLabel("The code that the app shows now").fill(codeOf(secret, 0));
      await button("Confirm").click();
      await page.getByText("The app is set up.").waitFor();
      recoveryCodes = await keepCodes();
      expect(recoveryCodes).toHaveLength(10);
      await page.getByRole("heading", { name: "Nodes" }).waitFor();

      await signOut(page);
      await signIn(page);
      await page.getByLabel("Code of your authenticator app").fill("000000");
      await button("Sign in").first().click();
      await page.getByRole("alert").first().waitFor();
      await page.getByLabel("Code of your authenticator app").fill(codeOf(secret, 1));
      await button("Sign in").first().click();
      await overview();
    },
    limitMs,
  );

  test(
    "a passkey is added, and signs in without a password",
    async () => {
      const devTools = await scene.context.newCDPSession(page);
      await devTools.send("WebAuthn.enable");
      await devTools.send("WebAuthn.addVirtualAuthenticator", virtualDevice);
      await openAccount(page);
      await button("Add a passkey").click();
      await page.getByLabel("Name").fill("laptop");
      await button("Add the passkey").click();
      await button("Remove laptop").waitFor();
      // No passkey is denied while they are read.
      const passkeys = `${here}/api/user/passkeys/`;
      const release = await holdRequests(page, passkeys);
      await page.reload();
      await page.getByRole("heading", { name: "Passkeys" }).waitFor();
      expect(await page.getByText("A passkey is a key").count()).toBe(0);
      release();
      await button("Remove laptop").waitFor();
      await page.unroute(passkeys);
      // The sentence of the control plane is for programs.
      const one = /passkeys\/\d+\/$/;
      await page.route(one, (route) =>
        route.fulfill({ status: 403, json: { code: "step_up_required", methods: ["totp"] } }),
      );
      await button("Remove laptop").click();
      await page.getByRole("dialog").getByRole("button", { name: "Remove laptop" }).click();
      await page.getByRole("dialog", { name: "Confirm that it is you" }).getByText("Cancel").click();
      await page.getByText("Not changed: the second factor was not confirmed.").waitFor();
      await button("Cancel").click();
      await page.unroute(one);
      await signOut(page);
      await button("With a passkey").click();
      await overview();
      // The line with the address leads there, as the menu does.
      await page.getByRole("link", { name: owner }).click();
      await button("Remove laptop").waitFor();
    },
    limitMs,
  );

  test(
    "other browsers are signed out from here; a recovery code signs in once",
    async () => {
      const { page: other, context: elsewhere } = await scene.open();
      await other.goto(`${here}/console/`);
      await signIn(other);
      await other.getByLabel("Code of your authenticator app").fill(recoveryCodes[0] ?? "");
      await button("Sign in", other).first().click();
      await overview(other);
      await page.reload();
      await page.getByText("9 of them are left").waitFor();
      await page.getByRole("row").getByRole("button", { name: "Sign out" }).first().waitFor();
      await page
        .getByRole("row")
        .filter({ hasText: "this browser" })
        .getByText("Chrome or Chromium on Linux")
        .waitFor();
      // Only rows in sight are in the page.
      await page.getByRole("heading", { name: "Sessions" }).scrollIntoViewIfNeeded();
      await page.getByRole("row").getByRole("button", { name: "Sign out" }).click();
      const asked = page.getByRole("dialog");
      await asked.getByRole("button", { name: "Sign out", exact: true }).click();
      await other.getByRole("heading", { name: "Your session has ended" }).waitFor();
      // All others at once: none is left.
      await signIn(other);
      await other.getByLabel("Code of your authenticator app").fill(recoveryCodes[2] ?? "");
      await button("Sign in", other).first().click();
      await overview(other);
      await page.reload();
      await button("Sign all others out").click();
      await asked.getByText("1 session must sign in again.").waitFor();
      await asked.getByRole("button", { name: "Sign all others out", exact: true }).click();
      await other.getByRole("heading", { name: "Your session has ended" }).waitFor();
      await button("Sign all others out").waitFor({ state: "detached" });
      await elsewhere.close();
    },
    limitMs,
  );

  test(
    "the account and its dialogs are accessible, light and dark",
    async () => {
      await page.goto(`${here}/console/-/account/`);
      await button("Remove laptop").waitFor();
      expect(await violationsInSchemes(page)).toEqual(noViolations);
      await button("Move to another phone").click();
      await button("Show the QR code").click();
      await page.getByRole("img", { name: "QR code" }).waitFor();
      expect(await violationsInSchemes(page)).toEqual(noViolations);
      await button("Cancel").click();
    },
    limitMs,
  );

  test(
    "a wrong present password leaves the session; a new one ends all sessions",
    async () => {
      const change = button("Change the password and sign out everywhere");
      await page.getByLabel("Current password").fill(second);
      await page.getByLabel("New password").fill(second);
      await change.click();
      await page.getByRole("alert").waitFor();
      expect(await page.getByText("Your session has ended").count()).toBe(0);
      await page.getByLabel("Current password").fill(password);
      await change.click();
      await page.getByRole("heading", { name: "Your session has ended" }).waitFor();
      const dialog = page.getByRole("dialog");
      // Not even for who opens the developer tools now.
      const typed = `[...document.querySelectorAll("main input[type=password]")].map((each) => each.value).join("")`;
      // The news of the end may be faster than the answer.
      await until(async () => (await page.evaluate<string>(typed)) === "");
      await dialog.locator(":focus[name=password]").waitFor();
      // A browser closes a dialog at the second Escape, whatever the page says.
      for (let at = 0; at < 3; at++) await page.keyboard.press("Escape");
      await dialog.locator(":focus[name=password]").waitFor();
      await dialog.getByLabel("Password").fill(second);
      await dialog.getByRole("button", { name: "Continue", exact: true }).click();
      await dialog.getByLabel("Code of your authenticator app").fill(recoveryCodes[1] ?? "");
      await dialog.getByRole("button", { name: "Sign in", exact: true }).click();
      await dialog.waitFor({ state: "detached" });
    },
    limitMs,
  );

  test("no page complained", () => {
    scene.expectQuiet();
  });
});
