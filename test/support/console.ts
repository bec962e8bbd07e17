// The console of a control plane of the compiled executable, in a headless Chromium that Playwright controls. A page that
// asks another host than this machine complains, and every complaint fails the test that ends with `expectQuiet`.

import { expect } from "bun:test";
import { join } from "node:path";
import axe from "axe-core";
import { chromium, type Browser, type BrowserContext, type Page } from "playwright-core";
import * as v from "valibot";
import { RegisterAnswer } from "../../src/protocol/registration.ts";
import { agentJson, buildAgent, runAgent, startControlPlane, type ControlPlane } from "./agent.ts";
import { placesBelow, registerDesktop } from "./daemon.ts";
import { chromiumPath, installMissing } from "./debian.ts";
import { freePort } from "./free-port.ts";
import { makeKeys } from "./nodes.ts";
import { temporaryDirectory } from "./temporary.ts";
import { until } from "./until.ts";

export const owner = "owner@example.org";
/** Of all users that `startConsole` creates. */
export const password = "correct horse battery";

export type ConsoleBrowser = AsyncDisposable & {
  browser: Browser;
  /** A new browser profile with one page. */
  open(options?: Parameters<Browser["newContext"]>[0]): Promise<{ context: BrowserContext; page: Page }>;
  /** Fails if a page threw, logged an error, was refused something by its policy, or asked another host. */
  expectQuiet(): void;
};

/** Refusals, and a server that is away, also a provider's (502), are part of a test: the browser logs each as an error. */
const expected =
  /Failed to load resource: (the server responded with a status of (4\d\d|502)|net::ERR_CONNECTION_REFUSED)/;

/** Notes that the stream of events is open. */
const noteStream = `{
  const { addEventListener } = MessagePort.prototype;
  MessagePort.prototype.addEventListener = function (type, hear, ...more) {
    const note = (message) => {
      if (message.data?.kind === "open") globalThis.isStreamOpen = true;
      hear.call(this, message);
    };
    addEventListener.call(this, type, note, ...more);
  };
}`;

/** Waits until the page, since it was loaded, hears what happens. */
export async function untilLive(page: Page): Promise<void> {
  await until(() => page.evaluate<boolean>("globalThis.isStreamOpen === true"), {
    what: "the stream of events",
  });
}

export async function startConsoleBrowser(): Promise<ConsoleBrowser> {
  const missing = installMissing([chromiumPath]);
  if (missing !== undefined) throw new Error(missing);
  const browser = await chromium.launch({
    executablePath: chromiumPath,
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--disable-background-networking",
      "--disable-sync",
      // All pages are of one control plane: one process renders them, which takes a sixth less processor time.
      "--renderer-process-limit=1",
      "--disable-site-isolation-trials",
      "--disable-features=IsolateOrigins,site-per-process",
    ],
  });
  const complaints: string[] = [];
  return {
    browser,
    async open(options) {
      const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
      // Below the limit of tests, so that the step that waits is named.
      context.setDefaultTimeout(45_000);
      await context.addInitScript(noteStream);
      const page = await context.newPage();
      context.on("console", (message) => {
        if (message.type() === "error" && !expected.test(message.text())) complaints.push(message.text());
      });
      context.on("weberror", (error) => complaints.push(String(error.error())));
      context.on("request", (request) => {
        const { hostname, protocol } = new URL(request.url());
        if (/^https?:$/.test(protocol) && hostname !== "127.0.0.1" && hostname !== "localhost")
          complaints.push(`asked ${request.url()}`);
      });
      return { context, page };
    },
    expectQuiet() {
      expect(complaints).toEqual([]);
    },
    [Symbol.asyncDispose]: () => browser.close(),
  };
}

export type Console = AsyncDisposable &
  ConsoleBrowser & {
    /** The first page. */
    page: Page;
    context: BrowserContext;
    /** Of the control plane. */
    url(): string;
    /** Its directory. */
    data: string;
    /** Runs `agent admin …` on its data, which must succeed. Returns what it prints. */
    admin(args: readonly string[], input?: string): Promise<string>;
    adminJson(args: readonly string[]): Promise<Record<string, unknown>>;
    /** Registers a machine. It does not start. */
    register(name: string, token: string): Promise<void>;
    /** Stops the control plane and starts it again on the same port, after the given work. */
    restart(meanwhile: () => Promise<void>): Promise<void>;
  };

/**
 * Starts a control plane with the organization acme and its owner, and a browser. On a port that the kernel gives to no
 * connection: it must be free when the control plane starts again.
 */
export async function startConsole(flags: readonly string[] = [], port = freePort()): Promise<Console> {
  buildAgent();
  await using cleanup = new AsyncDisposableStack();
  const directory = cleanup.use(temporaryDirectory());
  const data = join(directory.path, "data");
  const admin = async (args: readonly string[], input = "") => {
    const { status, stdout, stderr } = await runAgent(["admin", ...args, "--data-dir", data], { input });
    if (status !== 0) throw new Error(`agent admin ${args.join(" ")}: exit ${status}\n${stdout}${stderr}`);
    return stdout;
  };
  await admin(["user", "create", owner, "--password-file", "-"], password);
  await admin(["org", "create", "acme", "--network", "10.77.0.0/16", "--owner", owner]);
  let plane: ControlPlane = await startControlPlane(data, flags, port);
  cleanup.defer(() => plane.stop().then(() => undefined));
  const browser = cleanup.use(await startConsoleBrowser());
  const first = await browser.open();
  const started = cleanup.move();
  return {
    ...browser,
    ...first,
    url: () => plane.url,
    data,
    admin,
    adminJson: (args) => agentJson(["admin", ...args, "--data-dir", data]),
    register: (name, token) =>
      registerDesktop(
        { slug: "acme", plane },
        placesBelow(join(directory.path, name), "/usr/bin/nebula"),
        token,
        name,
      ),
    async restart(meanwhile) {
      await plane.stop();
      await meanwhile();
      plane = await startControlPlane(data, flags, Number(new URL(plane.url).port));
    },
    [Symbol.asyncDispose]: () => started.disposeAsync(),
  };
}

/** Fills in the form that a page shows to a browser without a session. */
export async function signIn(page: Page, email = owner, secret = password): Promise<void> {
  await page.getByLabel("E-mail").fill(email);
  await page.getByLabel("Password").fill(secret);
  await page.getByRole("button", { name: "Continue", exact: true }).click();
}

/** The join key that the page Add a node shows. */
export async function shownJoinKey(page: Page): Promise<string> {
  const line = page.getByText(/agent up oaj1/);
  return ((await line.textContent()) ?? "").replace(/^.* up /, "").trim();
}

/** Opens the page with this title by the navigation. */
export async function openPage(page: Page, title: string): Promise<void> {
  await page.getByRole("navigation").getByRole("link", { name: title }).click();
  await page.getByRole("heading", { level: 1, name: title }).waitFor();
}

/** Opens the question whether the thing that the page shows is deleted. */
export async function askToDelete(page: Page): Promise<void> {
  await page.getByLabel("More", { exact: true }).click();
  await page.getByRole("button", { name: "Delete…" }).click();
}

export const rowOf = (page: Page, text: string) => page.getByRole("row").filter({ hasText: text });

/** Expects the command behind the icon of the page's title, or of a panel. */
export async function fromTerminal(page: Page, command: string, panel?: string): Promise<void> {
  const head = page.locator(panel === undefined ? "main > .top" : "main .panel > header");
  await head
    .filter({ hasText: panel ?? "" })
    .getByRole("button", { name: "From the terminal" })
    .click();
  await page.getByRole("dialog").getByText(command, { exact: true }).waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
}

/** Opens the page of the account by its menu. */
export async function openAccount(page: Page): Promise<void> {
  await page.getByLabel("Your account").click();
  await page.getByRole("link", { name: "Account" }).click();
}

/** Ends the session by the menu of the account. */
export async function signOut(page: Page): Promise<void> {
  await page.getByLabel("Your account").click();
  await page.getByRole("navigation").getByRole("button", { name: "Sign out" }).click();
}

/** A rule of acme. `flags`: as one text. */
export const addRule = ({ admin }: Pick<Console, "admin">, flags: string) =>
  admin(["rule", "create", "acme", ...flags.split(" ")]);

/** Creates a user, and makes it a member of acme. */
export async function addMember({ admin }: Pick<Console, "admin">, email: string): Promise<void> {
  await admin(["user", "create", email, "--password-file", "-"], password);
  await admin(["member", "create", "acme", email, "--role", "member"]);
}

/** Requests of the page to these addresses wait until the returned function is called. */
export async function holdRequests(page: Page, addresses: string | RegExp): Promise<() => void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  await page.route(addresses, (route) => promise.then(() => route.continue()));
  return resolve;
}

/** A machine that speaks to the API itself. `report` sends the paths to its peers. */
export async function speakingMachine(
  { adminJson, url }: Pick<Console, "adminJson" | "url">,
  name: string,
  groups: readonly string[] = [],
  roles: object = {},
) {
  const flags = [...groups.flatMap((group) => ["--group", group]), "--lighthouse"];
  const made = await adminJson(["token", "create", "acme", ...flags]);
  const post = async (path: string, body: object, token?: string) => {
    const answer = await fetch(`${url()}/api/org/acme/nodes/${path}`, {
      method: "POST",
      headers: {
        "Content-Type": "application/json",
        ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }),
      },
      body: JSON.stringify(body),
    });
    if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
    return answer.json();
  };
  const body = { name, ...roles, ...(await makeKeys(name)), registration_token: made["token"] };
  const { node, api_token, config } = v.parse(RegisterAnswer, await post("register/", body));
  const checkin = (news: object) =>
    post(`${node.id}/checkin/`, { version: "1.0.0", uptime: 7, ...news }, api_token);
  const report = (changed: readonly object[]) => checkin({ paths: { whole: true, changed } });
  /** Reports that it has applied the files of its registration. */
  const applied = () => checkin({ config_version: config.config_version });
  return { id: node.id, address: node.ip_address, checkin, report, applied };
}

/** For `WebAuthn.addVirtualAuthenticator` of the DevTools protocol: a device with passkeys that agrees at once. */
export const virtualDevice = {
  options: {
    protocol: "ctap2",
    transport: "internal",
    hasResidentKey: true,
    hasUserVerification: true,
    isUserVerified: true,
    automaticPresenceSimulation: true,
  },
} as const;

/** What axe finds wrong in the page, as text, after everything is loaded. */
export async function violationsIn(page: Page): Promise<unknown> {
  await until(async () => (await page.locator("[aria-busy=true]").count()) === 0);
  // A color on its way to another one has the contrast of neither.
  await page.evaluate(`Promise.all(document.getAnimations()
    .filter((each) => each.effect.getTiming().iterations !== Infinity)
    .map((each) => each.finished.catch(() => undefined)))`);
  return page.evaluate(`(async () => {
    ${axe.source};
    ${violations("{}")}
  })()`);
}

/**
 * The same in both color schemes, without a second visit: the page takes over a change of the scheme. The dark one has
 * other colors and nothing else (test/console/style.test.ts), so only the rules about colors run again.
 */
export async function violationsInSchemes(page: Page): Promise<unknown> {
  // Grounds change at once, not in steps that axe would see.
  await page.emulateMedia({ colorScheme: "light", reducedMotion: "reduce" });
  const light = await violationsIn(page);
  await page.emulateMedia({ colorScheme: "dark" });
  const dark = await page.evaluate(`(async () => { ${violations(colors)} })()`);
  await page.emulateMedia({ colorScheme: "light" });
  return { light, dark };
}

/** Of axe's rules about colors, those that it runs by default. */
const colors = '{ runOnly: { type: "rule", values: ["color-contrast", "link-in-text-block"] } }';
const violations = (options: string) => `
  const { violations } = await axe.run({ resultTypes: ["violations"], ...${options} });
  return violations.map(({ id, nodes }) => id + ": " + nodes.map(({ html }) => html).join(" "));`;

/** What `violationsInSchemes` finds in a page without faults. */
export const noViolations = { light: [], dark: [] };

/** Lists and tables that scroll sideways, and cards that do not show all of their row. */
export async function cutListsIn(page: Page): Promise<unknown> {
  return page.evaluate(`[
    ...[...document.querySelectorAll(".wide:not(:has(.matrix))")].filter((each) => each.scrollWidth > each.clientWidth),
    ...[...document.querySelectorAll(".cards .body .row")].filter((each) => each.scrollHeight > each.clientHeight),
  ].map((each) => each.textContent)`);
}

/** How many pixels the page is wider than its window. */
export async function overflowOf(page: Page): Promise<number> {
  return Number(
    await page.evaluate(
      "document.documentElement.scrollWidth - document.documentElement.getBoundingClientRect().width",
    ),
  );
}
