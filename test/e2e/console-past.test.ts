// The console's page about a moment that has passed, in a real browser.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Database } from "bun:sqlite";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { runAgent } from "../support/agent.ts";
import {
  addMember,
  addRule,
  noViolations,
  overflowOf,
  signIn,
  speakingMachine,
  startConsole,
  violationsInSchemes,
  type Console,
} from "../support/console.ts";

const limitMs = 120_000;
const member = "member@example.org";

describe("the past in the console", () => {
  let scene: Console;
  beforeAll(async () => {
    scene = await startConsole();
    await addMember(scene, member);
    for (const name of ["web", "db"]) await speakingMachine(scene, name);
    await addRule(scene, "--protocol tcp --ports 5432");
    // A moment has whole seconds: the next one is after the rule.
    await Bun.sleep(1000 - (Date.now() % 1000));
    await scene.page.goto(`${scene.url()}/console/acme/access/`);
    await signIn(scene.page);
  }, limitMs);
  afterAll(() => scene[Symbol.asyncDispose]());

  /** Sets the moment to now, in the browser's zone, with its second. */
  const moment = (at: number) => {
    const date = new Date(at - new Date(at).getTimezoneOffset() * 60_000);
    return date.toISOString().slice(0, 19);
  };

  test(
    "who could reach a node is told with the rule, its doubts, the command, and a report that can be verified",
    async () => {
      const { page } = scene;
      await page.getByRole("link", { name: "Past" }).click();
      await page.getByRole("heading", { level: 1, name: "At a moment" }).waitFor();
      // Not yesterday: the organization is younger.
      const offered = await page.getByLabel("Moment").inputValue();
      expect(Date.parse(offered)).toBeGreaterThan(Date.now() - 600_000);
      await page.getByLabel("Moment").fill(moment(Date.now()));
      await page.getByLabel("To node").fill("db");
      await page.getByRole("textbox", { name: "On" }).fill("sctp");
      await page.getByText("Enter tcp/5432").waitFor();
      await page.getByRole("textbox", { name: "On" }).fill("");
      await page.getByRole("textbox", { name: "On" }).pressSequentially("tcp 5432");
      await page.getByRole("textbox", { name: "On" }).press("Enter");
      await page.getByRole("heading", { name: "1 could reach db" }).waitFor();
      await page.getByRole("row", { name: /web db permitted/ }).waitFor();
      await page.getByRole("heading", { name: "By these rules" }).waitFor();
      await page.locator("header").getByLabel("From the terminal").click();
      await page.getByText(/^agent admin policy test acme any db tcp\/5432 --at \d{4}-/).waitFor();
      await page.keyboard.press("Escape");
      expect(await violationsInSchemes(page)).toEqual(noViolations);
      const [file] = await Promise.all([
        page.waitForEvent("download"),
        page.getByRole("button", { name: "Download the report" }).click(),
      ]);
      const path = await file.path();
      const [text = ""] = readFileSync(path, "utf8").split("\n");
      expect(JSON.parse(text)).toMatchObject({ organization: expect.any(String), asked: { to: "db" } });
      const { stdout } = await runAgent(["admin", "audit", "verify-report", path]);
      expect(stdout).toContain("web → db: permitted");
    },
    limitMs,
  );

  test(
    "who did reach it is told as the page of flows tells it",
    async () => {
      const { page } = scene;
      await scene.adminJson(["org", "update", "acme", "--flows", "on"]);
      using database = new Database(join(scene.data, "control.db"));
      database.run("PRAGMA busy_timeout = 5000");
      const now = Date.now();
      const insert = `INSERT INTO flows (node_id, day, side, peer, address, protocol, port, org_id, flows, answered, first_at, last_at, unseen_s, report, block)
        SELECT d.id, ?1, ?2, w.id, w.ip, ?3, ?4, d.org_id, 3, ?5, ?6, ?6, 0, '', ?1 / 10 FROM nodes d JOIN nodes w ON w.name = 'web' WHERE d.name = 'db'`;
      for (const row of [
        [2, "", 0, 0],
        [1, "tcp", 5432, 1],
        [1, "icmp", 0, 3],
      ])
        database.run(insert, [Math.floor(now / 86_400_000), ...row, now]);
      await page.getByRole("textbox", { name: "On" }).fill("");
      await page.getByRole("button", { name: "Look" }).click();
      await page.getByRole("row", { name: /^web tcp\/5432 3 2 \d/ }).waitFor();
      await page.getByRole("row", { name: /^web icmp 3 0 \d/ }).waitFor();
      await page.getByRole("textbox", { name: "On" }).fill("tcp/5432");
    },
    limitMs,
  );

  test(
    "before the organization existed it is refused, and without a node it is the policy",
    async () => {
      const { page } = scene;
      await page.getByLabel("Moment").fill("2020-01-01T12:00");
      await page.getByLabel("To node").fill("");
      // A port or a sender alone is no question.
      await page.getByText("Enter the node that was reached").waitFor();
      expect(await page.getByRole("button", { name: "Look" }).isDisabled()).toBe(true);
      await page.getByRole("textbox", { name: "On" }).fill("");
      await page.getByLabel("From node").fill("web");
      await page.getByText("Enter the node that was reached").waitFor();
      await page.getByLabel("From node").fill("");
      await page.getByRole("button", { name: "Look" }).click();
      await page.getByText("The organization acme did not exist at 2020").waitFor();
      // The report about another question is gone.
      expect(await page.getByRole("heading", { name: "1 could reach db" }).count()).toBe(0);
      await page.getByLabel("Moment").fill(moment(Date.now()));
      await page.getByRole("button", { name: "Look" }).click();
      await page.getByRole("heading", { name: "The policy" }).waitFor();
      await page.locator("pre").getByText("5432").waitFor();
      await page.setViewportSize({ width: 320, height: 700 });
      expect(await overflowOf(page)).toBe(0);
      expect(await violationsInSchemes(page)).toEqual(noViolations);
      // On paper, the navigation is left out.
      await page.emulateMedia({ media: "print" });
      expect(await page.getByRole("navigation", { name: "Console" }).count()).toBe(0);
      await page.emulateMedia({ media: "screen" });
    },
    limitMs,
  );

  test(
    "members see no link to it, and are told that they may not",
    async () => {
      const { page, context } = await scene.open();
      await page.goto(`${scene.url()}/console/acme/access/`);
      await signIn(page, member);
      await page.getByRole("link", { name: "Flows" }).waitFor();
      expect(await page.getByRole("link", { name: "Past" }).count()).toBe(0);
      await page.goto(`${scene.url()}/console/acme/past/`);
      await page.getByRole("button", { name: "Look" }).click();
      await page
        .getByRole("alert")
        .filter({ hasText: /administrator|permission|admin/i })
        .waitFor();
      await context.close();
    },
    limitMs,
  );

  test("no page complained", () => scene.expectQuiet());
});
