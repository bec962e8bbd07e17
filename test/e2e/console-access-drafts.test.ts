// The console's page Access in a real browser: tests of the policy beside edits of rules, and users who edit at the same time.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Locator, Page } from "playwright-core";
import { openAccess, startAccess, useAccess } from "../support/console-access.ts";
import { addRule, overflowOf, owner, password, signIn, type Console } from "../support/console.ts";
import { appWith } from "../support/factors.ts";
import { until } from "../support/until.ts";

const limitMs = 120_000;

describe("drafts on the page Access", () => {
  let scene: Console;
  let page: Page;
  const { row, act, saving, unedited, add, discard } = useAccess(() => page);

  beforeAll(async () => {
    scene = await startAccess();
    ({ page } = scene);
    await addRule(scene, "--protocol tcp --ports 5432 --peer group:web --target group:db");
    await row("nodes in web may reach nodes in db on tcp 5432").waitFor();
  }, limitMs);
  afterAll(() => scene[Symbol.asyncDispose]());

  test(
    "tests are edited beside rules: one that fails now is kept with the rule that repairs it, and both are saved in one step",
    async () => {
      await row("nodes in db must not reach nodes in web on tcp 22").getByText("passes").waitFor();
      const dialog = page.getByRole("dialog");
      await page.locator("#tests").getByRole("button", { name: "From the terminal" }).click();
      await dialog.getByText("agent admin policy get acme").waitFor();
      await dialog.getByRole("button", { name: "Close" }).click();
      await page.getByRole("button", { name: "Add a test" }).click();
      // What must not be reached is meant with every protocol.
      expect(await dialog.locator("select").last().inputValue()).toBe("any");
      await dialog.getByLabel("From").fill("db");
      await dialog.getByLabel("Expect").selectOption("must reach");
      await dialog.getByLabel("To", { exact: true }).fill("web");
      await dialog.getByLabel("Ports").fill("5432");
      await dialog.getByRole("button", { name: "Add to the draft" }).click();
      const added = row("nodes in db must reach nodes in web on tcp 5432");
      await added.getByText("fails").waitFor();
      await page.getByText("Test 2: db-1 must reach web-1 on tcp 5432, but tcp 5432 is refused.").waitFor();
      await page.getByText("1 new test").waitFor();
      await page.getByRole("button", { name: "What changes" }).click();
      await dialog.getByText("+ Test: nodes in db must reach nodes in web on tcp 5432").waitFor();
      await dialog.getByRole("button", { name: "Close" }).click();
      expect(await saving().isDisabled()).toBe(true);
      await add("db", "web", "5432");
      await added.getByText("passes").waitFor();
      await page.getByText("All 2 tests pass.").waitFor();
      const isSaved = () => scene.admin(["policy", "get", "acme"]);
      expect(await isSaved()).not.toContain("accept");
      await page.getByRole("button", { name: "Save the rules and tests" }).click();
      await unedited();
      expect(await isSaved()).toContain("accept");
      await added.getByText("passes").waitFor();
      // Taken back, both go.
      await page.getByRole("button", { name: "Undo" }).click();
      await added.getByText("deleted").waitFor();
      await row("nodes in db may reach nodes in web on tcp 5432").getByText("deleted").waitFor();
      await act(added, "Put back");
      await added.getByText("fails").waitFor();
      await act(added, "Delete");
      await page.getByText("The test passes.").waitFor();
      await saving().click();
      await unedited();
      await added.waitFor({ state: "detached" });
      const first = row("nodes in db must not reach nodes in web on tcp 22");
      await act(first, "Edit");
      // What was chosen stays when the expectation changes; Escape does not drop it.
      await dialog.locator("select").last().selectOption("udp");
      await dialog.getByLabel("Expect").selectOption("must reach");
      expect(await dialog.locator("select").last().inputValue()).toBe("udp");
      await page.keyboard.press("Escape");
      await dialog.getByText("This is not saved.").waitFor();
      await dialog.getByLabel("Expect").selectOption("must not reach");
      await dialog.locator("select").last().selectOption("tcp");
      await dialog.getByLabel("Ports").fill("23");
      await dialog.getByRole("button", { name: "Change in the draft" }).click();
      await row("nodes in db must not reach nodes in web on tcp 23").getByText("passes").waitFor();
      await first.getByText("deleted").waitFor();
      await discard();
      await first.getByText("passes").waitFor();
    },
    limitMs,
  );

  test(
    "on a narrow screen nothing lies over the changed rule or the lines for the terminal",
    async () => {
      await page.setViewportSize({ width: 360, height: 740 });
      await add("web", "db", "6000");
      const changed = row("nodes in web may reach nodes in db on tcp 6000");
      await changed.getByText("new").waitFor();
      // What it changes makes the bar higher.
      await page.getByText("Not saved: 1 pair of nodes gains access, 0 lose it.").waitFor();
      await page.getByText("1 pair gains", { exact: true }).first().waitFor();
      const bar = page.getByRole("region", { name: "Draft" });
      const isClear = async (what: Locator) => {
        const [one, other] = [await what.boundingBox(), await bar.boundingBox()];
        return one !== null && other !== null && one.y >= 0 && one.y + one.height <= other.y + 1;
      };
      await until(() => isClear(changed), { what: "the new rule in sight" });
      const terminal = page.locator("#tests").getByRole("button", { name: "From the terminal" });
      await terminal.evaluate("(element) => element.scrollIntoView({ block: 'nearest' })");
      expect(await isClear(terminal)).toBe(true);
      expect((await bar.boundingBox())?.height).toBeLessThan(130);
      expect(await overflowOf(page)).toBeLessThanOrEqual(0);
      await discard();
      await page.setViewportSize({ width: 1280, height: 800 });
    },
    limitMs,
  );

  test(
    "rules that fail a test or have a fault cannot be saved, and the server's sentence is beside the rule",
    async () => {
      await add("db", "web", "any");
      const bar = page.getByRole("region", { name: "Draft" });
      await bar.getByRole("heading", { name: "The test fails" }).waitFor();
      // What keeps it from being saved stands beside Save, and its reason names the rule.
      await bar.getByRole("status").getByText("Save is off while the test fails").waitFor();
      await bar
        .getByText("db-1 must not reach web-1 on tcp 22, but tcp 22 is permitted by a new rule.")
        .waitFor();
      await bar.getByRole("heading", { name: "1 pair gains" }).waitFor();
      expect(await saving().isDisabled()).toBe(true);
      await act(row("nodes in db may reach"), "Edit");
      await page.getByRole("dialog").getByLabel("Ports").fill("70000");
      await page.getByRole("button", { name: "Change in the draft" }).click();
      await page.getByRole("dialog").getByRole("alert").getByText("Enter ports from 1 to 65535").waitFor();
      await page.getByRole("dialog").getByLabel("Ports").fill("70");
      await page.getByRole("dialog").getByLabel("From").fill("nowhere");
      await page.getByRole("dialog").getByText("There is no group nowhere:").waitFor();
      // The dialog does not close on it.
      await page.getByRole("button", { name: "Change in the draft" }).click();
      await page.getByRole("dialog").getByText("There is no group nowhere:").waitFor();
      await page.getByRole("dialog").getByLabel("From").fill("user:x");
      await page.getByRole("button", { name: "Change in the draft" }).click();
      await row("nodes of x may reach").getByText("Enter a member as user:EMAIL").waitFor();
      await page.getByRole("alert").getByText("New rule, nodes of x may reach").waitFor();
      expect(await saving().isDisabled()).toBe(true);
      await act(row("nodes of x may reach"), "Delete");
      await unedited();
    },
    limitMs,
  );

  test(
    "rules that another administrator saved appear beside the unsaved edits, and both are kept",
    async () => {
      await act(row("tcp 5432"), "Delete");
      await page.getByText("web-1 → db-1 loses tcp 5432").first().waitFor();
      await addRule(scene, "--protocol udp --ports 53 --target group:db");
      await page.getByRole("heading", { name: "Saved", exact: true }).waitFor();
      expect(await saving().isDisabled()).toBe(true);
      await page.getByText("operator saved rules since these edits began").waitFor();
      await page.getByText("+ all nodes may reach nodes in db on udp 53").waitFor();
      await page.getByText("− nodes in web may reach nodes in db on tcp 5432").waitFor();
      await page.getByRole("button", { name: "Add my changes to the saved rules" }).click();
      await page.getByText("web-1 → db-1 loses tcp 5432").first().waitFor();
      await saving().click();
      await unedited();
      const rules = await scene.admin(["rule", "list", "acme"]);
      expect([rules.includes("5432"), rules.includes("53")]).toEqual([false, true]);
    },
    limitMs,
  );

  test(
    "a plan that is answered late, of a policy that was changed since, does not replace the newer one",
    async () => {
      const { promise, resolve } = Promise.withResolvers<void>();
      await page.route(
        /policy\/plan\//,
        async (route) => {
          const headers = { ...(await route.request().allHeaders()), "sec-fetch-site": "same-origin" };
          const response = await route.fetch({ headers });
          expect(response.status()).toBe(200);
          await promise;
          await route.fulfill({ response });
        },
        { times: 1 },
      );
      const asked = page.waitForRequest(/policy\/plan\//);
      await add("web", "db", "6100");
      await asked;
      const tests = "tests:\n  - deny: {from: group:db, to: group:web, protocol: tcp, port: 22}\n";
      await scene.admin(
        ["policy", "apply", "acme", "-"],
        `${tests}  - deny: {from: group:db, to: group:web, protocol: tcp, port: 24}\n`,
      );
      await row("nodes in db must not reach nodes in web on tcp 24").waitFor();
      await until(() => saving().isEnabled(), { what: "the newer plan" });
      const late = page.waitForResponse(/policy\/plan\//);
      resolve();
      await (await late).finished();
      await until(() => saving().isEnabled(), { what: "Save, after the late answer" });
      await page.getByText("web-1 → db-1 gains tcp 6100").first().waitFor();
      await saving().click();
      await unedited();
      expect(await scene.admin(["rule", "list", "acme"])).toContain("6100");
      await scene.admin(["policy", "apply", "acme", "-"], tests);
      await row("nodes in db must not reach nodes in web on tcp 24").waitFor({ state: "detached" });
    },
    limitMs,
  );

  test(
    "an edit of a rule that another administrator changed is no addition: both are shown to choose from",
    async () => {
      const edited = row("all nodes may reach nodes in db on udp 53");
      await act(edited, "Edit");
      await page.getByRole("dialog").getByLabel("From").fill("web");
      await page.getByRole("button", { name: "Change in the draft" }).click();
      const { rules } = await scene.adminJson(["rule", "list", "acme"]);
      const { id } = (rules as { id: number; ports: string }[]).find(({ ports }) => ports === "53") ?? {
        id: 0,
      };
      // As a second tab of the owner does.
      await page.evaluate(`fetch("/api/org/acme/firewall_rules/${id}/", {
        method: "PATCH", headers: { "Content-Type": "application/json" }, body: '{"ports": "54"}',
      })`);
      const choice = page.getByRole("group", { name: `Rule ${id} was changed there and here.` });
      await choice.waitFor();
      await page.getByText("You, in another tab, saved rules since these edits began").waitFor();
      await page.getByText("+ all nodes may reach nodes in db on udp 54").waitFor();
      const bar = page.getByRole("region", { name: "Draft" });
      await bar.getByText("Save is off: rules were saved since these edits began").waitFor();
      expect(await bar.getByRole("heading").count()).toBe(0);
      const put = page.getByRole("button", { name: "Add my changes to the saved rules" });
      expect(await put.isDisabled()).toBe(true);
      await choice.getByLabel(/^Both: the saved one/).waitFor();
      await choice.getByLabel(/^Yours: nodes in web/).check();
      await put.click();
      await page.getByRole("heading", { name: "Saved", exact: true }).waitFor({ state: "detached" });
      await saving().click();
      await unedited();
      const saved = await scene.admin(["rule", "list", "acme"]);
      expect(saved.match(/\b53\b/g)).toHaveLength(1);
      // It is still the rule of this number, and its history begins where it was made.
      const merged = row("nodes in web may reach nodes in db on udp 53");
      await merged.locator("summary").click();
      await merged.getByRole("link", { name: `History of rule ${id}` }).click();
      await page.locator(".log > li").filter({ hasText: "rule.created" }).waitFor();
      await page.locator(".log > li").filter({ hasText: "policy.applied" }).waitFor();
      // An update by the API can be looked at, too, although its event tells only what differs.
      await page
        .locator(".log > li")
        .filter({ hasText: "rule.updated" })
        .getByRole("link", { name: "Undo" })
        .click();
      await page.getByText("Nothing can be taken back").waitFor();
      await row("nodes in web may reach nodes in db on udp 53").waitFor();
      expect(await edited.count()).toBe(0);
    },
    limitMs,
  );

  test(
    "what another user changes while the dialog of a rule is open is shown there before it is replaced",
    async () => {
      const dialog = page.getByRole("dialog");
      const edited = row("nodes in web may reach nodes in db on udp 53");
      await act(edited, "Edit");
      const { rules } = await scene.adminJson(["rule", "list", "acme"]);
      const { id } = (rules as { id: number; ports: string }[]).find(({ ports }) => ports === "53") ?? {
        id: 0,
      };
      await dialog.getByLabel("Description").fill("mine");
      await page.evaluate(`fetch("/api/org/acme/firewall_rules/${id}/", {
        method: "PATCH", headers: { "Content-Type": "application/json" }, body: '{"description": "theirs"}',
      })`);
      await dialog.getByRole("alert").getByText("Another user has changed this rule.").waitFor();
      await dialog.getByText("“theirs”").waitFor();
      await page.getByRole("button", { name: "Replace that in the draft" }).click();
      await dialog.waitFor({ state: "detached" });
      await edited.getByText("mine").waitFor();
      await discard();
      await edited.getByText("theirs").waitFor();
    },
    limitMs,
  );

  const gains = (ports: string) => page.getByText(`web-1 → db-1 gains tcp ${ports}`).first().waitFor();

  test(
    "a plan that had no answer, because the control plane was away, is asked for again",
    async () => {
      await scene.restart(async () => {
        await add("web", "db", "7100");
        await page
          .getByRole("region", { name: "Draft" })
          .getByText("The control plane does not answer.")
          .waitFor();
      });
      await gains("7100");
      await discard();
    },
    limitMs,
  );

  test(
    "what was saved while the control plane was away appears",
    async () => {
      await scene.restart(async () => {
        await addRule(scene, "--protocol tcp --ports 7200 --target group:db");
      });
      await row("all nodes may reach nodes in db on tcp 7200").waitFor();
    },
    limitMs,
  );

  test(
    "a plan that failed is asked for again on request, and edits outlive the end of the session",
    async () => {
      await page.route("**/policy/plan/", (route) => route.fulfill({ status: 502 }));
      await add("web", "db", "7300");
      const retry = page.getByRole("region", { name: "Draft" }).getByRole("button", { name: "Try again" });
      await retry.waitFor();
      await page.unroute("**/policy/plan/");
      await retry.click();
      await gains("7300");
      // By script: the form may be there before the click.
      const save = `document.querySelector(".draft .primary").click()`;
      await page.evaluate(`fetch("/api/session/", { method: "DELETE" }).then(() => ${save})`);
      await signIn(page);
      await until(() => saving().isEnabled(), { what: "Save after signing in again" });
      await saving().click();
      await unedited();
    },
    limitMs,
  );

  test(
    "a fresh second factor is asked for, and the request goes on",
    async () => {
      const { page: other, context } = await scene.open();
      await openAccess(scene, other, owner);
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
      await page.getByText("web-1 → db-1 gains tcp 6432").first().waitFor();
      await saving().click();
      const dialog = page.getByRole("dialog", { name: "Confirm that it is you" });
      await dialog.getByRole("button", { name: "Cancel" }).click();
      await page.getByRole("alert").getByText("Not changed").waitFor();
      await saving().click();
      await dialog.getByLabel("Code").fill("000000");
      await dialog.getByRole("button", { name: "Go on" }).click();
      await dialog.getByRole("alert").first().waitFor();
      await dialog.getByLabel("Code").fill(recovery);
      await dialog.getByRole("button", { name: "Go on" }).click();
      await unedited();
      expect(await scene.admin(["rule", "list", "acme"])).toContain("6432");
    },
    limitMs,
  );

  test(
    "a rule about a revoked node says so, and its deletion by a save is listed before it",
    async () => {
      await addRule(scene, "--protocol tcp --ports 8100 --peer node:web-1 --target group:db");
      const rule = row("web-1 may reach nodes in db on tcp 8100");
      await rule.waitFor();
      await scene.admin(["node", "revoke", "acme", "web-1", "--reason", "lost"]);
      const revoked = row("web-1 (revoked) may reach nodes in db on tcp 8100");
      await revoked.getByText("the next save deletes this rule").waitFor();
      // The rule is as it was saved.
      expect(await page.getByRole("status").filter({ hasText: "(revoked)" }).count()).toBe(0);
      await add("db", "db", "8200");
      await revoked.getByText("deleted", { exact: true }).waitFor();
      await page.getByText("1 new rule, 1 deleted").waitFor();
      const dialog = page.getByRole("dialog");
      await page.getByRole("button", { name: "What changes" }).click();
      await dialog.getByText(/− Rule \d+: web-1 \(revoked\) may reach nodes in db on tcp 8100/).waitFor();
      await dialog.getByRole("button", { name: "Close" }).click();
      await page.getByRole("button", { name: "From the terminal" }).first().click();
      await dialog
        .getByText(/^agent admin rule create acme .* && agent admin rule delete acme \d+$/)
        .waitFor();
      await dialog.getByRole("button", { name: "Close" }).click();
      // The rules are the same after the node is restored.
      await scene.admin(["node", "restore", "acme", "web-1"]);
      await rule.waitFor();
      await rule.getByText("deleted", { exact: true }).waitFor({ state: "detached" });
      await until(() => saving().isEnabled(), { what: "a draft that may be saved" });
      // Without the other edit, nothing is left to save.
      await act(row("nodes in db may reach nodes in db on tcp 8200"), "Delete");
      await unedited();
      await rule.waitFor();
    },
    limitMs,
  );

  test("no page complained", () => {
    scene.expectQuiet();
  });
});
