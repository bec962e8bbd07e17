// The console in Firefox and in WebKit, Safari's engine, over TLS: every page with its data, changes as they happen, the
// keys that pages make, the second factors, and no error in the console of the browser.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { chromium } from "playwright-core";
import * as v from "valibot";
import { totpCode, totpStep } from "../../src/pki/totp.ts";
import { tokenOf } from "../bench/seed.ts";
import { agentJson, buildAgent, startControlPlane, type ControlPlane } from "../support/agent.ts";
import { signIn } from "../support/console.ts";
import {
  askToJoin,
  idOf,
  liveScene,
  machines,
  owner,
  password,
  seedScene,
} from "../support/console-scene.ts";
import { chromiumPath, installMissing } from "../support/debian.ts";
import { bytesOfBase32 } from "../support/factors.ts";
import { freePort } from "../support/free-port.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { until } from "../support/until.ts";
import { startWebDriver, type WebDriver } from "../support/webdriver.ts";

const limitMs = 600_000;
const Waiting = v.object({ registrations: v.array(v.object({ id: v.number(), name: v.string() })) });
const cleanup = new AsyncDisposableStack();
const directory = cleanup.use(temporaryDirectory());
const data = join(directory.path, "data");
let plane: ControlPlane;

/** Safari keeps no session without TLS; and passkeys need a name. */
async function startWithTls(data: string): Promise<ControlPlane> {
  const port = freePort();
  const named = `https://localhost:${port}`;
  return { ...(await startControlPlane(data, ["--tls", "auto", "--public-url", named], port)), url: named };
}

const admin = async (...args: string[]) => {
  const { status, stderr } = await plane.admin(args, password);
  if (status !== 0) throw new Error(`agent admin ${args.join(" ")}: ${stderr}`);
};

beforeAll(async () => {
  buildAgent();
  const missing = installMissing([chromiumPath]);
  if (missing !== undefined) throw new Error(missing);
  await seedScene(data);
  {
    await using before = await startControlPlane(data, ["--webhook-allow", "127.0.0.0/8"]);
    await using browser = await chromium.launch({ executablePath: chromiumPath, args: ["--no-sandbox"] });
    const page = await browser.newPage();
    await page.goto(`${before.url}/console/acme/`);
    await signIn(page, owner, password);
    await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
    await liveScene(page, before.url);
    await askToJoin(page, before.url, "ci-71", ["ci"]);
  }
  plane = cleanup.use(await startWithTls(data));
}, limitMs);
afterAll(() => cleanup.disposeAsync());

/** Each page, its heading, and a text that only its data has. */
const pages: readonly (readonly [path: string, heading: string, text: string])[] = [
  ["acme/", "Overview", "web-5 does not reach app-1"],
  ["acme/nodes/", "Nodes", "app-12"],
  ["acme/nodes/?search=db-", "Nodes", "db-12"],
  [`acme/nodes/${idOf("web-5")}/`, "web-5", "broken"],
  ["acme/nodes/add/", "Add a node", "Make the join key"],
  ["acme/nodes/waiting/", "Nodes", "ci-71"],
  ["acme/phones/", "Phones", "Make the file"],
  ["acme/map/", "Map", "Slowest pairs of groups"],
  ["acme/access/", "Access", "nodes in app may reach nodes in db on tcp 5432"],
  // WebKit leaves out of `innerText` what is below the window: the newest event.
  ["acme/activity/", "Activity", "a member"],
  ["acme/certificates/", "Certificates", "the overlay"],
  ["acme/people/", "Members", "noor@example.org"],
  ["acme/tokens/", "Keys and tokens", "terraform"],
  ["acme/alarms/", "Alarms", "http://127.0.0.1:9/hook"],
  ["acme/settings/", "Settings", "10.64.0.0/10"],
  ["-/account/", "Account", "this browser"],
  ["-/organizations/", "Organizations", "10.64.0.0/10"],
  ["-/users/", "Users", "ada@example.org"],
  ["-/servers/", "Servers", "SQLite"],
  ["-/join/", "Let a machine join", "agent up"],
  ["-/command-line/", "Sign in the command line", "code"],
];

const text = (words: string) =>
  `document.body.innerText.replaceAll(/\\s+/g, " ").includes(${JSON.stringify(words)})`;
const heading = (words: string) => `document.querySelector("h1")?.innerText === ${JSON.stringify(words)}`;
const button = (name: string) => `//button[normalize-space()='${name}']`;
const field = (label: string) => `//label[span[normalize-space()='${label}']]//input`;

describe.each(["firefox", "webkit"] as const)("the console in %s", (engine) => {
  const email = `${engine}@example.org`;
  let secret: Uint8Array;
  let browser: WebDriver;

  const open = (path: string) => browser.open(`${plane.url}/console/${path}`);
  const signInHere = async () => {
    await browser.fill(field("E-mail address"), email);
    await browser.fill(field("Password"), password);
    await browser.click(button("Continue"));
  };
  const signOut = async () => {
    await browser.click("//*[@aria-label='Your account']");
    await browser.click(button("Sign out"));
    await browser.until(heading("Sign in"));
  };

  beforeAll(async () => {
    await admin("user", "create", email, "--staff", "--password-file", "-");
    await admin("member", "create", "acme", email, "--role", "owner");
    browser = await startWebDriver(engine);
  }, limitMs);
  afterAll(() => browser[Symbol.asyncDispose]());

  test(
    "a person signs in, and every page shows its data, on a screen and on a phone",
    async () => {
      await open("acme/");
      await signInHere();
      await browser.until(heading("Overview"));
      for (const width of [1280, 360]) {
        await browser.setWidth(width);
        for (const [path, title, words] of pages) {
          await open(path);
          await browser.until(`${heading(title)} && ${text(words)}`);
          const overflow = await browser.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth",
          );
          expect([path, width, overflow]).toEqual([path, width, 0]);
        }
      }
      await browser.setWidth(1280);
    },
    limitMs,
  );

  test(
    "what happens elsewhere is seen as it happens, also after the way back",
    async () => {
      await open("acme/activity/");
      await browser.until(`${text("live")} && !${text("not live")}`);
      await admin("node", "create", "acme", `${engine}-1`);
      await browser.until(text(`${engine}-1`));
      await browser.open(`${plane.url}/reset/`);
      await browser.until(heading("Forgot your password?"));
      await browser.evaluate("void setTimeout(() => history.back())");
      await browser.until(heading("Activity"));
      await admin("node", "create", "acme", `${engine}-2`);
      await browser.until(text(`${engine}-2`));
    },
    limitMs,
  );

  test(
    "the map is drawn while machines check in",
    async () => {
      const drawn = new AbortController();
      const checkIns = (async () => {
        for (let at = 0; !drawn.signal.aborted; at++) {
          const { id } = machines[at % 200] ?? { id: 1 };
          await fetch(`${plane.url}/api/org/acme/nodes/${id}/checkin/`, {
            method: "POST",
            headers: { "Content-Type": "application/json", Authorization: `Bearer ${tokenOf(id)}` },
            body: JSON.stringify({ version: "0.1.0", uptime: 4000 }),
            tls: { rejectUnauthorized: false },
          });
          await Bun.sleep(100);
        }
      })();
      try {
        await open("acme/map/");
        await browser.until('document.querySelector("main svg.draw a")');
      } finally {
        drawn.abort();
        await checkIns;
      }
    },
    limitMs,
  );

  test(
    "the browser makes the key of a phone",
    async () => {
      await open("acme/phones/");
      await browser.fill(field("Name"), `phone-of-${engine}`);
      await browser.click(button("Make the file"));
      // All machines wait for approval here.
      await browser.until(text("waits for an administrator's approval"));
      const { stdout } = await plane.admin(["registration", "list", "acme", "--json"]);
      const { registrations } = v.parse(Waiting, JSON.parse(stdout));
      const { id } = registrations.find(({ name }) => name === `phone-of-${engine}`) ?? { id: 0 };
      await admin("registration", "approve", "acme", String(id));
      await browser.click(button("Download the file"));
      await browser.until(text("It was offered for download."));
    },
    limitMs,
  );

  test(
    "rules are edited as a draft, with the pairs that gain access",
    async () => {
      await open("acme/access/");
      await browser.click(button("Add a rule"));
      await browser.fill(field("From"), "group:ci");
      await browser.fill(field("To"), "group:db");
      // Leaves the field, whose suggestions WebKit shows above the button.
      await browser.press("\uE004");
      await browser.click(button("Add to the draft"));
      await browser.until(text(" gain"));
      await browser.click(button("Discard"));
      await browser.click(button("Discard them"));
    },
    limitMs,
  );

  test(
    "keys open pages, the search and the palette; a dialog returns the focus",
    async () => {
      await open("acme/");
      await browser.until(heading("Overview"));
      await browser.press("g", "m");
      await browser.until(`${heading("Nodes")} && document.querySelector("[type=search]") !== null`);
      await browser.press("/");
      await browser.until('document.activeElement.type === "search"');
      await open("acme/");
      await browser.until(heading("Overview"));
      await browser.chord("\uE009", "k");
      await browser.until('document.activeElement.closest("dialog") !== null');
      await browser.press(..."web-12".split(""));
      await browser.until("document.querySelectorAll('[role=option]').length > 0");
      await browser.until(`document.querySelector("[role=listbox]").innerText.includes("web-12")`);
      await browser.press("\uE007");
      await browser.until(heading("web-12"));
      await browser.click(button("Revoke"));
      await browser.press("\uE00C");
      await browser.until('document.activeElement.innerText === "Revoke"');
    },
    limitMs,
  );

  test(
    "an authenticator app is set up, and asked for at the next sign-in",
    async () => {
      await open("-/account/");
      await browser.click(button("Set up an app"));
      await browser.fill(field("Your password"), password);
      await browser.click(button("Show the QR code"));
      await browser.until('document.querySelector("dialog .cmd code")');
      const shown = await browser.evaluate('document.querySelector("dialog .cmd code").innerText');
      secret = bytesOfBase32(String(shown));
      await browser.fill(field("The code that the app shows now"), totpCode(secret, totpStep(Date.now())));
      await browser.click(button("Confirm"));
      await browser.click(button("I have kept them"));
      await signOut();
      await signInHere();
      const next = totpCode(secret, totpStep(Date.now()) + 1);
      await browser.fill(field("Code of your authenticator app"), next);
      await browser.click(button("Sign in"));
      await browser.until(heading("Overview"));
    },
    limitMs,
  );

  test.if(engine === "firefox")(
    "a passkey is added, and signs in alone",
    async () => {
      await browser.addPasskeyDevice();
      await open("-/account/");
      await browser.click(button("Add a passkey"));
      await browser.fill(field("Name"), "laptop");
      await browser.click(button("Add the passkey"));
      await browser.until(`document.querySelector("dialog") === null && ${text("laptop")}`);
      await signOut();
      await browser.click(button("With a passkey"));
      await browser.until(heading("Overview"));
    },
    limitMs,
  );

  test(
    "links make the first user, and a member of an invited person",
    async () => {
      const path = join(directory.path, engine);
      await using fresh = await startWithTls(path);
      const link = await until(() => /https:\/\/\S+\/setup\/#\S+/.exec(fresh.log())?.[0]);
      await browser.open(link);
      await browser.fill(field("E-mail"), owner);
      await browser.fill(field("Password, of at least 8 characters"), password);
      await browser.click(button("Create the user"));
      await browser.until(heading(`Welcome, ${owner}`));
      await fresh.admin(["org", "create", "beta", "--network", "10.78.0.0/16", "--owner", owner]);
      const argv = ["admin", "member", "create", "beta", "sam@example.org", "--role", "member"];
      const invited = await agentJson([...argv, "--data-dir", path]);
      await browser.open(String(invited["link"]));
      await browser.until(heading("You are invited"));
      await browser.fill(field("Password, of at least 8 characters"), password);
      await browser.click(button("Join"));
      await browser.until(heading("Welcome to beta, sam@example.org"));
    },
    limitMs,
  );

  test("the browser logged no error", async () => {
    await open("acme/");
    expect(await browser.complaints()).toEqual([]);
  });
});
