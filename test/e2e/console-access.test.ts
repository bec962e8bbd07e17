// The console's page Access in a real browser: rules are edited, judged before they are saved, and explained.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { openAccess, startAccess, useAccess } from "../support/console-access.ts";
import {
  addMember,
  addRule,
  overflowOf,
  noViolations,
  violationsInSchemes,
  type Console,
  holdRequests,
} from "../support/console.ts";
import { until } from "../support/until.ts";

const member = "member@example.org";
const limitMs = 120_000;
const hostile = `<img src=x onerror="document.title='ran'"> \u202egnp.exe ${"a".repeat(150)}`;

describe("the page Access", () => {
  let scene: Console;
  let page: Page;
  const { row, act, saving, add, discard } = useAccess(() => page);
  const takenBack = async () => {
    await page.getByText("These edits take the change back.").waitFor();
    await page.getByText("web-1 → db-1 loses tcp 5432").first().waitFor();
    const deleted = row("nodes in web may reach nodes in db on tcp 5432");
    await deleted.getByText("deleted").waitFor();
    const isInSight = async () => {
      const [box, view] = [await deleted.boundingBox(), page.viewportSize()];
      return box !== null && view !== null && box.y >= 0 && box.y + box.height <= view.height;
    };
    await until(isInSight, { what: "the edit in sight" });
    await discard();
    expect(await page.getByText("These edits take the change back.").count()).toBe(0);
  };

  beforeAll(async () => {
    scene = await startAccess();
    ({ page } = scene);
    await addMember(scene, member);
  }, limitMs);
  afterAll(() => scene[Symbol.asyncDispose]());

  test(
    "a rule is typed as a sentence; the page tells which nodes gain access before it is saved",
    async () => {
      await row("all nodes may send to all nodes on anything").waitFor();
      const release = await holdRequests(page, "**/groups/?page_size=1000");
      await page.reload();
      await page.getByRole("heading", { name: "Who reaches what" }).waitFor();
      expect(await page.getByText("There is no group yet.").count()).toBe(0);
      release();
      await page.getByRole("columnheader", { name: "rest" }).waitFor();
      await add("web", "db", "5432", hostile);
      await page.getByText("web-1 → db-1 gains tcp 5432").first().waitFor();
      await page.getByText("The test passes.").waitFor();
      await page.getByText("Not saved: 1 pair of nodes gains access, 0 lose it.").waitFor();
      // The only class is the only pair.
      expect(await page.getByText("Each pair").count()).toBe(0);
      await page.getByText("With your changes, 1 cell is different").waitFor();
      await page.getByRole("heading", { name: "Who reaches what, after saving" }).waitFor();
      const cell = page.getByRole("button", { name: "web to db: icmp, + tcp 5432" });
      expect(await cell.innerText()).toBe("+5432");
      await page.getByRole("link", { name: "Nodes" }).first().click();
      await page.getByRole("heading", { name: "Nodes" }).waitFor();
      await page.goBack();
      await row("nodes in web may reach nodes in db on tcp 5432").getByText("new").waitFor();
      await page.getByRole("link", { name: /^Access ?draft/ }).waitFor();
      const question = page.waitForEvent("dialog");
      // The browser asks; staying keeps the edits.
      void page.evaluate("location.reload()");
      const leaving = await question;
      expect(leaving.type()).toBe("beforeunload");
      await leaving.dismiss();
      await saving().click();
      await page.getByRole("status").getByText("Saved.").waitFor();
      // What was done can still be copied, whole.
      const done = page.getByRole("region", { name: "Saved" });
      await done.getByRole("button", { name: "From the terminal" }).click();
      await page.getByText(/^agent admin rule create acme .*5432/).waitFor();
      await page.getByText(/^POST \/api\/org\/acme\/policy\/apply\/ '\{"policy":"\{.*5432/).waitFor();
      await page.getByRole("button", { name: "Close" }).click();
      expect(await saving().count()).toBe(0);
      await done.getByRole("button", { name: "Who gained and lost access" }).click();
      await page.getByRole("dialog").getByText("web-1 → db-1 gains tcp 5432").waitFor();
      await page.getByRole("button", { name: "Close" }).click();
      // It can be taken back: the edits that do so are looked at first.
      await page.getByRole("button", { name: "Undo" }).click();
      await takenBack();
      // The new list was there before the draft went: the rule has its number.
      const saved = row("nodes in web may reach nodes in db on tcp 5432");
      await saved.locator("summary").click();
      await saved.getByRole("link", { name: /^History of rule \d+$/ }).waitFor();
      expect(await page.getByText("draft", { exact: true }).count()).toBe(0);
      expect(await scene.admin(["rule", "list", "acme"])).toContain("5432");
      await saved.getByRole("link").click();
      const applied = page.locator(".log > li").filter({ hasText: "policy.applied" });
      await applied.getByText(/^\d+: nodes in web may reach nodes in db on tcp 5432/).waitFor();
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
      // What was typed is not dropped without a question.
      await page.keyboard.press("Escape");
      const question = dialog.getByText("This is not saved. Press Escape again, or Cancel, to discard it.");
      await question.waitFor();
      await dialog.getByRole("button", { name: "Cancel" }).click();
      // Neither is it by the way back, which stays on this page.
      await page.getByRole("link", { name: "Nodes" }).first().click();
      await page.getByRole("link", { name: "Access" }).first().click();
      await page.getByRole("button", { name: "Add a rule" }).click();
      await dialog.getByLabel("From").fill("web");
      await page.goBack();
      await question.waitFor();
      expect(await dialog.getByLabel("From").inputValue()).toBe("web");
      // Nor when the tab leaves the console.
      const leaving = page.waitForEvent("dialog");
      void page.evaluate("location.reload()");
      await (await leaving).dismiss();
      expect(await dialog.getByLabel("From").inputValue()).toBe("web");
      // A network behind nodes can be what a rule opens.
      await dialog.getByLabel("To", { exact: true }).fill("192.168.30.0/24");
      await dialog.getByRole("status").getByText("192.168.30.0/24").waitFor();
      await dialog.getByLabel("To", { exact: true }).fill("db");
      // A text that is too long is not cut without a word.
      await dialog.getByLabel("Description").fill("x".repeat(256));
      await dialog.getByRole("button", { name: "Add to the draft" }).click();
      await dialog.getByText("Enter at most 255 characters.").waitFor();
      await dialog.getByRole("button", { name: "Cancel" }).click();
      await page.goBack();
      await page.getByRole("heading", { name: "Nodes", level: 1 }).waitFor();
      await page.goForward();
      await page.getByRole("columnheader", { name: "cron" }).waitFor();
      // Rules name groups: the empty list says where nodes are found.
      await page.getByLabel("Search rules").fill("web-1");
      await page.getByRole("link", { name: "Nodes with these words" }).waitFor();
      await page.getByLabel("Search rules").fill("");
    },
    limitMs,
  );

  test(
    "the matrix and the explainer name the rule that decides, and what the network does",
    async () => {
      await page.getByRole("button", { name: "web to db: icmp, tcp 5432" }).click();
      const reasons = page.getByRole("status").filter({ hasText: "web reaches db on icmp, tcp 5432, by" });
      await reasons.getByText(/^Rule \d+: nodes in web may reach nodes in db on tcp 5432/).waitFor();
      await reasons.getByText("1 × 1 nodes.").waitFor();
      // A beginning and Enter are enough, once the nodes are there; without a port, the answer is everything.
      await page.locator("#From-node option").first().waitFor({ state: "attached" });
      await page.getByLabel("From node").fill("web");
      await page.getByText("web is a group: the matrix of this page").waitFor();
      await page.getByLabel("From node").fill("we");
      await page.getByText("There is no node we. Nodes with this in their names: web-1.").waitFor();
      await page.getByLabel("To node").fill("db");
      await page.getByRole("button", { name: "Ask" }).click();
      await page.getByText("All that the rules allow from web-1 to db-1: icmp, tcp 5432.").waitFor();
      await page.getByText("web-1: has applied none").waitFor();
      await page.getByText("No path between them was reported.").waitFor();
      await page.getByText("Not now: the rules allow icmp, tcp 5432, but web-1 and db-1 are away.").waitFor();
      const traffic = page.getByLabel("Protocol and port");
      await traffic.fill("udp");
      await page.getByText("No: the rules do not allow udp.").waitFor();
      await traffic.fill("anything");
      await page.getByText("agent doctor", { exact: true }).waitFor();
      // A port alone is one of tcp, and the address has both.
      await traffic.fill("5432");
      await page.getByText("Both rules are needed:").waitFor();
      const explainer = page.locator("#explainer");
      await explainer.getByText(/^Rule \d+: all nodes may send to all nodes/).waitFor();
      await explainer
        .getByRole("button", { name: /^Show rule/ })
        .last()
        .click();
      await page.locator("li.marked").waitFor();
      await page.reload();
      expect(await traffic.inputValue()).toBe("tcp 5432");
      await page.getByText("Both rules are needed:").waitFor();
      // No question has the answer to another one.
      const release = await holdRequests(page, "**/firewall_rules/test/");
      await traffic.fill("tcp 5433");
      await page.getByText("Both rules are needed:").waitFor({ state: "detached" });
      release();
      await page.getByText("No inbound rule of db-1 permits tcp 5433 from web-1.").waitFor();
      await page.getByText("No: the rules do not allow it.").waitFor();
      for (const bad of ["99999", "tcp http"]) {
        await traffic.fill(bad);
        await page.getByText("Enter a port from 1 to 65535.").waitFor();
        expect(await traffic.inputValue()).toBe(bad);
      }
      await page.getByLabel("From node").fill("laptop");
      await page.getByText("There is no node laptop.").waitFor();
      // While the nodes are read, nothing is said of what may be among the others.
      const releaseNodes = await holdRequests(page, "**/nodes/?page_size=1000&page=1");
      await page.reload();
      await page.getByLabel("From node").waitFor();
      expect(await page.getByText("There is no node laptop.").count()).toBe(0);
      // Nor is it in a file.
      expect(await page.getByRole("button", { name: "Export CSV" }).isDisabled()).toBe(true);
      releaseNodes();
      await page.getByText("There is no node laptop.").waitFor();
      // A link may hold anything; what it says is never part of a line for the terminal.
      const forged = "?from=web-1&to=db-1&port=22&protocol=$(reboot)";
      await page.goto(`${scene.url()}/console/acme/access/${forged}`);
      await explainer.getByRole("button", { name: "From the terminal" }).click();
      await page.getByText("agent admin policy test acme web-1 db-1 tcp/22", { exact: true }).waitFor();
      await page.getByRole("button", { name: "Close" }).click();
    },
    limitMs,
  );

  test(
    "networks behind a node are named with it; rules that others save are not taken for one's own",
    async () => {
      await addRule(scene, "--ports 8443 --protocol tcp --target node:web-1");
      await page.getByText("operator saved rules while this page was open").waitFor();
      await scene.admin(["node", "update", "acme", "web-1", "--add-subnet", "192.168.30.0/24"]);
      const opened = row("tcp 8443");
      await opened.getByText("and the networks behind web-1: 192.168.30.0/24").waitFor();
      // All that a row says is found, and is in the file.
      const others = row("nodes in web may reach nodes in db on tcp 5432");
      await page.getByLabel("Search rules").fill("192.168.30.0/24");
      await others.waitFor({ state: "detached" });
      expect(await opened.count()).toBe(1);
      const download = page.waitForEvent("download");
      await page.getByRole("button", { name: "Export CSV" }).click();
      const file = await Bun.file(await (await download).path()).text();
      expect(file).toContain('"","web-1: 192.168.30.0/24"');
      await page.getByLabel("Search rules").fill("");
      await page.getByLabel("To node").fill("192.168.30.7");
      await page.getByText("192.168.30.7 is behind web-1, whose rules decide: name web-1.").waitFor();
      // Of a rule whose description alone was edited, both descriptions are shown.
      await act(opened, "Edit");
      await page.getByRole("dialog").getByLabel("Description").fill("printers");
      await page.getByRole("button", { name: "Change in the draft" }).click();
      await opened.getByText("+ printers").waitFor();
      expect(await opened.locator("del").count()).toBe(0);
      await saving().click();
      await page.getByRole("status").getByText("Saved.").waitFor();
      await page.getByText("No node, and no network behind one, gains or loses access.").waitFor();
      expect(await page.getByText("Who gained and lost access").count()).toBe(0);
      await page.getByRole("button", { name: "Add a rule" }).click();
      const dialog = page.getByRole("dialog");
      await dialog.getByLabel("From").fill("db");
      await dialog.getByLabel("To", { exact: true }).fill("192.168.30.0/24");
      await dialog.getByLabel("Ports").fill("9100");
      await dialog.getByRole("button", { name: "Add to the draft" }).click();
      // The control plane takes it: a rule can open one network alone.
      await row("nodes in db may reach 192.168.30.0/24").waitFor();
      await until(() => saving().isEnabled(), { what: "the plan of the draft" });
      await discard();
      await page.getByRole("button", { name: "Add a rule" }).click();
      await dialog.getByLabel("From").fill("db");
      // Half a name shows the node before it offers a new group.
      await dialog.getByLabel("To", { exact: true }).fill("web-");
      await dialog.getByText("Nodes: web-1.").waitFor();
      await dialog.getByLabel("To", { exact: true }).fill("web-1");
      await dialog.getByLabel("Ports").fill("8444");
      await dialog.getByText("and the networks behind (web-1: 192.168.30.0/24)").waitFor();
      await dialog.getByRole("button", { name: "Add to the draft" }).click();
      await page
        .getByRole("region", { name: "Draft" })
        .getByText("The new rules also open the networks behind web-1: 192.168.30.0/24.")
        .waitFor();
      await discard();
    },
    limitMs,
  );

  test(
    "a member only reads, and so does the owner where only the file changes the policy",
    async () => {
      const { page: other, context } = await scene.open({ viewport: { width: 360, height: 740 } });
      await openAccess(scene, other, member);
      await other.getByText("Administrators of the organization change rules").waitFor();
      expect(await other.getByRole("button", { name: "Add a rule" }).count()).toBe(0);
      expect(await overflowOf(other)).toBeLessThanOrEqual(0);
      // On a phone, what lies below the rules is led to by a menu.
      await other.setViewportSize({ width: 320, height: 640 });
      await other.getByLabel("More on this page").click();
      await other.getByRole("button", { name: "May one node reach another?" }).click();
      const focused = () => other.evaluate("document.activeElement.ariaLabel");
      await until(async () => (await focused()) === "From node", { what: "the focus" });
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
      await act(row("tcp 5432"), "Delete");
      await page.getByText("loses tcp 5432").first().waitFor();
      // With all that a cell, a menu and the explainer open.
      await page.getByRole("button", { name: /^web to db/ }).click();
      await row("tcp 5432").locator("summary").click();
      await page.getByLabel("From node").fill("web-1");
      await page.getByLabel("To node").fill("db-1");
      await page.getByText(/^All that the rules allow/).waitFor();
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
