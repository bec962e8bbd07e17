// The worker, shared where the browser can: one stream of events for each organization that a tab of this browser shows.

import type { FromWorker, ToWorker } from "./live.ts";

/** To a tab. */
type Port = Pick<MessagePort, "addEventListener" | "postMessage">;
type Stream = { source: EventSource; ports: Set<Port>; lastHeard: number; failures: number };

const streams = new Map<string, Stream>();
const followed = new Map<Port, string>();
/** Tabs that did not answer yet whether they are still there: one that died said nothing. */
const asked = new Set<Port>();
const askEveryMs = 60_000;
/** The server says something every 10 s. */
const silenceMs = 25_000;
/** Between two attempts, doubled from the one to the other. */
const [shortestMs, longestMs] = [2000, 30_000];

const scope = self as unknown as {
  addEventListener(type: "connect", listener: (event: MessageEvent) => void): void;
};

scope.addEventListener("connect", ({ ports: [port] }) => {
  if (port === undefined) return;
  serve(port);
  port.start();
});
// In a browser without shared workers it is the worker of one tab, and itself the port to it.
if (!("onconnect" in self)) serve(self as unknown as Port);

function serve(port: Port): void {
  port.addEventListener("message", ({ data }: MessageEvent<ToWorker>) => {
    asked.delete(port);
    if (data.kind === "here" && followed.has(port)) return;
    leave(port);
    if (data.kind !== "leave") follow(port, data.slug);
  });
}

function follow(port: Port, slug: string): void {
  followed.set(port, slug);
  const known = streams.get(slug);
  if (known !== undefined) {
    known.ports.add(port);
    if (known.source.readyState === EventSource.OPEN) port.postMessage({ kind: "open", slug });
    return;
  }
  streams.set(slug, open(slug, new Set([port])));
}

function leave(port: Port): void {
  const slug = followed.get(port);
  const stream = slug === undefined ? undefined : streams.get(slug);
  followed.delete(port);
  asked.delete(port);
  stream?.ports.delete(port);
  if (slug === undefined || stream === undefined || stream.ports.size > 0) return;
  stream.source.close();
  streams.delete(slug);
}

function open(slug: string, ports: Set<Port>, failures = 0): Stream {
  const source = new EventSource(`/api/org/${encodeURIComponent(slug)}/stream/`);
  const stream: Stream = { source, ports, lastHeard: Date.now(), failures };
  const tell = (message: FromWorker) => {
    stream.lastHeard = Date.now();
    for (const port of ports) port.postMessage(message);
  };
  source.addEventListener("open", () => {
    stream.failures = 0;
    tell({ kind: "open", slug });
  });
  source.addEventListener("event", ({ data }) => tell({ kind: "event", slug, text: data }));
  source.addEventListener("seen", ({ data }) => tell({ kind: "seen", slug, text: data }));
  source.addEventListener("beat", () => {
    stream.lastHeard = Date.now();
  });
  source.addEventListener("error", () => {
    // The browser tries again by itself unless the answer was a refusal.
    if (source.readyState !== EventSource.CLOSED) return tell({ kind: "away", slug });
    return void refused(slug, stream, tell);
  });
  return stream;
}

/** Finds out whether the session or the rights ended, or the server is only starting. */
async function refused(slug: string, stream: Stream, tell: (message: FromWorker) => void): Promise<void> {
  const headers = { "Session-Use": "none" };
  const status = await fetch(`/api/org/${encodeURIComponent(slug)}/`, { headers }).then(
    (answer) => answer.status,
    () => 0,
  );
  if (streams.get(slug) !== stream) return;
  if (status >= 400 && status < 500 && status !== 429) {
    streams.delete(slug);
    for (const port of stream.ports) followed.delete(port);
    return tell({ kind: status === 401 ? "ended" : "refused", slug });
  }
  tell({ kind: "away", slug });
  // Not all browsers at the same time.
  const pauseMs = Math.min(longestMs, shortestMs * 2 ** stream.failures) * (0.75 + Math.random() / 4);
  stream.lastHeard += pauseMs;
  setTimeout(() => {
    if (streams.get(slug) === stream && stream.ports.size > 0)
      streams.set(slug, open(slug, stream.ports, stream.failures + 1));
  }, pauseMs);
}

/** A connection that died without a word: the browser does not notice by itself. */
setInterval(() => {
  for (const [slug, stream] of streams) {
    if (Date.now() - stream.lastHeard < silenceMs) continue;
    stream.source.close();
    for (const port of stream.ports) port.postMessage({ kind: "away", slug });
    streams.set(slug, open(slug, stream.ports, stream.failures));
  }
}, 5000);

setInterval(() => {
  for (const [port, slug] of followed) {
    if (asked.has(port)) leave(port);
    else {
      asked.add(port);
      port.postMessage({ kind: "asked", slug });
    }
  }
}, askEveryMs);
