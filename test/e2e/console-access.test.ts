// The console's page Access in a real browser: rules are edited, judged before they are saved, and explained.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import {
  addMember,
  overflowOf,
  owner,
  password,
  signIn,
  startConsole,
  noViolations,
  violationsInSchemes,
  type Console,
} from "../support/console.ts";
import { appWith } from "../support/factors.ts";

const member = "member@example.org";
const limitMs = 60_000;
const hostile = `<img src=x onerror="document.title='ran'"> \u202egnp.exe ${"a".repeat(150)}`;
const policy = `tests:
  - deny: {from: group:db, to: group:web, protocol: tcp, port: 22}
`;

describe("the page Access", () => {
  let scene: Console;
  let page: Page;

  const open = async (on: Page, email: string) => {
    await on.goto(`${scene.url()}/console/acme/access/`);
    await signIn(on, email);
    await on.getByRole("heading", { name: "Access", level: 1 }).waitFor();
  };
  const register = async (name: string, group: string) => {
    const { token } = await scene.adminJson(["token", "create", "acme", "--group", group]);
    await scene.register(name, String(token));
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
  const discard = async () => {
    await page.getByRole("button", { name: "Discard the changes" }).click();
    await page.getByRole("button", { name: "Discard them" }).click();
    await saving().waitFor({ state: "detached" });
  };
  const takenBack = async () => {
    await page.getByText("These edits take the change back.").waitFor();
    await page.getByText("web-1 → db-1 loses tcp/5432").first().waitFor();
    await row("machines in web may reach machines in db on tcp 5432").getByText("deleted").waitFor();
    await discard();
    expect(await page.getByText("These edits take the change back.").count()).toBe(0);
  };
  const saving = () => page.getByRole("button", { name: "Save the rules" });

  beforeAll(async () => {
    scene = await startConsole();
    await addMember(scene, member);
    await register("web-1", "web");
    await register("db-1", "db");
    await scene.admin(["policy", "apply", "acme", "-"], policy);
    ({ page } = scene);
    await open(page, owner);
  }, limitMs);
  afterAll(() => scene[Symbol.asyncDispose]());

  test(
    "a rule is typed as a sentence; the page tells which machines gain access before it is saved",
    async () => {
      await row("all machines may send to all machines on anything").waitFor();
      await add("web", "db", "5432", hostile);
      await page.getByText("web-1 → db-1 gains tcp/5432").first().waitFor();
      await page.getByText("The saved test passes.").waitFor();
      await page.getByText("With your changes, 1 cell is different").waitFor();
      expect(await page.locator(".matrix .marked").allInnerTexts()).toEqual([
        expect.stringMatching(/^icmp, \+\stcp\s5432$/),
      ]);
      await page.getByRole("link", { name: "Machines" }).first().click();
      await page.getByRole("heading", { name: "Machines" }).waitFor();
      await page.goBack();
      await row("machines in web may reach machines in db on tcp 5432").getByText("new").waitFor();
      await page.getByRole("link", { name: "Access (draft)" }).waitFor();
      const question = page.waitForEvent("dialog");
      // The browser asks; staying keeps the edits.
      void page.evaluate("location.reload()");
      const leaving = await question;
      expect(leaving.type()).toBe("beforeunload");
      await leaving.dismiss();
      await saving().click();
      await page.getByRole("status").getByText("Saved.").waitFor();
      // What was done can still be copied, whole.
      await page.getByRole("status").getByText("From the terminal").click();
      await page.getByText(/^agent admin rule create acme .*5432/).waitFor();
      await page.getByText(/^POST \/api\/org\/acme\/policy\/apply\/ \{"policy":"\{.*5432/).waitFor();
      expect(await saving().count()).toBe(0);
      await page.getByText("Who gained and lost access").click();
      await page.getByText("web-1 → db-1 gains tcp/5432").first().waitFor();
      // It can be taken back: the edits that do so are looked at first.
      await page.getByRole("button", { name: "Undo" }).click();
      await takenBack();
      // The new list was there before the draft went: the rule has its number.
      await row("machines in web may reach machines in db on tcp 5432")
        .getByRole("link", { name: /^History of rule \d+$/ })
        .waitFor();
      expect(await page.getByText("(draft)").count()).toBe(0);
      expect(await scene.admin(["rule", "list", "acme"])).toContain("5432");
      await row("machines in web may reach machines in db on tcp 5432").getByRole("link").click();
      const applied = page.locator(".events li").filter({ hasText: "policy.applied" });
      await applied.getByRole("link", { name: "Undo" }).click();
      await takenBack();
      expect(page.url()).not.toContain("undo");
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
      await dialog.getByRole("button", { name: "Create the group cron" }).waitFor();
      // The next field is the next one, although the group does not exist.
      await dialog.getByLabel("From").press("Tab");
      expect(await page.evaluate("document.activeElement.tagName")).toBe("SELECT");
      await dialog.getByRole("button", { name: "Create the group cron" }).click();
      await dialog.getByRole("button", { name: "Create the group cron" }).waitFor({ state: "detached" });
      await dialog.getByRole("button", { name: "Cancel" }).click();
      await page.getByRole("columnheader", { name: "cron" }).waitFor();
      // Rules name groups: the empty list says where machines are found.
      await page.getByLabel("Search rules").fill("web-1");
      await page.getByRole("link", { name: "Machines with these words" }).waitFor();
      await page.getByLabel("Search rules").fill("");
    },
    limitMs,
  );

  test(
    "the matrix and the explainer name the rule that decides, and what the network does",
    async () => {
      await page.getByRole("button", { name: "icmp, tcp 5432" }).click();
      await page
        .getByRole("status")
        .getByText(/web reaches db on/)
        .waitFor();
      await page.getByRole("button", { name: "May one machine reach another?" }).click();
      // A beginning and Enter are enough, once the machines are there; without a port, the answer is everything.
      await page.locator("#From-machine option").first().waitFor({ state: "attached" });
      await page.getByLabel("From machine").fill("web");
      await page.getByLabel("To machine").fill("db");
      await page.getByLabel("To machine").press("Enter");
      await page.getByText("All that the rules allow from web-1 to db-1: icmp, tcp/5432.").waitFor();
      await page.getByText("web-1: has applied none").waitFor();
      await page.getByText("No path between them is known").waitFor();
      await page.getByLabel("Port", { exact: true }).fill("5432");
      await page.getByText(/Rule \d+ decides:/).waitFor();
      await page.getByRole("button", { name: "Show it" }).click();
      await page.locator("tr.marked").waitFor();
      await page.reload();
      await page.getByText(/Rule \d+ decides:/).waitFor();
      await page.getByLabel("Port", { exact: true }).fill("5433");
      await page.getByText("No inbound rule of db-1 permits tcp/5433 from web-1.").waitFor();
      await page.getByText("No: the rules do not allow it.").waitFor();
    },
    limitMs,
  );

  test(
    "tests of the policy are listed with their outcome, added and deleted; one that fails is refused",
    async () => {
      await row("machines in db must not reach machines in web on tcp 22").getByText("passes").waitFor();
      const dialog = page.getByRole("dialog");
      await page.getByRole("button", { name: "Add a test" }).click();
      // What must not be reached is meant with every protocol.
      expect(await dialog.locator("select").last().inputValue()).toBe("any");
      await dialog.getByLabel("From").fill("db");
      await dialog.getByLabel("Expect").selectOption("must reach");
      await dialog.getByLabel("To", { exact: true }).fill("web");
      await dialog.getByLabel("Ports").fill("5432");
      await dialog.getByRole("button", { name: "Save the test" }).click();
      await dialog.getByRole("alert").waitFor();
      await dialog.getByLabel("From").fill("web");
      await dialog.getByLabel("To", { exact: true }).fill("db");
      await dialog.getByRole("button", { name: "Save the test" }).click();
      const added = row("machines in web must reach machines in db on tcp 5432");
      await added.getByText("passes").waitFor();
      await added.getByRole("button", { name: /^Delete/ }).click();
      await dialog.getByRole("button", { name: "Delete the test" }).click();
      await added.waitFor({ state: "detached" });
      await row("machines in db must not reach").waitFor();
    },
    limitMs,
  );

  test(
    "rules that fail a test or have a fault cannot be saved, and the server's sentence is beside the rule",
    async () => {
      await add("db", "web", "any");
      await page.getByText(/0 saved tests pass, 1 fails/).waitFor();
      // What keeps it from being saved stands first, and names the rule.
      const preview = page.locator(".preview");
      await preview
        .getByText("db-1 must not reach web-1 on tcp/22, but tcp/22 is permitted by a new rule.")
        .waitFor();
      expect(await preview.innerText()).toMatch(/1 fails[^]*1 pair of machines changes/);
      expect(await saving().isDisabled()).toBe(true);
      await row("machines in db may reach").getByRole("button", { name: /^Edit/ }).click();
      await page.getByRole("dialog").getByLabel("Ports").fill("70000");
      await page.getByRole("button", { name: "Change in the draft" }).click();
      await page.getByRole("dialog").getByRole("alert").getByText("Enter ports from 1 to 65535").waitFor();
      await page.getByRole("dialog").getByLabel("Ports").fill("70");
      await page.getByRole("dialog").getByLabel("From").fill("nowhere");
      await page.getByRole("dialog").getByText("There is no group nowhere.").waitFor();
      await page.getByRole("dialog").getByLabel("From").fill("user:x");
      await page.getByRole("button", { name: "Change in the draft" }).click();
      await row("machines of x may reach").getByText("Enter a member as user:EMAIL").waitFor();
      await page.getByRole("alert").getByText("New rule, machines of x may reach").waitFor();
      expect(await saving().isDisabled()).toBe(true);
      await row("machines of x may reach")
        .getByRole("button", { name: /^Delete/ })
        .click();
      await saving().waitFor({ state: "detached" });
    },
    limitMs,
  );

  test(
    "rules that another administrator saved appear beside the unsaved edits, and both are kept",
    async () => {
      await row("tcp 5432")
        .getByRole("button", { name: /^Delete/ })
        .click();
      await page.getByText("web-1 → db-1 loses tcp/5432").first().waitFor();
      await scene.admin([
        "rule",
        "create",
        "acme",
        "--protocol",
        "udp",
        "--ports",
        "53",
        "--target",
        "group:db",
      ]);
      await page.getByText("Saved by others").waitFor();
      expect(await saving().isDisabled()).toBe(true);
      await page.getByText("operator saved rules since you began").waitFor();
      await page.getByText("+ all machines may reach machines in db on udp 53").waitFor();
      await page.getByText("− machines in web may reach machines in db on tcp 5432").waitFor();
      await page.getByRole("button", { name: "Put my changes on theirs" }).click();
      await page.getByText("web-1 → db-1 loses tcp/5432").first().waitFor();
      await saving().click();
      await saving().waitFor({ state: "detached" });
      const rules = await scene.admin(["rule", "list", "acme"]);
      expect([rules.includes("5432"), rules.includes("53")]).toEqual([false, true]);
    },
    limitMs,
  );

  test(
    "an edit of a rule that another administrator changed is no addition: both are shown to choose from",
    async () => {
      const edited = row("all machines may reach machines in db on udp 53");
      await edited.getByRole("button", { name: /^Edit/ }).click();
      await page.getByRole("dialog").getByLabel("From").fill("web");
      await page.getByRole("button", { name: "Change in the draft" }).click();
      const { rules } = await scene.adminJson(["rule", "list", "acme"]);
      const { id } = (rules as { id: number; ports: string }[]).find(({ ports }) => ports === "53") ?? {
        id: 0,
      };
      // As a second tab of the owner does.
      await page.evaluate(`fetch("/api/org/acme/firewall_rules/${id}/", {
        method: "PATCH", headers: { "Content-Type": "application/json" }, body: '{"description": "names"}',
      })`);
      const choice = page.getByRole("group", { name: `Both of you changed rule ${id}.` });
      await choice.waitFor();
      await page.getByText("owner@example.org saved rules since you began").waitFor();
      await page.getByText("description + names").first().waitFor();
      const put = page.getByRole("button", { name: "Put my changes on theirs" });
      expect(await put.isDisabled()).toBe(true);
      await choice.getByLabel(/^Yours: machines in web/).check();
      await put.click();
      await page.getByText("Saved by others").waitFor({ state: "detached" });
      await saving().click();
      await saving().waitFor({ state: "detached" });
      const saved = await scene.admin(["rule", "list", "acme"]);
      expect(saved.match(/\b53\b/g)).toHaveLength(1);
      await row("machines in web may reach machines in db on udp 53").waitFor();
      expect(await edited.count()).toBe(0);
    },
    limitMs,
  );

  test(
    "a fresh second factor is asked for, and the request goes on",
    async () => {
      const { page: other, context } = await scene.open();
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
      await discard();
      await add("web", "db", "6432");
      await page.getByText("web-1 → db-1 gains tcp/6432").first().waitFor();
      await saving().click();
      await dialog.getByLabel("Code").fill("000000");
      await dialog.getByRole("button", { name: "Go on" }).click();
      await dialog.getByRole("alert").first().waitFor();
      await dialog.getByLabel("Code").fill(recovery);
      await dialog.getByRole("button", { name: "Go on" }).click();
      await saving().waitFor({ state: "detached" });
      expect(await scene.admin(["rule", "list", "acme"])).toContain("6432");
    },
    limitMs,
  );

  test(
    "networks behind a machine are named with it; rules that others save are not taken for one's own",
    async () => {
      await scene.admin([
        "rule",
        "create",
        "acme",
        "--ports",
        "8443",
        "--protocol",
        "tcp",
        "--target",
        "node:web-1",
      ]);
      await page.getByText("operator changed rules while you were here").waitFor();
      await scene.admin(["node", "update", "acme", "web-1", "--add-subnet", "192.168.30.0/24"]);
      await row("tcp 8443").getByText("and the networks behind web-1: 192.168.30.0/24").waitFor();
      await page.getByRole("button", { name: "Add a rule" }).click();
      const dialog = page.getByRole("dialog");
      await dialog.getByLabel("From").fill("db");
      await dialog.getByLabel("To", { exact: true }).fill("192.168.30.0/24");
      await dialog.getByText("192.168.30.0/24 is behind web-1: name web-1.").waitFor();
      await dialog.getByRole("button", { name: "Add to the draft" }).click();
      // Half a name shows the machine before it offers a new group.
      await dialog.getByLabel("To", { exact: true }).fill("web-");
      await dialog.getByText("Machines: web-1.").waitFor();
      await dialog.getByLabel("To", { exact: true }).fill("web-1");
      await dialog.getByLabel("Ports").fill("8444");
      await dialog.getByText("and the networks behind (web-1: 192.168.30.0/24)").waitFor();
      await dialog.getByRole("button", { name: "Add to the draft" }).click();
      await page.locator(".preview").getByText("web-1: 192.168.30.0/24").waitFor();
      await discard();
    },
    limitMs,
  );

  test(
    "a member only reads, and so does the owner where only the file changes the policy",
    async () => {
      const { page: other, context } = await scene.open({ viewport: { width: 360, height: 740 } });
      await open(other, member);
      await other.getByText("Administrators of the organization change rules").waitFor();
      expect(await other.getByRole("button", { name: "Add a rule" }).count()).toBe(0);
      expect(await overflowOf(other)).toBeLessThanOrEqual(0);
      await context.close();
      await scene.admin(["policy", "update", "acme", "--by-file", "on"]);
      await page.reload();
      await page.getByText("changed by their policy file only").waitFor();
      expect(await page.getByRole("button", { name: "Add a rule" }).count()).toBe(0);
      await scene.admin(["policy", "update", "acme", "--by-file", "off"]);
    },
    limitMs,
  );

  test(
    "the page and its dialog are accessible, light and dark",
    async () => {
      await page.reload();
      await row("udp 53")
        .getByRole("button", { name: /^Delete/ })
        .click();
      await page.getByText("loses udp/53").first().waitFor();
      expect(await violationsInSchemes(page)).toEqual(noViolations);
      await page.getByRole("button", { name: "Add a rule" }).click();
      await page.getByRole("dialog").waitFor();
      expect(await violationsInSchemes(page)).toEqual(noViolations);
    },
    limitMs,
  );

  test("no page complained", () => {
    scene.expectQuiet();
  });
});
