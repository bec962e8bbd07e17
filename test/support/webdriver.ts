// Debian's Firefox and WebKit (Safari's engine), driven by the commands of WebDriver: Firefox takes them by Marionette, its
// own protocol, WebKit by the HTTP of its driver. Playwright's locators are for Chromium: it drives only patched builds of
// the two.

import { connect } from "node:net";
import { join } from "node:path";
import * as v from "valibot";
import { cleanEnvironment } from "./agent.ts";
import { installMissing } from "./debian.ts";
import { freePort } from "./free-port.ts";
import { temporaryDirectory } from "./temporary.ts";
import { until } from "./until.ts";

const firefox = "/usr/bin/firefox-esr";
const miniBrowser = "/usr/lib/x86_64-linux-gnu/webkit2gtk-4.1/MiniBrowser";
const [xvfb, webkitDriver] = ["/usr/bin/Xvfb", "/usr/bin/WebKitWebDriver"];

export type EngineName = "firefox" | "webkit";

/** A command by its names in both protocols. */
type Send = (marionette: string, http: string, params?: object) => Promise<unknown>;
type Engine = {
  send: Send;
  opened?(): Promise<void>;
  /** Errors that pages logged so far, refusals of their policy among them. */
  complaints(): Promise<string[]>;
  setWidth(width: number): Promise<void>;
};

export type WebDriver = AsyncDisposable & {
  open(url: string): Promise<void>;
  /** The value of an expression in the page, awaited. */
  evaluate(expression: string): Promise<unknown>;
  /** Waits until the expression is true. */
  until(expression: string): Promise<void>;
  /** Clicks the first element that the XPath finds, once it is there. */
  click(xpath: string): Promise<void>;
  /** Replaces the text of a field. */
  fill(xpath: string, text: string): Promise<void>;
  /** Presses the keys one after another, as a user: characters, or the code points of WebDriver. */
  press(...keys: string[]): Promise<void>;
  /** Presses the key while the other one is held. */
  chord(held: string, key: string): Promise<void>;
  setWidth(width: number): Promise<void>;
  complaints(): Promise<string[]>;
  /** Only Firefox has one: adds a device with passkeys that agrees at once. */
  addPasskeyDevice(): Promise<void>;
};

const elementKey = "element-6066-11e4-a52e-4f735466cecf";
const Element = v.object({ [elementKey]: v.string() });

/** Starts a browser with a new profile. */
export async function startWebDriver(name: EngineName): Promise<WebDriver> {
  await using cleanup = new AsyncDisposableStack();
  const engine = await (name === "firefox" ? startFirefox : startWebKit)(cleanup);
  const { send } = engine;
  await engine.setWidth(1280);
  const evaluate = async (expression: string) =>
    valueOf(
      await send("WebDriver:ExecuteAsyncScript", "execute/async", {
        script: `const done = arguments[0];
          (async () => (${expression}))().then((value) => done({ value }), (error) => done({ error: String(error) }));`,
        args: [],
      }),
      expression,
    );
  const holds = async (expression: string) => {
    // Evaluation fails while a page is being replaced.
    const isTrue = () =>
      evaluate(`Boolean(${expression})`).then(
        (value) => value === true,
        () => false,
      );
    try {
      await until(isTrue, { what: expression });
    } catch (error) {
      const text = await evaluate("location.href + '\\n' + document.body.innerText.slice(0, 3000)").catch(
        String,
      );
      throw new Error(
        `${name}: ${String(error)}\n${String(text)}\n${(await engine.complaints()).join("\n")}`,
        { cause: error },
      );
    }
  };
  /** Works on the first element that the XPath finds: it may be there, or be replaced, a moment later. */
  const onceThere = async (xpath: string, work: (id: string) => Promise<unknown>) => {
    let last: unknown;
    const isDone = async () => {
      try {
        const found = await send("WebDriver:FindElement", "element", { using: "xpath", value: xpath });
        await work(v.parse(Element, found)[elementKey]);
        return true;
      } catch (error) {
        last = error;
        return false;
      }
    };
    await until(isDone, { what: `${name}: ${xpath}` }).catch((error: unknown) => {
      throw new Error(`${String(error)}: ${String(last)}`, { cause: error });
    });
  };
  const down = (value: string) => ({ type: "keyDown", value });
  const up = (value: string) => ({ type: "keyUp", value });
  const act = async (actions: readonly object[]) => {
    await send("WebDriver:PerformActions", "actions", { actions: [{ type: "key", id: "keys", actions }] });
  };
  const moved = cleanup.move();
  return {
    ...engine,
    evaluate,
    until: holds,
    async open(url) {
      await send("WebDriver:Navigate", "url", { url });
      await engine.opened?.();
    },
    async click(xpath) {
      await onceThere(xpath, (id) => send("WebDriver:ElementClick", `element/${id}/click`, { id }));
    },
    async fill(xpath, text) {
      await onceThere(xpath, async (id) => {
        await send("WebDriver:ElementClear", `element/${id}/clear`, { id });
        await send("WebDriver:ElementSendKeys", `element/${id}/value`, { id, text });
      });
    },
    press: (...keys) => act(keys.flatMap((key) => [down(key), up(key)])),
    chord: (held, key) => act([down(held), down(key), up(key), up(held)]),
    async addPasskeyDevice() {
      const device = {
        protocol: "ctap2_1",
        transport: "internal",
        hasResidentKey: true,
        hasUserVerification: true,
      };
      const params = { ...device, isUserConsenting: true, isUserVerified: true };
      await send("WebAuthn:AddVirtualAuthenticator", "webauthn/authenticator", params);
    },
    [Symbol.asyncDispose]: () => moved.disposeAsync(),
  };
}

function valueOf(answer: unknown, expression: string): unknown {
  const { value, error } = v.parse(
    v.object({ value: v.optional(v.unknown()), error: v.optional(v.string()) }),
    answer,
  );
  if (error !== undefined) throw new Error(`${expression}: ${error}`);
  return value;
}

function install(programs: readonly string[]): void {
  const missing = installMissing(programs);
  if (missing !== undefined) throw new Error(missing);
}

type Child = Bun.Subprocess<"ignore", "pipe", "ignore">;

function start(cleanup: AsyncDisposableStack, argv: string[], env: Record<string, string>): Child {
  const child = Bun.spawn(argv, {
    env: cleanEnvironment(env),
    stdin: "ignore",
    stdout: "pipe",
    stderr: "ignore",
  });
  cleanup.defer(async () => {
    child.kill();
    await child.exited;
  });
  return child;
}

async function startFirefox(cleanup: AsyncDisposableStack): Promise<Engine> {
  install([firefox]);
  const profile = cleanup.use(temporaryDirectory()).path;
  const prefs = {
    "marionette.port": 0,
    // Virtual devices with passkeys.
    "security.webauth.webauthn_enable_softtoken": true,
    "security.webauth.webauthn_enable_usbtoken": false,
  };
  const lines = Object.entries(prefs).map(([key, value]) => `user_pref("${key}", ${value});\n`);
  await Bun.write(join(profile, "user.js"), lines.join(""));
  const flags = [
    "--headless",
    "--marionette",
    "--remote-allow-system-access",
    "--no-remote",
    "--profile",
    profile,
  ];
  start(cleanup, [firefox, ...flags], { HOME: profile });
  const portFile = Bun.file(join(profile, "MarionetteActivePort"));
  const port = await until(async () => Number(await portFile.text().catch(() => "")) || undefined);
  const marionette = await connectMarionette(port);
  cleanup.defer(() => marionette.close());
  const send: Send = (command, _http, params = {}) => marionette.send(command, params);
  await send("WebDriver:NewSession", "", { acceptInsecureCerts: true });
  /** Runs in the browser's own window. */
  const inChrome = async (script: string, args: unknown[] = []) => {
    await send("Marionette:SetContext", "", { value: "chrome" });
    try {
      return await send("WebDriver:ExecuteScript", "", { script, args });
    } finally {
      await send("Marionette:SetContext", "", { value: "content" });
    }
  };
  return {
    send,
    async complaints() {
      const script = `return Services.console.getMessageArray().map((each) =>
        each instanceof Ci.nsIScriptError && !(each.flags & 1) ? each.category + ": " + each.errorMessage + " " + each.sourceName : "")`;
      return v.parse(v.array(v.string()), await inChrome(script)).filter(isOfPage);
    },
    async setWidth(width) {
      await send("WebDriver:SetWindowRect", "", { width: 1280, height: 900 });
      // A window has a least width. Its page may be narrower.
      await inChrome("gBrowser.selectedBrowser.style.maxWidth = arguments[0] + 'px'", [width]);
    },
  };
}

/** Firefox logs errors of its own parts, too. */
function isOfPage(message: string): boolean {
  return /https?:\/\//.test(message);
}

type Marionette = { send(command: string, params: object): Promise<unknown>; close(): void };

/** Each message is its length in bytes, a colon, and JSON. */
async function connectMarionette(port: number): Promise<Marionette> {
  const waiting = new Map<number, PromiseWithResolvers<unknown>>();
  const socket = connect(port, "127.0.0.1");
  let rest = Buffer.alloc(0);
  socket.on("data", (chunk: Buffer) => {
    rest = Buffer.concat([rest, chunk]);
    for (;;) {
      const colon = rest.indexOf(":");
      const end = colon + 1 + Number(rest.subarray(0, Math.max(colon, 0)).toString());
      if (colon < 0 || rest.length < end) return;
      take(JSON.parse(rest.subarray(colon + 1, end).toString()));
      rest = rest.subarray(end);
    }
  });
  socket.on("close", () => {
    for (const { reject } of waiting.values()) reject(new Error("Firefox has ended"));
  });
  const Answer = v.tuple([
    v.literal(1),
    v.number(),
    v.nullable(v.looseObject({ message: v.string() })),
    v.unknown(),
  ]);
  const take = (message: unknown) => {
    // The first one says who it is.
    if (!Array.isArray(message)) return;
    const [, id, error, result] = v.parse(Answer, message);
    const asked = waiting.get(id);
    waiting.delete(id);
    if (error !== null) asked?.reject(new Error(error.message));
    else asked?.resolve(isValue(result) ? result.value : result);
  };
  await new Promise<void>((resolve, reject) => socket.once("connect", resolve).once("error", reject));
  let last = 0;
  return {
    send(command, params) {
      const asked = Promise.withResolvers<unknown>();
      waiting.set(++last, asked);
      const text = JSON.stringify([0, last, command, params]);
      socket.write(`${Buffer.byteLength(text)}:${text}`);
      return asked.promise;
    },
    close: () => void socket.destroy(),
  };
}

function isValue(result: unknown): result is { value: unknown } {
  return typeof result === "object" && result !== null && Object.keys(result).join() === "value";
}

async function startWebKit(cleanup: AsyncDisposableStack): Promise<Engine> {
  install([xvfb, webkitDriver]);
  const home = cleanup.use(temporaryDirectory()).path;
  const screen = start(cleanup, [xvfb, "-displayfd", "1", "-screen", "0", "1280x900x24"], {});
  const display = `:${(await firstLine(screen)).trim()}`;
  // A toolbar with its usual sizes is wider than a phone.
  await Bun.write(join(home, ".config/gtk-3.0/gtk.css"), "* { min-width: 0; padding: 0; margin: 0; }");
  const port = freePort();
  const env = {
    HOME: home,
    XDG_RUNTIME_DIR: home,
    DISPLAY: display,
  };
  start(cleanup, [webkitDriver, `--port=${port}`], env);
  const request = async (method: string, path: string, body?: object) => {
    const answer = await fetch(`http://127.0.0.1:${port}/session${path}`, {
      method,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const { value } = v.parse(v.object({ value: v.unknown() }), await answer.json());
    if (!answer.ok) throw new Error(JSON.stringify(value));
    return value;
  };
  const asked = {
    capabilities: {
      alwaysMatch: {
        acceptInsecureCerts: true,
        "webkitgtk:browserOptions": { binary: miniBrowser, args: ["--automation"] },
      },
    },
  };
  const made = await until(() => request("POST", "", asked).catch(() => undefined));
  const { sessionId } = v.parse(v.looseObject({ sessionId: v.string() }), made);
  cleanup.defer(async () => void (await request("DELETE", `/${sessionId}`)));
  const send: Send = (_marionette, path, params = {}) => request("POST", `/${sessionId}/${path}`, params);
  return {
    send,
    async opened() {
      await send("", "execute/sync", { script: listen, args: [] });
    },
    async complaints() {
      const kept = await send("", "execute/sync", { script: "return sessionStorage.complaints", args: [] });
      return v
        .parse(v.string(), kept ?? "")
        .split("\n")
        .filter((line) => line !== "");
    },
    async setWidth(width) {
      await send("", "window/rect", { x: 0, y: 0, width, height: 900 });
    },
  };
}

/** WebKit's driver tells nothing of the console, so the page listens, from the moment it is loaded. */
const listen = `
  const keep = (line) => void (sessionStorage.complaints = (sessionStorage.complaints ?? "") + line + "\\n");
  addEventListener("error", ({ message, filename }) => keep(message + " " + filename));
  addEventListener("unhandledrejection", ({ reason }) => keep(String(reason)));
  addEventListener("securitypolicyviolation", (event) => keep(event.violatedDirective + " " + event.blockedURI));`;

async function firstLine(child: Child): Promise<string> {
  const reader = child.stdout.getReader();
  let text = "";
  while (!text.includes("\n")) {
    const { value, done } = await reader.read();
    if (done) throw new Error(`ended with ${await child.exited}`);
    text += new TextDecoder().decode(value);
  }
  reader.releaseLock();
  return text;
}
