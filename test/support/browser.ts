// A headless Chromium in a host of a test, controlled by the DevTools protocol over its pipe (messages end with a zero
// byte). It uses the network of its host.

import { spawn } from "node:child_process";
import * as v from "valibot";
import { chromiumPath } from "./debian.ts";
import type { Host } from "./namespaces.ts";
import { temporaryDirectory } from "./temporary.ts";

const Message = v.looseObject({
  id: v.optional(v.number()),
  method: v.optional(v.string()),
  params: v.optional(v.unknown()),
  result: v.optional(v.unknown()),
  error: v.optional(v.looseObject({ message: v.string() })),
});
const Evaluated = v.looseObject({
  result: v.looseObject({ value: v.optional(v.unknown()) }),
  exceptionDetails: v.optional(v.looseObject({ text: v.string() })),
});
const Target = v.looseObject({ targetId: v.string() });
const Session = v.looseObject({ sessionId: v.string() });
const Logged = v.looseObject({ entry: v.looseObject({ level: v.string() }) });
const Sent = v.looseObject({ request: v.looseObject({ url: v.string() }) });

export type Browser = AsyncDisposable & {
  /** URLs of all requests so far. */
  requested: string[];
  /** Errors of the pages: refused by their policy, thrown, or logged as errors. */
  complaints: string[];
  /** A command of the DevTools protocol to the page. */
  send(method: string, params?: object): Promise<unknown>;
  open(url: string): Promise<void>;
  /** The value of an expression in the page. */
  evaluate(expression: string): Promise<unknown>;
  /** Waits until the expression is true. */
  until(expression: string): Promise<void>;
  /** Types into the field, with the events of a user. */
  fill(selector: string, text: string): Promise<void>;
  click(selector: string): Promise<void>;
};

export async function startBrowser(host: Host): Promise<Browser> {
  const directory = temporaryDirectory();
  const flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
  const quiet = ["--no-first-run", "--disable-background-networking", "--disable-component-update"];
  const own = [`--user-data-dir=${directory.path}`, "--remote-debugging-pipe"];
  const [program = "", ...argv] = host.inside([chromiumPath, ...flags, ...quiet, ...own]);
  const child = spawn(program, argv, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
  const line = openLine(child.stdio[3], child.stdio[4]);
  const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const { targetId } = v.parse(Target, await line.send("Target.createTarget", { url: "about:blank" }));
  const attached = await line.send("Target.attachToTarget", { targetId, flatten: true });
  const { sessionId } = v.parse(Session, attached);
  const send = (method: string, params: object = {}) => line.send(method, params, sessionId);
  for (const domain of ["Page", "Runtime", "Network", "Log"]) await send(`${domain}.enable`);

  const evaluate = async (expression: string) => {
    const given = { expression, awaitPromise: true, returnByValue: true };
    const { result, exceptionDetails } = v.parse(Evaluated, await send("Runtime.evaluate", given));
    if (exceptionDetails !== undefined) throw new Error(`${expression}: ${JSON.stringify(exceptionDetails)}`);
    return result.value;
  };
  const until = async (expression: string) => {
    // Evaluation fails while a page is being replaced.
    const isSo = () => evaluate(`Boolean(${expression})`).catch(() => false);
    for (const end = Date.now() + 30_000; Date.now() < end; await Bun.sleep(50)) if (await isSo()) return;
    const text = await evaluate("document.body.innerText.slice(0, 2000)");
    throw new Error(`Not within 30 s: ${expression}\n${String(text)}\n${line.complaints.join("\n")}`);
  };
  const element = (selector: string) => `document.querySelector(${JSON.stringify(selector)})`;
  return {
    requested: line.requested,
    complaints: line.complaints,
    send,
    evaluate,
    until,
    async open(url) {
      await send("Page.navigate", { url });
      await until(`location.href.startsWith(${JSON.stringify(url.replace(/#.*/, ""))})`);
      await until('document.readyState === "complete"');
    },
    async fill(selector, text) {
      await until(element(selector));
      // Frameworks hook the setter of the element's class.
      await evaluate(`(() => {
        const field = ${element(selector)};
        Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(field, ${JSON.stringify(text)});
        field.dispatchEvent(new Event("input", { bubbles: true }));
      })()`);
    },
    async click(selector) {
      await until(element(selector));
      await evaluate(`${element(selector)}.click()`);
    },
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await ended;
      directory[Symbol.dispose]();
    },
  };
}

type Line = Pick<Browser, "requested" | "complaints"> & {
  send(method: string, params: object, sessionId?: string): Promise<unknown>;
};

function openLine(to: unknown, from: unknown): Line {
  if (!isWritable(to) || !isReadable(from)) throw new Error("Chromium was started without its pipe");
  const waiting = new Map<number, PromiseWithResolvers<unknown>>();
  const line: Pick<Browser, "requested" | "complaints"> = { requested: [], complaints: [] };
  const take = (text: string) => {
    const { id, method, params, result, error } = v.parse(Message, JSON.parse(text));
    if (id !== undefined) {
      const asked = waiting.get(id);
      waiting.delete(id);
      if (error === undefined) asked?.resolve(result);
      else asked?.reject(new Error(error.message));
    } else if (method === "Network.requestWillBeSent") line.requested.push(v.parse(Sent, params).request.url);
    else if (method === "Runtime.exceptionThrown") line.complaints.push(JSON.stringify(params));
    else if (method === "Log.entryAdded" && v.parse(Logged, params).entry.level === "error")
      line.complaints.push(JSON.stringify(params));
  };
  let rest = "";
  const decoder = new TextDecoder();
  from.on("data", (chunk) => {
    const texts = (rest + decoder.decode(chunk, { stream: true })).split("\0");
    rest = texts.pop() ?? "";
    texts.forEach(take);
  });
  let last = 0;
  return {
    ...line,
    send(method, params, sessionId) {
      const asked = Promise.withResolvers<unknown>();
      waiting.set(++last, asked);
      to.write(`${JSON.stringify({ id: last, method, params, sessionId })}\0`);
      return asked.promise;
    },
  };
}

function isWritable(stream: unknown): stream is { write(text: string): void } {
  return typeof stream === "object" && stream !== null && "write" in stream;
}

function isReadable(stream: unknown): stream is { on(event: "data", take: (chunk: Buffer) => void): void } {
  return typeof stream === "object" && stream !== null && "on" in stream;
}
