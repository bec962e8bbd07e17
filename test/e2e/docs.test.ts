// The pages for people in a real browser that reaches nothing but the control plane: the first account, the
// invitation, the two viewers of the API.

import { expect, test } from "bun:test";
import { join } from "node:path";
import * as v from "valibot";
import { buildAgent, startControlPlane } from "../support/agent.ts";
import { startBrowser, type Browser } from "../support/browser.ts";
import { chromiumPath, inCi, installMissing } from "../support/debian.ts";
import { asRoot } from "../support/engines.ts";
import { makeLan } from "../support/namespaces.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();
const missing = installMissing([chromiumPath, "/usr/sbin/ip"]);
const withBrowser = missing === undefined || inCi ? test : test.skip;
const email = "first@example.org";
const password = "correct horse battery";

asRoot("in a browser without any way out", () => {
  withBrowser(
    "sign in, read, try it out, join",
    async () => {
      if (missing !== undefined) throw new Error(missing);
      using directory = temporaryDirectory();
      using lan = makeLan(["desk"]);
      const desk = lan.host("desk");
      // It believes to be reached by a name that this browser does not know.
      const flags = ["--public-url", "http://control.example"];
      await using plane = await startControlPlane(join(directory.path, "server"), flags, 8420, desk.inside);
      const here = "http://127.0.0.1:8420";
      const local = (link: string) => link.replace("http://control.example", here);
      await using browser = await startBrowser(desk);

      // The link that a new server prints.
      const link = /http:\/\/\S+\/setup\/#\S+/.exec(plane.log())?.[0] ?? "";
      await browser.open(local(link));
      await browser.fill("#email", email);
      await browser.fill("#password", password);
      await browser.click("button");
      await browser.until(`document.querySelector("h1").textContent.startsWith("Welcome, ${email}")`);
      expect(await browser.evaluate("location.href")).toBe(`${here}/setup/`);
      const token = await browser.evaluate(postPassword("/api/token/"));
      const { access } = v.parse(v.looseObject({ access: v.string() }), token);

      // The docs ask for a sign-in first, and say what is wrong with it.
      await browser.open(`${here}/api/docs/`);
      await browser.fill("#email", email);
      await browser.fill("#password", `${password}!`);
      await browser.click("button");
      await browser.until(`document.querySelector("[role=alert]").textContent.includes("No active user")`);
      const refused = browser.complaints.splice(0);
      expect(refused.every((each) => each.includes("401"))).toBe(true);
      await browser.fill("#password", password);
      await browser.click("button");
      await browser.until(`document.querySelectorAll(".opblock").length > 40`);

      // Still there after a reload, and with a session of the console in the same browser.
      await browser.open(`${here}/setup/`);
      expect(await browser.evaluate(postPassword("/api/session/"))).toMatchObject({ email });
      expect(await browser.evaluate(statusOf("/api/user/"))).toBe(200);
      await browser.open(`${here}/api/docs/`);
      await browser.send("Page.reload");
      await browser.until(`document.querySelectorAll(".opblock").length > 40`);
      await expectNoSession(browser);
      await tryItOut(browser, access);

      await browser.open(`${here}/api/redoc/`);
      await browser.until(`document.querySelectorAll("[data-section-id*='operation/']").length > 40`);
      expect(await browser.evaluate("document.querySelector('h1').innerText")).toContain("control plane");
      await expectNoSession(browser);

      // An invitation that a new user accepts.
      await plane.admin(["org", "create", "acme", "--network", "10.77.0.0/16"]);
      const invited = await plane.admin(["member", "create", "acme", "new@example.org", "--json"]);
      const invitation = v.parse(v.looseObject({ link: v.string() }), JSON.parse(invited.stdout));
      await browser.open(local(invitation.link));
      await browser.fill("#password", password);
      await browser.click("button");
      await browser.until(
        `document.querySelector("h1").textContent.startsWith("Welcome to acme, new@example.org")`,
      );

      // Nothing was wanted from elsewhere, and no page had to be stopped by its policy.
      const outside = browser.requested.filter(
        (url) => !url.startsWith(`${here}/`) && !/^(data|blob|about):/.test(url),
      );
      expect(outside).toEqual([]);
      expect(browser.complaints).toEqual([]);
    },
    240_000,
  );
});

const postPassword = (path: string) => `fetch("${path}", {
  method: "POST",
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify({ email: "${email}", password: "${password}" }),
}).then((answer) => answer.json())`;

const statusOf = (path: string, init = "{}") =>
  `fetch("${path}", ${init}).then((answer) => answer.status, () => "no answer")`;

/** Scripts of the page have no session, whatever they try. */
async function expectNoSession(browser: Browser): Promise<void> {
  expect(await browser.evaluate("self.origin")).toBe("null");
  const [plain, withCookies] = await Promise.all([
    browser.evaluate(statusOf("/api/user/")),
    browser.evaluate(statusOf("/api/user/", '{ credentials: "include" }')),
  ]);
  // ReDoc's policy lets its scripts call nothing.
  expect(plain === 401 || plain === "no answer").toBe(true);
  expect(withCookies).toBe("no answer");
  const complaints = browser.complaints.splice(0);
  expect(complaints.filter((each) => !each.includes("/api/user/"))).toEqual([]);
}

/** "Try it out" goes with a pasted token, and with nothing else. */
async function tryItOut(browser: Browser, access: string): Promise<void> {
  const operation = "#operations-user-user_retrieve";
  const live = `document.querySelector("${operation} .live-responses-table")?.innerText`;
  await browser.click(`${operation} .opblock-summary-control`);
  await browser.click(`${operation} .try-out__btn`);
  await browser.click(`${operation} .execute`);
  await browser.until(`${live}?.includes("not_authenticated")`);
  expect(await browser.evaluate(live)).toContain("401");
  expect(browser.complaints.splice(0).every((each) => each.includes("401"))).toBe(true);

  await browser.click(".auth-wrapper .authorize");
  await browser.fill(".auth-container input", access);
  await browser.click(".auth-container .authorize");
  await browser.click(".auth-container .btn-done");
  await browser.click(`${operation} .execute`);
  await browser.until(`${live}?.includes("${email}")`);
  expect(await browser.evaluate(live)).toContain("200");
}
