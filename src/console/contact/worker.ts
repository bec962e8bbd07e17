// The worker, shared where the browser can: one stream of events for each organization that a tab of this browser shows.

import { organizationsApi } from "../../api/organizations.ts";
import { apiPath } from "../../api/endpoint.ts";
import { eventsApi } from "../../api/events.ts";
import type { FromWorker, ToWorker } from "./live.ts";

/** The port to a tab. */
type Port = Pick<MessagePort, "addEventListener" | "postMessage">;
type Stream = { source: EventSource; ports: Set<Port>; lastHeard: number; failures: number };

const streams = new Map<string, Stream>();
const followed = new Map<Port, string>();
/** Tabs that have not answered yet whether they are still open: one that crashed did not say goodbye. */
const asked = new Set<Port>();
const askEveryMs = 60_000;
/** The connection is dead after this silence: the server sends something at least every 10 s. */
const silenceMs = 25_000;
/** First and longest pause between attempts; each doubles the one before. */
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
    // A tab that slept did not answer in time, and was left: with its answer it follows again.
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
    if (known.source.readyState === EventSource.OPEN) port.postMessage({ kind: "open", slug, text: "" });
    return;
  }
  streams.set(slug, open(slug, new Set([port]), 0));
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

const reopen = (slug: string, { ports, failures }: Stream) => streams.set(slug, open(slug, ports, failures));

function tell(kind: FromWorker["kind"], slug: string, stream: Stream, text = ""): void {
  stream.lastHeard = Date.now();
  for (const port of stream.ports) port.postMessage({ kind, slug, text });
}

function open(slug: string, ports: Set<Port>, failures: number): Stream {
  const source = new EventSource(apiPath(eventsApi.stream, { slug }));
  const stream: Stream = { source, ports, lastHeard: Date.now(), failures };
  source.addEventListener("open", () => {
    stream.failures = 0;
    tell("open", slug, stream);
  });
  for (const kind of ["event", "seen"] as const)
    source.addEventListener(kind, ({ data }) => tell(kind, slug, stream, data));
  source.addEventListener("beat", () => {
    stream.lastHeard = Date.now();
  });
  source.addEventListener("error", () => {
    // The browser tries again by itself unless the answer was a refusal.
    if (source.readyState !== EventSource.CLOSED) return tell("away", slug, stream);
    return void refused(slug, stream);
  });
  return stream;
}

/** Finds out whether the session or the rights ended, or the server is only starting. */
async function refused(slug: string, stream: Stream): Promise<void> {
  // No use of the session: a page that is left open must not keep it alive.
  const headers = { "Session-Use": "none" };
  const status = await fetch(apiPath(organizationsApi.retrieve, { slug }), { headers }).then(
    (answer) => answer.status,
    () => 0,
  );
  if (streams.get(slug) !== stream) return;
  if (status >= 400 && status < 500 && status !== 429) {
    streams.delete(slug);
    for (const port of stream.ports) followed.delete(port);
    return tell("refused", slug, stream);
  }
  tell("away", slug, stream);
  // A random pause, so that browsers do not all come at the same time.
  const pauseMs = Math.min(longestMs, shortestMs * 2 ** stream.failures) * (0.75 + Math.random() / 4);
  // Or the search for dead connections would open it during the pause.
  stream.lastHeard += pauseMs;
  setTimeout(() => {
    stream.failures++;
    if (streams.get(slug) === stream) reopen(slug, stream);
  }, pauseMs);
}

/** Finds a dead connection: the browser does not notice by itself. */
setInterval(() => {
  for (const [slug, stream] of streams) {
    if (Date.now() - stream.lastHeard < silenceMs) continue;
    stream.source.close();
    tell("away", slug, stream);
    reopen(slug, stream);
  }
}, 5000);

setInterval(() => {
  for (const [port, slug] of followed) {
    if (asked.has(port)) leave(port);
    else {
      asked.add(port);
      port.postMessage({ kind: "asked", slug, text: "" });
    }
  }
}, askEveryMs);
