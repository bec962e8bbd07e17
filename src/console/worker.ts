// The worker, shared where the browser can: one stream of events for each organization that a tab of this browser shows.

import type { FromWorker, ToWorker } from "./live.ts";

/** To a tab. */
type Port = Pick<MessagePort, "addEventListener" | "postMessage">;
type Stream = { source: EventSource; ports: Set<Port>; lastHeard: number };

const streams = new Map<string, Stream>();
const followed = new Map<Port, string>();
/** The server says something every 10 s. */
const silenceMs = 25_000;

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
    leave(port);
    if (data.kind === "follow") follow(port, data.slug);
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
  stream?.ports.delete(port);
  if (slug === undefined || stream === undefined || stream.ports.size > 0) return;
  stream.source.close();
  streams.delete(slug);
}

function open(slug: string, ports: Set<Port>): Stream {
  const source = new EventSource(`/api/org/${encodeURIComponent(slug)}/stream/`);
  const stream: Stream = { source, ports, lastHeard: Date.now() };
  const tell = (message: FromWorker) => {
    stream.lastHeard = Date.now();
    for (const port of ports) port.postMessage(message);
  };
  source.addEventListener("open", () => tell({ kind: "open", slug }));
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

/** Finds out whether the session ended, or the server is only starting. */
async function refused(slug: string, stream: Stream, tell: (message: FromWorker) => void): Promise<void> {
  const headers = { "Session-Use": "none" };
  const status = await fetch(`/api/org/${encodeURIComponent(slug)}/`, { headers }).then(
    (answer) => answer.status,
    () => 0,
  );
  if (streams.get(slug) !== stream) return;
  if (status === 401) {
    streams.delete(slug);
    for (const port of stream.ports) followed.delete(port);
    return tell({ kind: "ended", slug });
  }
  tell({ kind: "away", slug });
  setTimeout(() => {
    if (streams.get(slug) === stream && stream.ports.size > 0) streams.set(slug, open(slug, stream.ports));
  }, 2000);
}

/** A connection that died without a word: the browser does not notice by itself. */
setInterval(() => {
  for (const [slug, stream] of streams) {
    if (Date.now() - stream.lastHeard < silenceMs) continue;
    stream.source.close();
    for (const port of stream.ports) port.postMessage({ kind: "away", slug });
    streams.set(slug, open(slug, stream.ports));
  }
}, 5000);
