// Adding a node in the console: its kinds, the steps as they happen, and what is kept when the session ends meanwhile.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import * as v from "valibot";
import { parseJoinKey } from "../../src/protocol/join-key.ts";
import { RegisterAnswer } from "../../src/protocol/registration.ts";
import {
  addMember,
  addRule,
  type Console,
  noViolations,
  overflowOf,
  shownJoinKey,
  signIn,
  speakingMachine,
  startConsole,
  violationsIn,
  violationsInSchemes,
} from "../support/console.ts";
import { makeKeys } from "../support/nodes.ts";

const limitMs = 120_000;

describe("adding a node in the console", () => {
  let scene: Console;
  let page: Page;
  const button = (name: string) => page.getByRole("button", { name });

  beforeAll(async () => {
    scene = await startConsole();
    ({ page } = scene);
    await page.goto(`${scene.url()}/console/acme/`);
    await signIn(page);
  }, limitMs);
  afterAll(() => scene[Symbol.asyncDispose]());

  /** As `agent up` asks. */
  async function register(key: string, body: object): Promise<{ status: number; answer: unknown }> {
    const answer = await fetch(`${scene.url()}/api/org/acme/nodes/register/`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ ...body, registration_token: parseJoinKey(key).registrationToken }),
    });
    return { status: answer.status, answer: await answer.json() };
  }

  test(
    "an organization without a node leads to the card of a lighthouse",
    async () => {
      await page.getByRole("link", { name: "Add a lighthouse" }).click();
      await page.getByRole("heading", { level: 1, name: "Add a node" }).waitFor();
      expect(await page.getByRole("radio", { name: "Lighthouse" }).isChecked()).toBe(true);
      await button("From the terminal").click();
      await page.getByRole("dialog").getByText("--lighthouse").waitFor();
      await page.keyboard.press("Escape");
      // The arrows choose another card, as in each group of radio buttons.
      await page.getByRole("radio", { name: "Lighthouse" }).focus();
      await page.keyboard.press("ArrowLeft");
      await page.getByRole("radio", { name: "Server", checked: true }).waitFor();
      expect(page.url()).toContain("kind=server");
    },
    limitMs,
  );

  test(
    "the steps fill as they happen: the key is used, the node is approved, certified, and answered",
    async () => {
      const lighthouse = await speakingMachine(scene, "lh-1", [], {
        is_lighthouse: true,
        public_ip: "203.0.113.1",
      });
      await speakingMachine(scene, "db-1", ["db"]);
      await addRule(
        scene,
        "--direction inbound --protocol tcp --ports 5432 --peer group:web --target group:db",
      );
      await scene.admin(["org", "update", "acme", "--approval", "all"]);
      await page.goto(`${scene.url()}/console/acme/machines/add/`);
      await page.getByLabel("Groups").fill("web");
      await page.getByText("Reaches").waitFor();
      await page.getByLabel("Groups").press("Enter");
      const key = await shownJoinKey(page);
      await page.getByText("Each node waits until an administrator approves it, here.").waitFor();
      expect(await violationsInSchemes(page)).toEqual(noViolations);
      const keys = { name: "web-1", ...(await makeKeys("web-1")) };
      expect(await register(key, keys)).toMatchObject({ status: 202 });
      await page.getByText("web-1 asks to join. Compare its key").waitFor();
      expect(await violationsIn(page)).toEqual([]);
      await button("Approve web-1").click();
      await page.getByText("Approved", { exact: true }).waitFor();
      const { node, api_token } = v.parse(RegisterAnswer, (await register(key, keys)).answer);
      await page.getByRole("heading", { name: "web-1 is in" }).waitFor();
      await page.getByText("The key is worth nothing now.").waitFor();
      await page.getByText(`address ${node.ip_address}`).waitFor();
      await page.getByText(`ping -c 3 ${node.ip_address}`).waitFor();
      expect(await page.getByText("lh-1 answers it").count()).toBe(0);
      const path = { peer: lighthouse.address, path: "direct", probe: "answers", rtt_ms: 5.8 };
      const checkin = await fetch(`${scene.url()}/api/org/acme/nodes/${node.id}/checkin/`, {
        method: "POST",
        headers: { "Content-Type": "application/json", Authorization: `Bearer ${api_token}` },
        body: JSON.stringify({ version: "1.0.0", uptime: 7, paths: { whole: true, changed: [path] } }),
      });
      expect(checkin.status).toBe(200);
      await page.getByText("lh-1 answers it through the tunnel in 5.8 ms").waitFor();
      await page.setViewportSize({ width: 320, height: 640 });
      expect(await overflowOf(page)).toBeLessThanOrEqual(0);
      await page.setViewportSize({ width: 1280, height: 800 });
      // The choices stay for the next one.
      await button("Add another like it").click();
      expect(await page.getByLabel("Groups").inputValue()).toBe("web");
    },
    limitMs,
  );

  test(
    "a refused node is told so, and the key still works",
    async () => {
      await button("Make the join key").click();
      const key = await shownJoinKey(page);
      const keys = { name: "web-2", ...(await makeKeys("web-2")) };
      await register(key, keys);
      await button("Refuse web-2").click();
      await page
        .getByRole("dialog")
        .getByText("With its join key it, or another machine, can ask again")
        .waitFor();
      await page.getByRole("dialog").getByRole("button", { name: "Refuse web-2" }).click();
      await page.getByText("web-2 asks to join").waitFor({ state: "detached" });
      expect(await register(key, keys)).toMatchObject({ answer: { code: "registration_refused" } });
      await page.getByText("sudo agent up").waitFor();
    },
    limitMs,
  );

  test(
    "what was typed is there after the session ended and began again",
    async () => {
      await page.goto(`${scene.url()}/console/acme/machines/add/`);
      await page.getByLabel("Groups").fill("web, eu");
      await scene.context.clearCookies();
      // The page may have noticed before.
      await page.evaluate(`document.querySelector("main form button.primary").click()`);
      const dialog = page.getByRole("dialog", { name: "Your session has ended" });
      await dialog.locator(":focus[name=password]").waitFor();
      expect(await violationsInSchemes(page)).toEqual(noViolations);
      await signIn(page);
      await dialog.waitFor({ state: "detached" });
      expect(await page.getByLabel("Groups").inputValue()).toBe("web, eu");
    },
    limitMs,
  );

  test(
    "a member has the kinds that need no key, and one without that right a sentence",
    async () => {
      await addMember(scene, "member@example.org");
      const { page: other, context } = await scene.open();
      await other.goto(`${scene.url()}/console/acme/machines/add/`);
      await signIn(other, "member@example.org");
      await other.getByText("Administrators of the organization add nodes.").waitFor();
      await scene.admin(["org", "update", "acme", "--self-enrollment", "members"]);
      await other.reload();
      await other.getByText(`sudo agent up ${scene.url()} --org acme`).waitFor();
      const kinds = other.getByRole("radio");
      expect(await kinds.count()).toBe(2);
      await other.getByRole("radio", { name: "Phone" }).check();
      await other.getByRole("link", { name: "Add a phone" }).click();
      await other.getByRole("heading", { level: 1, name: "Phones" }).waitFor();
      await context.close();
    },
    limitMs,
  );

  test("no page complained", () => {
    scene.expectQuiet();
  });
});
