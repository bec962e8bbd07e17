// The worker that holds the streams of all tabs, in place of a browser's.

import { afterAll, beforeAll, beforeEach, expect, spyOn, test } from "bun:test";
import { until } from "../../support/until.ts";

type Message = { kind: string; slug?: string };

class FakeSource extends EventTarget {
  static readonly OPEN = 1;
  static readonly CLOSED = 2;
  static all: FakeSource[] = [];
  readyState = 0;
  readonly url: string;
  constructor(url: string) {
    super();
    this.url = url;
    FakeSource.all.push(this);
  }
  close() {
    this.readyState = FakeSource.CLOSED;
  }
  opens() {
    this.readyState = FakeSource.OPEN;
    this.dispatchEvent(new Event("open"));
  }
  isRefused() {
    this.readyState = FakeSource.CLOSED;
    this.dispatchEvent(new Event("error"));
  }
}

let status = 200;
const pauses: number[] = [];
const waiting: (() => void)[] = [];
const everySome = new Map<number, () => void>();
const restored: (() => void)[] = [];
let connect: (port: MessagePort) => void;

beforeAll(async () => {
  const scope = new EventTarget();
  Object.assign(scope, { onconnect: null });
  const { self, EventSource } = globalThis as Record<string, unknown>;
  restored.push(() => Object.assign(globalThis, { self, EventSource }));
  Object.assign(globalThis, { self: scope, EventSource: FakeSource });
  const answer = () => Promise.resolve(new Response("", { status }));
  const mocks = [
    spyOn(globalThis, "fetch").mockImplementation(answer as unknown as typeof fetch),
    spyOn(globalThis, "setInterval").mockImplementation(((work: () => void, ms: number) =>
      everySome.set(ms, work)) as unknown as typeof setInterval),
  ];
  connect = (port) => scope.dispatchEvent(Object.assign(new Event("connect"), { ports: [port] }));
  // It has the types of a browser, which tests lack.
  const worker = "../../../src/console/contact/worker.ts";
  await import(worker);
  for (const mock of mocks.slice(1)) mock.mockRestore();
  restored.push(() => mocks[0]?.mockRestore());
});
afterAll(() => {
  for (const restore of restored) restore();
});
beforeEach(() => {
  FakeSource.all = [];
  waiting.length = 0;
  pauses.length = 0;
});

function openTab(slug: string) {
  const heard: Message[] = [];
  const port = new EventTarget();
  const postMessage = (message: Message) => void heard.push(message);
  connect(Object.assign(port, { postMessage, start: () => undefined }) as unknown as MessagePort);
  const tell = (data: Message) => port.dispatchEvent(new MessageEvent("message", { data }));
  tell({ kind: "follow", slug });
  const kinds = () => heard.map(({ kind }) => kind);
  return { tell, kinds };
}

const isOpen = ({ readyState }: FakeSource) => readyState !== FakeSource.CLOSED;

test.each([401, 403, 404])(
  "a stream that is answered %i is forgotten, and its tabs hear it",
  async (answered) => {
    status = answered;
    const tab = openTab(`s${answered}`);
    FakeSource.all[0]?.isRefused();
    await until(() => tab.kinds().length > 0);
    expect(tab.kinds()).toEqual(["refused"]);
    // Followed again by the same tab, it is asked for again.
    tab.tell({ kind: "follow", slug: `s${answered}` });
    expect(FakeSource.all.map(isOpen)).toEqual([false, true]);
    tab.tell({ kind: "leave" });
  },
);

test("a control plane that is away is asked again after longer and longer pauses", async () => {
  status = 503;
  const later = spyOn(globalThis, "setTimeout").mockImplementation(((work: () => void, ms: number) => {
    pauses.push(ms);
    waiting.push(work);
  }) as unknown as typeof setTimeout);
  const tab = openTab("slow");
  for (let at = 0; at < 6; at++) {
    FakeSource.all[at]?.isRefused();
    for (let turn = 0; turn < 10; turn++) await Promise.resolve();
    waiting.shift()?.();
  }
  later.mockRestore();
  expect(pauses).toHaveLength(6);
  for (const [at, most] of [2000, 4000, 8000, 16_000, 30_000, 30_000].entries())
    expect([at, (pauses[at] ?? 0) <= most, (pauses[at] ?? 0) >= most / 2]).toEqual([at, true, true]);
  expect(new Set(tab.kinds())).toEqual(new Set(["away"]));
  tab.tell({ kind: "leave" });
});

test("the stream of a tab that died without a word is closed; a tab that slept is followed again", () => {
  const tab = openTab("dead");
  const other = openTab("dead");
  FakeSource.all[0]?.opens();
  const ask = () => everySome.get(60_000)?.();
  ask();
  other.tell({ kind: "here", slug: "dead" });
  ask();
  expect(FakeSource.all.map(isOpen)).toEqual([true]);
  ask();
  expect(FakeSource.all.map(isOpen)).toEqual([false]);
  tab.tell({ kind: "here", slug: "dead" });
  expect(FakeSource.all.map(isOpen)).toEqual([false, true]);
  FakeSource.all[1]?.opens();
  expect(tab.kinds()).toEqual(["open", "asked", "open"]);
  tab.tell({ kind: "leave" });
});
