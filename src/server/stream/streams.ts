// Streams of events for consoles (server-sent events, https://html.spec.whatwg.org/multipage/server-sent-events.html).
// Each is bounded: a client that reads too slowly is closed, and comes again with the id of the last event that it got.

import { AppError } from "../../base/errors.ts";
import type { Reports } from "../nodes/contact/reports.ts";
import type { Reader } from "../store/database.ts";
import type { System } from "../../base/system.ts";
import { sendEvents, type StreamCall } from "./send-events.ts";
import { makeTail } from "./event-tail.ts";

/** Streams of one caller, of which a browser needs one, and of all callers together. */
const limits = { perCaller: 10, inAll: 2000 };
/** Maximum unsent bytes of one stream. */
const maxUnsentBytes = 1_048_576;

type Deps = {
  db: Reader;
  system: Pick<System, "sleep">;
  reports: Pick<Reports, "watch">;
  log: { warn(message: string, fields?: Record<string, unknown>): void };
};

export type Streams = {
  /** The stream of the organization's events after the id `after`; undefined: from now on. */
  open(call: StreamCall, after: number | undefined): Promise<ReadableStream<Uint8Array>>;
  /** Ends all streams, because the server stops. */
  close(): void;
};

type Stream = { owner: string; orgId: number; end(): void };

export function makeStreams({ db, system, reports, log }: Deps, { perCaller, inAll } = limits): Streams {
  /** Oldest first. */
  const openStreams = new Set<Stream>();
  const failed = (error: unknown) =>
    log.warn("new events did not reach consoles; reading on", { reason: String(error) });
  const tail = makeTail({ db, system, reports, failed });
  let isClosed = false;

  /** Ends another stream to make room. An organization with many callers loses its own, not those of others. */
  const makeRoom = (owner: string) => {
    if (isClosed) throw new AppError("throttled", "This server is stopping.", { retryAfter: 10 });
    const own = [...openStreams].filter((stream) => stream.owner === owner);
    if (own.length >= perCaller) own[0]?.end();
    if (openStreams.size >= inAll) oldestOfLargest(openStreams)?.end();
  };

  return {
    async open(call, after) {
      const owner = ownerOf(call);
      const from = after ?? (await tail.newest(call.org.id));
      makeRoom(owner);
      const ending = new AbortController();
      const { signal } = ending;
      const end = () => {
        openStreams.delete(stream);
        ending.abort();
      };
      const stream: Stream = { owner, orgId: call.org.id, end };
      openStreams.add(stream);
      const encoder = new TextEncoder();
      let isCancelled = false;
      return new ReadableStream<Uint8Array>(
        {
          start(controller) {
            const send = (text: string) => {
              if (signal.aborted || (controller.desiredSize ?? 0) <= 0) return false;
              controller.enqueue(encoder.encode(text));
              return true;
            };
            // Also after a failure, because rights ended or the database is away: the client asks again and gets the reason.
            const close = () => {
              openStreams.delete(stream);
              if (!isCancelled) controller.close();
            };
            void sendEvents({ db, system, tail }, call, from, { signal, send }).then(close, close);
          },
          cancel() {
            isCancelled = true;
            end();
          },
        },
        { highWaterMark: maxUnsentBytes, size: (chunk) => chunk?.byteLength ?? 0 },
      );
    },
    close() {
      isClosed = true;
      for (const stream of openStreams) stream.end();
    },
  };
}

/** The oldest stream of the organization with the most. */
function oldestOfLargest(streams: Iterable<Stream>): Stream | undefined {
  const byOrganization = [...Map.groupBy(streams, ({ orgId }) => orgId).values()];
  return byOrganization.toSorted((a, b) => b.length - a.length)[0]?.[0];
}

function ownerOf({ caller }: StreamCall): string {
  if (caller.kind === "person") return `user ${caller.userId}`;
  return caller.kind === "service" ? `token ${caller.tokenId}` : caller.kind;
}
