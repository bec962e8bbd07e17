// The console's pages for people, tokens, certificates and settings, in a real browser. Webhooks: console-webhooks.test.ts.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import {
  cutListsIn,
  fromTerminal,
  openPage,
  overflowOf,
  owner,
  password,
  rowOf,
  signIn,
  startConsole,
  noViolations,
  violationsIn,
  violationsInSchemes,
  type Console,
  holdRequests,
} from "../support/console.ts";
import { until } from "../support/until.ts";

const guest = "guest@example.org";
const limitMs = 120_000;

describe("the organization in the console", () => {
  const receiver = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: () => new Response("thanks") });
  let scene: Console;
  let page: Page;

  const button = (name: string | RegExp) => page.getByRole("button", { name });
  const row = (text: string) => rowOf(page, text);
  const shownOnce = () => page.locator("dialog > .cmd code").innerText();

  beforeAll(async () => {
    scene = await startConsole(["--webhook-allow", "127.0.0.0/8"]);
    ({ page } = scene);
    await page.goto(`${scene.url()}/console/acme/`);
    await signIn(page);
    await page.getByRole("heading", { name: "Overview" }).waitFor();
  }, limitMs);
  afterAll(async () => {
    await scene[Symbol.asyncDispose]();
    await receiver.stop(true);
  });

  test(
    "an invitation's link makes a member, whose role changes, and who is removed",
    async () => {
      await openPage(page, "Members");
      await button("Invite").click();
      await page.getByLabel("E-mail").fill(guest);
      await page.keyboard.press("Escape");
      await page.getByText("This is not saved.").waitFor();
      await page.getByRole("dialog").getByRole("button", { name: "Invite" }).click();
      const lost = await shownOnce();
      await button("Done").click();
      await page.getByLabel(`Actions for ${guest}`).click();
      await button("New link or role…").click();
      await button("Make the link").click();
      const link = await shownOnce();
      expect(link).not.toBe(lost);
      const secret = new URL(link).hash.slice(1);
      await button("Done").click();
      await row(guest).getByText("invited").waitFor();
      const joined = await fetch(`${scene.url()}/api/join/`, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ secret, password }),
      });
      expect(joined.status).toBe(200);
      const act = async (what: string) => {
        await page.getByLabel(`Actions for ${guest}`).click();
        await row(guest).getByRole("button", { name: what }).click();
      };
      await row(guest).getByText("active").waitFor();
      await act("Role");
      await page.getByRole("combobox", { name: "Role" }).selectOption("admin");
      await button("Change the role").click();
      await row(guest).getByText("admin").waitFor();
      await row(guest).getByText("none").waitFor();
      await page.getByText("2 have no second factor").waitFor();
      await act("Sessions");
      await page
        .getByRole("dialog", { name: `Sessions of ${guest}` })
        .getByText("None.")
        .waitFor();
      await button("Close").click();
      await act("Remove");
      await page
        .getByRole("dialog")
        .getByRole("button", { name: `Remove ${guest}` })
        .click();
      await row(guest).waitFor({ state: "detached" });
      expect(await scene.adminJson(["member", "list", "acme"])).toMatchObject({
        members: [{ email: owner }],
      });
    },
    limitMs,
  );

  test(
    "a route and an exit are added, with the lines for their machines; a router is put into maintenance, and used again",
    async () => {
      await scene.adminJson(["node", "create", "acme", "gateway"]);
      await openPage(page, "Routes");
      await button("Add a route").click();
      const create = button("Add the route");
      expect(await create.isDisabled()).toBe(true);
      await page.getByLabel("Router").selectOption("gateway");
      await page.getByLabel("Network").fill("192.168.7.0/33");
      await create.click();
      await page.getByRole("dialog").getByRole("alert").first().waitFor();
      await page.getByLabel("Network").fill("192.168.7.0/24");
      await page.getByRole("dialog").getByLabel("From the terminal").click();
      await page.getByText("agent admin route create acme 192.168.7.0/24 --via gateway").waitFor();
      // Only commands have a prompt.
      const prompts = await page.evaluate(
        "[...document.querySelectorAll('dialog .cmd code')].map((each) => getComputedStyle(each, '::before').content)",
      );
      expect(prompts).toEqual(['"$ "', '"$ "', "none"]);
      await create.click();
      // What is left to do is a whole line, for this machine and network.
      const line = "sudo agent up acme --advertise 192.168.7.0/24+masquerade";
      const next = page.getByRole("dialog", { name: "On gateway" });
      await next.locator(".cmd", { hasText: line }).getByRole("button", { name: "Copy" }).waitFor();
      await next.getByRole("button", { name: "Close" }).click();
      await button("Commands for 192.168.7.0/24 by gateway").click();
      await next.getByText(line).waitFor();
      await page.keyboard.press("Escape");
      const maintained = async (action: string) => {
        await button(`${action} 192.168.7.0/24 by gateway`).click();
        await page.getByRole("dialog").getByRole("button", { name: action, exact: true }).click();
        await page.getByRole("dialog").waitFor({ state: "detached" });
        const routes = await scene.adminJson(["route", "list", "acme"]);
        return JSON.stringify(routes).includes('"maintenance":true');
      };
      expect(await maintained("Maintain")).toBe(true);
      await row("gateway").getByText("maintenance").waitFor();
      expect(await maintained("Use again")).toBe(false);
      await row("gateway").getByText("away").waitFor();
      await button("Add an exit").click();
      const dialog = page.getByRole("dialog");
      await dialog.getByLabel("For the groups").fill("any");
      await dialog.locator("select").selectOption("gateway");
      await dialog.getByText("sudo agent up acme --advertise-exit").waitFor();
      expect(await dialog.getByText("There is no group").count()).toBe(0);
      await dialog.getByLabel("From the terminal").click();
      await dialog.getByText("agent admin node update acme gateway --add-exit-group any").waitFor();
      await button("Add the exit").click();
      await next.getByText("sudo agent exit use gateway").waitFor();
      expect(await violationsInSchemes(page)).toEqual(noViolations);
      await page.keyboard.press("Escape");
      await page.getByRole("row", { name: "gateway any away" }).waitFor();
    },
    limitMs,
  );

  test(
    "a service token is shown once, works, and is refused after it was revoked",
    async () => {
      await openPage(page, "Keys and tokens");
      await button("Create a service token").click();
      await page.getByLabel("Name").fill("ci");
      await page.getByLabel("Only from these networks").fill("192.0.2.0/24, nonsense");
      await page.getByRole("dialog").getByLabel("From the terminal").click();
      await page.getByText("--network 192.0.2.0/24 --network nonsense").waitFor();
      await button("Create the token").click();
      await page
        .getByRole("alert")
        .getByText(/^nonsense: /)
        .waitFor();
      await page.getByLabel("Only from these networks").fill("");
      await button("Create the token").click();
      const token = await shownOnce();
      // As browsers do where nobody permitted it.
      await page.evaluate("navigator.clipboard.writeText = () => Promise.reject(new Error('denied'))");
      await button("Copy").click();
      await page.getByText("Not copied: select the text").waitFor();
      const status = async () => {
        const headers = { Authorization: `Bearer ${token}` };
        return (await fetch(`${scene.url()}/api/org/acme/nodes/`, { headers })).status;
      };
      expect(await status()).toBe(200);
      await button("I have kept it").click();
      await row("ci").getByRole("link", { name: owner }).waitFor();
      await row("ci").getByText("read everything", { exact: true }).waitFor();
      const uses = () => page.evaluate("fetch('/api/org/acme/service_tokens/').then((one) => one.text())");
      await until(async () => !String(await uses()).includes('"last_used_at":null'));
      await page.reload();
      await button("Revoke ci").click();
      await page
        .getByRole("dialog")
        .getByText(/It may read everything, from everywhere. Last used (now|\d+[sm] ago), made/)
        .waitFor();
      const revoke = page.getByRole("dialog").getByRole("button", { name: "Revoke ci" });
      expect(await revoke.isDisabled()).toBe(true);
      await page.getByLabel("Type ci to go on").fill("ci");
      await revoke.click();
      await row("ci").waitFor({ state: "detached" });
      expect(await status()).toBe(401);
    },
    limitMs,
  );

  test(
    "a rotation says which machine it waits for, pauses, and is rolled back",
    async () => {
      const { token } = await scene.adminJson(["token", "create", "acme"]);
      await scene.register("web-1", String(token));
      // The button does not move under the pointer: the list above it is read first.
      const attention = /nodes\/attention\/$/;
      const release = await holdRequests(page, attention);
      await Promise.all([
        page.waitForResponse(/\/ca\/$/),
        page.goto(`${scene.url()}/console/acme/certificates/`),
      ]);
      expect(await button("Rotate the CAs").count()).toBe(0);
      release();
      await button("Rotate the CAs").waitFor();
      await page.unroute(attention);
      await button("Rotate the CAs").click();
      await button("Start the rotation").click();
      await page.getByText("Step 1 of 3").waitFor();
      // Machines confirm without an event, so the page asks now and then, but not in a hidden tab.
      const other = await scene.context.newPage();
      await other.addInitScript(`globalThis.timers = [];
        const every = setInterval;
        setInterval = (work, ms) => (ms < 10_000 ? timers.push(work) : every(work, ms));`);
      await other.goto(page.url());
      await other.getByText("Step 1 of 3").waitFor();
      const asks = () =>
        other.evaluate(`[true, false].map((isHidden) => {
          let asks = 0;
          const { fetch } = window;
          window.fetch = (...all) => (asks++, fetch(...all));
          Object.defineProperty(document, "hidden", { value: isHidden, configurable: true });
          for (const work of timers) work();
          window.fetch = fetch;
          return asks;
        }).join()`);
      // The timer begins after the page was drawn, and what is being read just now is not asked for.
      await until(async () => (await asks()) === "0,1");
      await other.close();
      await page.getByText(`by ${owner} from`).waitFor();
      const awaited = page.locator("details").filter({ hasText: "Nodes that it waits for: 1" });
      await awaited.getByRole("link", { name: "web-1" }).waitFor();
      await button("Do not wait for tunnels").click();
      await page.getByRole("dialog").getByText("can lose packets for some seconds").waitFor();
      await page.getByRole("dialog").getByRole("button", { name: "Do not wait for tunnels" }).click();
      await page.getByRole("dialog").waitFor({ state: "detached" });
      expect(await scene.admin(["events", "acme", "--type", "ca.rotated", "--json"])).toContain("hurry");
      await button("Pause").click();
      await page.getByRole("dialog").getByRole("button", { name: "Pause" }).click();
      await page.getByText("It is paused.").waitFor();
      expect(await scene.adminJson(["ca", "show", "acme"])).toMatchObject({ rotation: { paused: true } });
      await button("Roll back").click();
      // The CAs from before may be those whose key is known.
      await page.getByRole("dialog").getByText("Do not roll back if a key of the CAs from before").waitFor();
      // Red is for what is taken away; this has a way back.
      await page.getByRole("dialog").locator("button.primary").waitFor();
      expect(await page.getByRole("dialog").locator("button.danger").count()).toBe(0);
      await page.getByRole("dialog").getByRole("button", { name: "Roll back" }).click();
      await page.getByRole("dialog").waitFor({ state: "detached" });
      // The new CAs have signed nothing.
      await page.getByRole("cell", { name: "withdrawn" }).first().waitFor();
    },
    limitMs,
  );

  test(
    "settings are saved, and deletion waits for the name",
    async () => {
      await openPage(page, "Settings");
      const name = page.getByRole("textbox", { name: "Name" });
      await name.fill("Acme & <Sons>");
      // An edit outlives the page, and the navigation says so.
      await openPage(page, "Members");
      await page.getByRole("link", { name: "Settings draft" }).click();
      expect(await name.inputValue()).toBe("Acme & <Sons>");
      await page.getByRole("switch", { name: "Every node learns all names" }).check();
      await page.getByLabel("Second domain").fill("corp.example");
      const bar = page.getByRole("region", { name: "Draft" });
      await bar.getByText("3 settings changed").waitFor();
      expect(await page.locator(".row.changed").count()).toBe(3);
      await page.getByRole("navigation", { name: "Sections" }).getByTitle("2 changed").waitFor();
      // What is typed while it is saved stays.
      const path = `${scene.url()}/api/org/acme/`;
      await page.route(path, async (route) => {
        if (route.request().method() === "PATCH") await name.fill("Acme & <Sons>, later");
        await route.continue();
      });
      // The focus on its button leaves the page where it is.
      const place = await page.evaluate<number>("scrollY");
      await button("Save").click();
      await page.getByText("Saved.", { exact: true }).waitFor();
      expect(await page.evaluate<number>("scrollY")).toBe(place);
      await page.getByRole("link", { name: "Acme & <Sons>" }).waitFor();
      await page.unroute(path);
      await fromTerminal(page, "agent admin org update acme --name 'Acme & <Sons>, later'");
      expect(await name.inputValue()).toBe("Acme & <Sons>, later");
      await button("Discard").click();
      await page.getByRole("link", { name: "Settings", exact: true }).waitFor();
      expect(await scene.adminJson(["org", "show", "acme"])).toMatchObject({
        name: "Acme & <Sons>",
        names_to_all: true,
        name_suffix: "corp.example",
      });
      // What it means for the reader is said before; the certificates of the machines are settings, too.
      await page.getByRole("switch", { name: "A second factor is required" }).check();
      await page.getByText("You have none, and would lock yourself out").waitFor();
      await bar.getByText("1 of 1 members has no second factor yet").waitFor();
      await button("Discard").click();
      // Of an organization without a rotation.
      await scene.admin(["org", "create", "beta", "--network", "10.78.0.0/16", "--owner", owner]);
      await page.goto(`${scene.url()}/console/beta/settings/`);
      const version = page.getByLabel(/Version of the certificates/);
      await version.selectOption("2");
      const network6 = page.getByLabel("IPv6 network");
      await network6.fill("10.0.0.0/8");
      await fromTerminal(page, "agent admin org update beta --certificate-version 2 --network6 10.0.0.0/8");
      // Enter in a field saves, too.
      await network6.press("Enter");
      await page.locator(".row").filter({ has: network6 }).getByRole("alert").waitFor();
      await network6.fill("fd77::/64");
      await button("Save").click();
      await page.getByText("Going straight between the certificate versions").waitFor();
      await version.selectOption("both");
      await button("Save").click();
      await page.getByText("Saved.", { exact: true }).waitFor();
      await page.locator("input[placeholder^=fd77]:disabled").waitFor();
      expect(await scene.adminJson(["org", "show", "beta"])).toMatchObject({
        certificate_version: "both",
        network6: "fd77::/64",
      });
      await page.goto(`${scene.url()}/console/acme/settings/`);
      await button("Delete acme").click();
      expect(await button(/Delete acme and revoke/).isDisabled()).toBe(true);
      await button("Cancel").click();
    },
    limitMs,
  );

  test(
    "a provider is added for its redirect URI, and completed; why one is not reached is said",
    async () => {
      const provider = Bun.serve({
        hostname: "127.0.0.1",
        port: 0,
        fetch: ({ url }) => Response.json({ issuer: new URL(url).origin }),
      });
      await button("Add a provider").click();
      await page.getByLabel("Issuer").fill("http://127.0.0.1:1");
      await page.getByRole("dialog").getByLabel("Name", { exact: true }).fill("Company");
      await page.getByLabel("Secret of the client").fill("secret");
      // The sentence is seen, although it stands below what is in sight.
      await page.setViewportSize({ width: 1280, height: 500 });
      await page.getByLabel("Issuer").press("Enter");
      const why = page.getByText("It refuses connections on this port");
      await why.waitFor();
      // It is scrolled to after it was drawn.
      await until(async () => {
        const { y = 0 } = (await why.boundingBox()) ?? {};
        return y >= 1 && y < 500;
      });
      await page.setViewportSize({ width: 1280, height: 800 });
      await page.keyboard.press("Escape");
      await page.getByText("This is not saved.").waitFor();
      await page.keyboard.press("Escape");
      await page.getByRole("dialog").waitFor({ state: "detached" });
      await button("Add a provider").click();
      expect(await page.getByRole("dialog").getByLabel("Name", { exact: true }).inputValue()).toBe("Company");
      await page.getByLabel("Issuer").fill(provider.url.origin);
      await button("Add the provider").click();
      await page.getByRole("dialog", { name: "Edit Company" }).waitFor();
      const uri = `${scene.url()}/api/session/oidc/1/callback/`;
      expect(await page.locator("dialog form > .cmd code").innerText()).toBe(uri);
      await button("Cancel").click();
      await page.getByText("Not registered there yet").waitFor();
      expect(await violationsIn(page)).toEqual([]);
      await button("Edit Company").click();
      await page.getByLabel("All others become members").waitFor();
      expect(await page.getByLabel("Claim of the groups").isVisible()).toBe(false);
      await page.getByText("More: groups, domains, claims").click();
      await page.getByLabel("Claim of the groups").waitFor();
      await page.getByLabel("Client ID").fill("agent");
      await button("Save the provider").click();
      await page.getByText("Not registered there yet").waitFor({ state: "detached" });
      await provider.stop(true);
      // No provider is denied while they are read.
      const providers = `${scene.url()}/api/org/acme/identity_providers/`;
      const release = await holdRequests(page, providers);
      await page.reload();
      await page.getByRole("heading", { name: "Verified domains" }).waitFor();
      expect(await page.getByText("None. Any provider").count()).toBe(0);
      release();
      await button("Remove Company").click();
      expect(
        await page.getByRole("dialog").getByRole("button", { name: "Remove Company" }).isDisabled(),
      ).toBe(true);
      await page.getByLabel("Type Company to go on").fill("Company");
      await page.getByRole("dialog").getByRole("button", { name: "Remove Company" }).click();
      await page.getByText("None. Any provider").waitFor();
      await page.unroute(providers);
      await fromTerminal(page, "agent admin oidc list --org acme", "Providers of sign-in");
    },
    limitMs,
  );

  test(
    "the claim of a verified domain is removed after its effect was said",
    async () => {
      await button("Add a domain").click();
      await page.getByLabel("Domain", { exact: true }).fill("example.org");
      await button("Claim the domain").click();
      await page.getByText("Publish this text as TXT record").waitFor();
      await scene.admin(["domain", "vouch", "acme", "example.org"]);
      await page.getByText("verified by staff").waitFor();
      await button("Remove the claim example.org").click();
      await page.getByText("Users lose their addresses in it at the next sign-in.").waitFor();
      await page.getByRole("dialog").getByRole("button", { name: "Remove example.org" }).click();
      await button("Remove the claim example.org").waitFor({ state: "detached" });
      await fromTerminal(page, "agent admin domain list acme", "Verified domains");
    },
    limitMs,
  );

  test(
    "the pages are accessible, light and dark, and fit a phone",
    async () => {
      for (const name of ["first", "second"]) {
        await scene.admin(["webhook", "create", "acme", `http://127.0.0.1:${receiver.port}/${name}`]);
        await scene.admin(["domain", "create", "acme", `${name}.${"long-".repeat(10)}example.org`]);
      }
      await scene.admin(["member", "create", "acme", guest]);
      const refused = ["webhook", "create", "acme", "http://127.0.0.1:1/refused", "--event", "group.created"];
      const { id } = await scene.adminJson(refused);
      await scene.admin(["group", "create", "acme", "cards"]);
      const networks = ["198.51.100.0/24", "203.0.113.0/24"].flatMap((each) => ["--network", each]);
      await scene.admin(["service-token", "create", "acme", "terraform", "--role", "admin", ...networks]);
      for (const path of [
        "people/",
        "tokens/",
        "alarms/",
        `webhooks/${String(id)}/`,
        "certificates/",
        "settings/",
      ]) {
        await page.setViewportSize({ width: 360, height: 740 });
        await page.goto(`${scene.url()}/console/acme/${path}`);
        await page.getByRole("heading", { level: 1 }).waitFor();
        await page
          .locator(path === "certificates/" ? "main" : "main .panel")
          .first()
          .waitFor();
        expect([path, await overflowOf(page), await cutListsIn(page)]).toEqual([path, 0, []]);
        await page.setViewportSize({ width: 1280, height: 800 });
        expect([path, await violationsInSchemes(page)]).toEqual([path, noViolations]);
        // Neither buttons nor what a token may do are cut.
        const cut = `[...document.querySelectorAll(".body :is([data-column=actions], [data-column=may])")]
          .filter((each) => each.scrollWidth > each.clientWidth || each.scrollHeight > each.clientHeight)
          .map((each) => each.textContent)`;
        expect([path, await page.evaluate<unknown>(cut)]).toEqual([path, []]);
      }
      // Behind More, a phone has the pages with their words, not the rail of icons of a small window.
      await page.setViewportSize({ width: 360, height: 740 });
      await page.getByRole("button", { name: "More" }).click();
      const alarms = page.getByRole("navigation", { name: "Console" }).getByRole("link", { name: "Alarms" });
      const size = `parseFloat(getComputedStyle(document.querySelector("nav.open [href$='/alarms/']")).fontSize)`;
      expect(Number(await page.evaluate(size))).toBeGreaterThan(10);
      await alarms.click();
      await page.getByRole("heading", { level: 1, name: "Alarms" }).waitFor();
      await page.setViewportSize({ width: 1280, height: 800 });
    },
    limitMs,
  );

  test("no page complained", () => {
    scene.expectQuiet();
  });
});
