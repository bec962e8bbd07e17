// How machines stand, in the console: live on their pages, filtered and with their paths in the list, changed,
// approved and revoked many at once, and counted where they need a person.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Database } from "bun:sqlite";
import { join } from "node:path";
import type { Page } from "playwright-core";
import * as v from "valibot";
import { CheckinAnswer } from "../../src/protocol/checkin.ts";
import { makeKeys } from "../support/nodes.ts";
import {
  addRule,
  type Console,
  cutListsIn,
  holdRequests,
  openAccount,
  overflowOf,
  signIn,
  speakingMachine,
  startConsole,
  untilLive,
  violationsIn,
} from "../support/console.ts";
import { until } from "../support/until.ts";

const limitMs = 120_000;

describe("how machines stand in the console", () => {
  let scene: Console;
  let page: Page;
  let hub: Awaited<ReturnType<typeof speakingMachine>>;
  let web: Awaited<ReturnType<typeof speakingMachine>>;

  const button = (name: string) => page.getByRole("button", { name, exact: true });
  const row = (name: string) => page.getByRole("row").filter({ hasText: name });
  const open = async (path: string) => {
    await page.goto(`${scene.url()}/console/acme/${path}`);
    await page.getByRole("heading", { level: 1 }).waitFor();
  };

  beforeAll(async () => {
    scene = await startConsole();
    ({ page } = scene);
    hub = await speakingMachine(scene, "hub", ["infra"]);
    web = await speakingMachine(scene, "web", ["web"]);
    await page.goto(`${scene.url()}/console/acme/`);
    await signIn(page);
    await page.getByRole("heading", { name: "Overview" }).waitFor();
  }, limitMs);
  afterAll(() => scene[Symbol.asyncDispose]());

  test(
    "a machine's page follows its check-ins and its paths",
    async () => {
      const live = await scene.context.newPage();
      // Without the reading of every 20 s, only the stream of events brings news.
      const content = `const every = setInterval;
        setInterval = (work, ms) => every(work, ms < 20_000 ? ms : 2 ** 31 - 1);`;
      await live.addInitScript({ content });
      await live.goto(`${scene.url()}/console/acme/nodes/${web.id}/`);
      await live.getByText("had reported none before").waitFor();
      await untilLive(live);
      await web.report([
        { peer: hub.address, path: "direct", probe: "answers", rtt_ms: 12.5 },
        { peer: "10.77.9.9", path: "none", probe: "broken" },
      ]);
      // It is online, and stays in this state: one of its peers does not answer.
      await live.getByText("broken path").first().waitFor();
      await live.getByText("broken path").waitFor();
      // What is wrong comes first.
      await live.locator("tbody tr").first().getByText("broken").waitFor();
      const path = live.getByRole("row").filter({ hasText: "hub" });
      await path.getByText("12.5 ms").waitFor();
      await path.getByRole("link", { name: "hub" }).click();
      await live.getByRole("heading", { level: 1, name: "hub" }).waitFor();
      await live.close();
    },
    limitMs,
  );

  test(
    "the list shows how many paths are sound, and is filtered by the address",
    async () => {
      await open("nodes/");
      await row("web").getByRole("img", { name: "1 broken, 1 direct" }).waitFor();
      await row("web").getByText("broken path").waitFor();
      await page.getByRole("link", { name: "Needs you 1" }).waitFor();
      await page.getByRole("link", { name: /^Away/ }).click();
      await row("web").waitFor({ state: "detached" });
      await page.getByRole("link", { name: /^All/ }).click();
      await page.locator("summary[title=Filter]").click();
      await page.getByLabel(/^Group/).selectOption("web");
      await row("hub").waitFor({ state: "detached" });
      expect(new URL(page.url()).search).toBe("?group=web");
      await page.reload();
      await row("web").waitFor();
      await page.getByText("1 of 2").waitFor();
      // What is not found may be in another list.
      await page.getByLabel("Search nodes").fill("no-such");
      await page.getByRole("link", { name: "those that wait, or have not come back" }).waitFor();
      await page.getByRole("link", { name: "revoked nodes" }).click();
      await page.getByText("No node is revoked.").waitFor();
      expect(new URL(page.url()).search).toBe("?show=revoked&search=no-such");
    },
    limitMs,
  );

  test(
    "what another administrator changes while the dialog is open stays, and is said",
    async () => {
      await open(`nodes/${hub.id}/`);
      await button("Edit").click();
      await page.getByLabel("Groups").fill("infra, mine");
      const elsewhere = (...flags: string[]) => scene.admin(["node", "update", "acme", "hub", ...flags]);
      await elsewhere("--add-group", "theirs");
      const told = page.getByText("Another administrator has just changed this node.");
      await told.waitFor();
      expect(await page.getByLabel("Groups").inputValue()).toBe("infra, theirs, mine");
      expect(await violationsIn(page)).toEqual([]);
      await button("Save").click();
      await page.getByRole("dialog").waitFor({ state: "detached" });
      await page.locator(".facts .tag").filter({ hasText: "theirs" }).waitFor();
      // A page that has not learned of it yet asks before it saves.
      const answers = "**/api/org/acme/nodes/**";
      await button("Edit").click();
      await page.getByLabel("Relay:").check();
      const release = await holdRequests(page, answers);
      await elsewhere("--remove-group", "theirs", "--remove-group", "mine");
      await button("Save").click();
      release();
      await told.waitFor();
      await page.unroute(answers);
      expect(await page.getByLabel("Groups").inputValue()).toBe("infra");
      await page.getByLabel("Relay:").uncheck();
      await page.keyboard.press("Escape");
      await page.getByRole("dialog").waitFor({ state: "detached" });
    },
    limitMs,
  );

  test(
    "networks, roles and the public address of a machine are changed; a wrong one is told at its field",
    async () => {
      await open(`nodes/${hub.id}/`);
      await button("Edit").click();
      await page.getByLabel("Groups").fill("infra, web");
      await page.getByText("No rule starts or stops applying to it.").waitFor();
      await page.getByLabel("Groups").fill("infra");
      await page.getByLabel("Networks behind it").fill("192.168.7.0/24 nonsense");
      await button("Save").click();
      await page.getByRole("dialog").getByRole("alert").getByText("nonsense: Enter a network").waitFor();
      expect(await page.getByText("The request is not valid.").count()).toBe(0);
      // Also for those who only hear of the field.
      const invalid = `[...document.querySelectorAll("[aria-invalid=true]")].map((field) =>
        document.getElementById(field.getAttribute("aria-describedby")).innerText)`;
      expect(await page.evaluate(invalid)).toEqual([expect.stringContaining("nonsense: Enter a network")]);
      await page.keyboard.press("Escape");
      await page.getByText("This is not saved.").waitFor();
      await page.keyboard.press("Escape");
      await page.getByRole("dialog").waitFor({ state: "detached" });
      await button("Edit").click();
      await page.getByLabel("Networks behind it").fill("192.168.7.0/24");
      await page.getByRole("textbox", { name: "Public address" }).fill("192.0.2.1");
      await page.getByLabel("Relay:").check();
      await page.getByRole("dialog").getByLabel("From the terminal").click();
      await page
        .getByText(
          "agent admin node update acme hub --add-subnet 192.168.7.0/24 --public-ip 192.0.2.1 --relay",
        )
        .waitFor();
      expect(await violationsIn(page)).toEqual([]);
      await page.getByRole("dialog").getByText("A rule opens one network alone").waitFor();
      // In a low window the form goes on below: its end stays in sight, and so does the field that has the focus.
      await page.setViewportSize({ width: 1280, height: 480 });
      const inSight = (name: string) =>
        page.evaluate<boolean>(`(({ top, bottom }) => top >= 0 && bottom <= innerHeight - 32)(
          [...document.querySelectorAll("dialog button")].find((each) => each.textContent === "${name}").getBoundingClientRect())`);
      expect(
        await page.evaluate(`(({ scrollHeight, clientHeight }) => scrollHeight > clientHeight)(
        document.querySelector("dialog"))`),
      ).toBe(true);
      expect(await inSight("Save")).toBe(true);
      await page.getByLabel("Relay:").focus();
      expect(await inSight("Save")).toBe(true);
      await page.setViewportSize({ width: 1280, height: 800 });
      // What is left to do, and where. The line replaces what the node offers, so it waits until that is known.
      const line = page.getByText("sudo agent up acme --advertise 192.168.7.0/24+masquerade");
      const routes = /\/routes\/\?/;
      await page.route(routes, (route) => route.fulfill({ status: 502, json: { detail: "Not now." } }));
      await button("Save").click();
      await page.getByRole("dialog").getByText("Not now.").waitFor();
      expect(await line.count()).toBe(0);
      await page.unroute(routes);
      await line.waitFor();
      expect(await page.getByRole("dialog").getByRole("link").getAttribute("href")).toBe(
        "/console/acme/access/",
      );
      await button("Close").click();
      await page.getByRole("dialog").waitFor({ state: "detached" });
      await page.getByText("relay, reached at 192.0.2.1").waitFor();
      await page.getByText("192.168.7.0/24").first().waitFor();
      // What let others in let them into the network, too.
      await button("Edit").click();
      await page.getByLabel("Networks behind it").fill("");
      await page.getByText("These rules will no longer let others reach 192.168.7.0/24:").waitFor();
      await button("Cancel").click();
      await button("Revoke").click();
      const dialog = page.getByRole("dialog");
      await dialog.getByText(/^hub is a relay/).waitFor();
      await dialog.getByText("Networks behind hub are not reached any more: 192.168.7.0/24.").waitFor();
      await button("Cancel").click();
    },
    limitMs,
  );

  test(
    "the navigation counts all that needs a person, on every page",
    async () => {
      // The paths of a machine that is away are old, and the tests before this one may have taken that long.
      await web.checkin({});
      const needs = () =>
        page.evaluate(`fetch("/api/org/acme/nodes/attention/").then((answer) => answer.json())
          .then(({ hubs_away, broken_paths }) => [hubs_away.count, broken_paths.count].join())`);
      await until(async () => (await needs()) === "1,1");
      const tab = await scene.context.newPage();
      await tab.addInitScript(`globalThis.looks = [];
        const every = setInterval;
        setInterval = (work, ms) => (ms === 20_000 ? looks.push(work) : every(work, ms));`);
      await tab.goto(`${scene.url()}/console/acme/activity/`);
      // A relay that is away, and a machine that does not reach a peer.
      await tab.getByRole("link", { name: "2 waiting for you" }).waitFor();
      await hub.checkin({});
      await until(async () => (await needs()) === "0,1");
      // Every 20 s all is read, however short ago it was read before.
      await tab.evaluate("for (const work of looks) work()");
      await tab.getByRole("link", { name: "1 waiting for you" }).click();
      await tab.getByRole("listitem").filter({ hasText: "does not reach 10.77.9.9" }).waitFor();
      await tab.close();
    },
    limitMs,
  );

  test(
    "machines that wait are approved together after their number was typed",
    async () => {
      await scene.admin(["org", "update", "acme", "--approval", "all"]);
      const { token } = await scene.adminJson(["token", "create", "acme", "--uses", "3", "--group", "ci"]);
      const { token: single } = await scene.adminJson(["token", "create", "acme", "--name", "one laptop"]);
      const ask = async (name: string, registration_token = token) => {
        const body = { name, ...(await makeKeys(name)), registration_token };
        await fetch(`${scene.url()}/api/org/acme/nodes/register/`, {
          method: "POST",
          headers: { "Content-Type": "application/json" },
          body: JSON.stringify(body),
        });
      };
      for (const name of ["ci-1", "ci-2", "other"]) await ask(name);
      await ask("solo", single);
      await open("nodes/waiting/");
      await button("Approve 4 nodes").waitFor();
      await page.getByRole("link", { name: "one laptop" }).waitFor();
      expect(await page.getByText("Another node has this name").count()).toBe(0);
      // One that asks no more says so, and no word of that is cut.
      using database = new Database(join(scene.data, "control.db"));
      database.run("PRAGMA busy_timeout = 5000");
      database.run("UPDATE registration_requests SET asked_at = asked_at - 600000 WHERE name = 'ci-1'");
      await page.reload();
      for (const width of [1280, 900]) {
        await page.setViewportSize({ width, height: 800 });
        await page
          .locator("[data-column=asked]")
          .filter({ hasText: /not since 1\dm ago/ })
          .waitFor();
        const cut = `[...document.querySelectorAll(".body [data-column=asked]")]
          .filter((each) => each.scrollWidth > each.clientWidth || each.scrollHeight > each.clientHeight)
          .map((each) => each.textContent)`;
        expect([width, await page.evaluate<unknown>(cut)]).toEqual([width, []]);
      }
      await page.setViewportSize({ width: 1280, height: 800 });
      await page.getByLabel("Search nodes").fill("ci-");
      await button("Approve 2 nodes").click();
      const dialog = page.getByRole("dialog");
      await dialog.locator(":focus[inputmode=numeric]").waitFor();
      expect(await dialog.getByText("ci-1").count()).toBe(1);
      await dialog.getByLabel("Type 2, the number of nodes").fill("2");
      expect(await violationsIn(page)).toEqual([]);
      await dialog.getByRole("button", { name: "Approve 2 nodes" }).click();
      await page.getByText("Approve 2 nodes: done.").waitFor();
      await button("Approve ci-1").waitFor({ state: "detached" });
      // Those that are approved need nothing more.
      await page.getByRole("link", { name: "Waiting 2" }).waitFor();
      expect(await button("Approve ci-2").count()).toBe(0);
      // Neither comes back.
      const left = page.getByRole("listitem").filter({ hasText: "has not come back yet" });
      await left.nth(1).waitFor();
      await page.getByRole("button", { name: "Withdraw the approval of ci-2" }).click();
      expect(await dialog.locator("code").first().innerText()).toMatch(/^[0-9a-f]{16}$/);
      await dialog.getByRole("button", { name: "Refuse ci-2" }).click();
      await page.getByText("ci-2 is refused.").waitFor();
      await page.getByRole("status").getByText("refused machines may still work").waitFor();
      await left.nth(1).waitFor({ state: "detached" });
      await left.getByText("ci-1").first().waitFor();
      await page.getByLabel("Search nodes").fill("");
      // A token that only the refused machine could use ends with it.
      await page.getByRole("button", { name: "Refuse solo" }).click();
      expect(await dialog.getByLabel("Also revoke one laptop").isChecked()).toBe(true);
      await dialog.getByRole("button", { name: "Refuse solo" }).click();
      await page.getByText("solo is refused. Its join key is revoked.").waitFor();
      // Whoever has the key can ask with the name of a machine that is approved.
      await ask("ci-1");
      await page.getByText("Another node has this name, or asks for it").waitFor();
      await page.getByRole("button", { name: "Refuse ci-1" }).click();
      await dialog.getByText("Another node has this name, or asks for it").waitFor();
      await dialog.getByRole("button", { name: "Refuse ci-1" }).click();
      await page.getByText("ci-1 is refused.").waitFor();
      expect(await page.getByRole("alert").count()).toBe(0);
    },
    limitMs,
  );

  test(
    "several machines change their groups and are revoked after their number was typed; columns are chosen",
    async () => {
      for (const name of ["bulk-1", "bulk-2", "bulk-3"]) await scene.admin(["node", "create", "acme", name]);
      await page.goto(`${scene.url()}/console/acme/nodes/?search=bulk`);
      await row("bulk-3").waitFor();
      const top = async () => (await row("bulk-3").boundingBox())?.y;
      const before = await top();
      await row("bulk-1").getByRole("checkbox").click();
      await page.getByText("1 selected", { exact: true }).waitFor();
      expect(await top()).toBe(before);
      await page.getByLabel("Search nodes").fill("bulk-3");
      await page.getByText("0 selected. Not shown, so unticked: 1").waitFor();
      expect(await button("Revoke").count()).toBe(0);
      await page.getByLabel("Search nodes").fill("bulk");
      const all = page.getByLabel("Select all that are shown");
      await all.click();
      await page.getByText("3 selected").waitFor();
      await all.click();
      await page.getByText("3 selected").waitFor({ state: "detached" });
      await row("bulk-1").getByRole("checkbox").click();
      await row("bulk-3")
        .getByRole("checkbox")
        .click({ modifiers: ["Shift"] });
      await page.getByText("3 selected").waitFor();
      await button("Change groups").click();
      await page.getByLabel("Add to groups").fill("red, blue");
      await button("Change the groups of 3 nodes").click();
      for (const name of ["bulk-1", "bulk-2", "bulk-3"])
        await row(name)
          .filter({ hasText: /red.*blue|blue.*red/ })
          .waitFor();
      await button("Change groups").click();
      await page.getByLabel("Remove from groups").fill("red");
      await page.getByLabel("Add to groups").fill("not a group!");
      await button("Change the groups of 3 nodes").click();
      await page.getByRole("dialog").getByRole("listitem").nth(2).waitFor();
      expect(await page.getByText("0 of 3 are done.").count()).toBe(1);
      await page.getByRole("dialog", { name: "Change the groups of 3 nodes: 3 refused" }).waitFor();
      await button("Close").click();
      // A second factor that is not given ends it, and no other machine is tried.
      let tries = 0;
      const patch = /\/nodes\/\d+\/$/;
      const step = { code: "step_up_required", detail: "This needs your second factor.", methods: ["totp"] };
      await page.route(patch, (route) => {
        if (route.request().method() !== "PATCH") return route.fallback();
        tries++;
        return route.fulfill({ status: 403, json: step });
      });
      const dialog = page.getByRole("dialog");
      await button("Change groups").click();
      await page.getByLabel("Add to groups").fill("green");
      await button("Change the groups of 3 nodes").click();
      const proof = page.getByText("Confirm that it is you");
      await proof.waitFor();
      // What was refused does not count while the list is read again.
      const waiting = /\/registrations\//;
      const release = await holdRequests(page, waiting);
      await page.keyboard.press("Escape");
      await proof.waitFor({ state: "detached" });
      expect(await dialog.getByText("0 of 3 are done.").count()).toBe(1);
      release();
      await dialog.getByRole("listitem").first().waitFor();
      await page.unroute(waiting);
      expect(await dialog.getByText("0 of 3 are done.").count()).toBe(1);
      expect([tries, await dialog.getByRole("listitem").count()]).toEqual([1, 1]);
      await button("Close").click();
      await page.unroute(patch);
      // Cancelled halfway, it says how far it came.
      const held = Promise.withResolvers<void>();
      tries = 0;
      await page.route(patch, async (route) => {
        if (route.request().method() !== "PATCH" || tries++ === 0) return route.fallback();
        await held.promise;
        return route.fulfill({ status: 403, json: { code: "forbidden", detail: "No." } });
      });
      await button("Change groups").click();
      await page.getByLabel("Add to groups").fill("green");
      await button("Change the groups of 3 nodes").click();
      await until(() => tries === 3);
      await button("Cancel").click();
      held.resolve();
      await page.getByText(/1 of 3 are done\. Refused: bulk-\d bulk-\d/).waitFor();
      await page.unroute(patch);
      await row("bulk-2").getByRole("checkbox").click();
      await page.getByText("2 selected").waitFor();
      await button("Revoke").click();
      const revoke = button("Revoke 2 nodes");
      expect(await revoke.isDisabled()).toBe(true);
      await page.getByLabel("Type 2, the number of nodes").fill("3");
      expect(await revoke.isDisabled()).toBe(true);
      await page.getByLabel("Type 2, the number of nodes").fill("2");
      await page.getByLabel("Reason").fill("lost in a taxi");
      expect(await violationsIn(page)).toEqual([]);
      await revoke.click();
      await row("bulk-1").waitFor({ state: "detached" });
      await row("bulk-3").waitFor({ state: "detached" });
      await row("bulk-2").waitFor();
      const revoked = await scene.admin(["events", "acme", "--type", "node.revoked", "--json"]);
      expect(revoked.split("lost in a taxi").length - 1).toBe(2);
      await page.getByRole("link", { name: /^Revoked/ }).click();
      await page.getByRole("columnheader", { name: "Revoked" }).waitFor();
      await row("bulk-3").locator("time").first().waitFor();
      await page.getByRole("link", { name: /^All/ }).click();
      await row("bulk-2").waitFor();
      await page.locator("summary[title=Columns]").click();
      await page.getByLabel("Owner").check();
      await page.getByLabel("Groups", { exact: true }).uncheck();
      await page.getByRole("columnheader", { name: "Owner" }).waitFor();
      expect(new URL(page.url()).searchParams.get("columns")).toBe("state,address,owner,paths,engine,seen");
      await page.reload();
      await page.getByRole("columnheader", { name: "Owner" }).waitFor();
      expect(await page.getByRole("columnheader", { name: "Groups" }).count()).toBe(0);
    },
    limitMs,
  );

  test(
    "after an error of the page itself, the question about several nodes can be answered again",
    async () => {
      const tab = await scene.context.newPage();
      // The error that this test makes is no complaint.
      await tab.addInitScript(`addEventListener("unhandledrejection", (event) => event.preventDefault())`);
      await tab.goto(`${scene.url()}/console/acme/nodes/?search=bulk-2`);
      await tab.getByLabel("Select bulk-2").click();
      await tab.getByRole("button", { name: "Change groups" }).click();
      await tab.getByLabel("Add to groups").fill("again");
      await tab.evaluate(
        "globalThis.real = fetch; globalThis.fetch = async () => ({ text: async () => '' })",
      );
      const change = tab.getByRole("button", { name: "Change the groups of bulk-2" });
      await change.click();
      await tab.getByText("0 of 1 are done.").waitFor();
      await until(() => change.isEnabled());
      await tab.evaluate("globalThis.fetch = real");
      await change.click();
      await tab.getByRole("row").filter({ hasText: "again" }).waitFor();
      await tab.close();
    },
    limitMs,
  );

  test(
    "a rule leads to who made it, a machine to what it may reach; dates are written as chosen",
    async () => {
      await addRule(scene, "--protocol tcp --ports 22 --peer group:web");
      await open("access/");
      await page.locator("summary[title*='tcp 22']").click();
      await page.getByRole("link", { name: /^History/ }).click();
      const made = page.locator(".log > li").filter({ hasText: "rule.created" });
      await made.waitFor();
      expect(await page.locator(".log > li").count()).toBe(1);
      await open(`nodes/${web.id}/`);
      await page.getByRole("link", { name: "May it reach another node?" }).click();
      await page.getByLabel("To node").fill("hub");
      await page.getByLabel("Protocol and port").fill("tcp 22");
      await page.getByRole("status").getByText("the rules allow it").waitFor();
      await page.getByRole("status").getByRole("link", { name: "web", exact: true }).click();
      await page.getByRole("heading", { level: 1, name: "web" }).waitFor();
      await openAccount(page);
      await page.getByLabel("Write dates").selectOption("sv");
      await page.getByText(/Now is \d{4}-\d\d-\d\d/).waitFor();
      // The navigation stays with the organization.
      await page.getByRole("link", { name: "Nodes", exact: true }).click();
      await row("web").waitFor();
    },
    limitMs,
  );

  test(
    "the page of a revoked machine says which machines have not confirmed that they refuse it",
    async () => {
      await scene.admin(["org", "update", "acme", "--approval", "none"]);
      const lost = await speakingMachine(scene, "lost");
      const confirm = async (machine: typeof hub) => {
        const { config_version } = v.parse(CheckinAnswer, await machine.checkin({}));
        await machine.checkin({ config_version, confirmed_config_version: config_version });
      };
      await confirm(hub);
      await scene.admin(["node", "revoke", "acme", "lost"]);
      await open(`nodes/${lost.id}/`);
      const said = page.getByText("nodes have confirmed that they refuse it");
      const [count = 0, total = 0] = ((await said.textContent()) ?? "").match(/\d+/g)?.map(Number) ?? [];
      const late = page
        .locator("details")
        .filter({ hasText: `Nodes that have not confirmed: ${total - count}` });
      await late.getByRole("link", { name: "hub", exact: true }).waitFor();
      await confirm(hub);
      await page.reload();
      await said.filter({ hasText: `${count + 1} of ${total}` }).waitFor();
      await page.locator("details").getByRole("listitem").first().waitFor();
      expect(await page.getByRole("link", { name: "hub", exact: true }).count()).toBe(0);
    },
    limitMs,
  );

  test(
    "on a phone, the pages are behind a button, and no page is wider than the window",
    async () => {
      await web.checkin({});
      await page.setViewportSize({ width: 360, height: 740 });
      await open("nodes/");
      await row("web").getByText("broken path").waitFor();
      // The menu lies within the window, and Escape closes it.
      await page.locator("summary[title=Filter]").click();
      expect(await overflowOf(page)).toBe(0);
      const last = page.getByLabel("Which nodes");
      await last.focus();
      await page.keyboard.press("Escape");
      await last.waitFor({ state: "hidden" });
      await open("nodes/");
      expect(await page.getByRole("link", { name: "Activity" }).count()).toBe(0);
      await button("More").click();
      await page.getByRole("link", { name: "Activity" }).click();
      await page.getByRole("heading", { level: 1, name: "Activity" }).waitFor();
      await page.getByRole("link", { name: "Settings", exact: true }).waitFor({ state: "hidden" });
      // Names without blanks wrap. Of one that is too long, all that was typed stays, and its field says it.
      const { id } = await speakingMachine(scene, "m".repeat(63));
      await open(`nodes/${id}/`);
      await button("Add an alias").click();
      const alias = page.getByLabel("Alias", { exact: true });
      await alias.pressSequentially("a".repeat(80));
      await button("Add the alias").click();
      await page.getByRole("alert").getByText("At most 63 characters.").waitFor();
      expect(await alias.inputValue()).toHaveLength(80);
      await alias.fill("a".repeat(63));
      await button("Add the alias").click();
      await page.getByText(`${"a".repeat(63)}.acme.internal`).waitFor();
      const machines = [web.id, id].map((each) => `nodes/${each}/`);
      for (const path of ["", "nodes/", ...machines, "activity/", "../-/account/"]) {
        await open(path);
        expect([path, await violationsIn(page), await overflowOf(page)]).toEqual([path, [], 0]);
        expect([path, await cutListsIn(page)]).toEqual([path, []]);
      }
    },
    limitMs,
  );

  test(
    "the numbers of nodes on Overview, Map and Nodes agree, and the list says whom it has besides",
    async () => {
      await scene.admin(["node", "create", "acme", "later"]);
      await open("nodes/");
      const besides = page.getByText(
        /^\d+ nodes with an agent, and \d+ without \(phones, or not registered\)$/,
      );
      const words = await besides.innerText();
      const [counted = 0, others = 0] = [...words.matchAll(/\d+/g)].map(Number);
      await page.getByRole("link", { name: `All ${counted + others}`, exact: true }).waitFor();
      await open("");
      await page.getByText(`The list has ${words}.`).waitFor();
      await page.getByRole("link", { name: new RegExp(`^Online\\s*\\d+\\s*of ${counted}`) }).waitFor();
      await open("map/");
      await page.getByText(`${counted} nodes with an agent; paths: `).waitFor();
    },
    limitMs,
  );

  test("no page complained", () => {
    scene.expectQuiet();
  });
});
