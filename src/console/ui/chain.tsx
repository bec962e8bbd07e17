// Verifies the chain of an organization's events in the browser: each hash covers the one before.

import { useEffect, useRef, useState } from "preact/hooks";
import { emptyChain, verifyEnd, verifyNext, type Chain } from "../activity.ts";
import { ApiError, get } from "../api.ts";
import { eventsPath } from "../events.ts";
import { Failure, Line, State } from "./parts.tsx";

async function sha256(text: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Reads all events, the oldest first. `tell`: reports the progress. */
async function verify(own: string, signal: AbortSignal, tell: (chain: Chain) => void): Promise<Chain> {
  let chain = emptyChain;
  for (let after = 0; ;) {
    const events = await get(eventsPath(own, { after: `${after}`, limit: "1000" }), signal);
    const last = events.at(-1);
    if (last === undefined) return verifyEnd(chain, sha256);
    chain = await verifyNext(chain, events, sha256);
    after = last.id;
    tell(chain);
  }
}

type Progress = { chain: Chain; isDone: boolean } | { error: ApiError } | undefined;

export function Verification({ own }: { own: string }) {
  const [progress, show] = useState<Progress>(undefined);
  const over = useRef(new AbortController());
  useEffect(() => {
    over.current = new AbortController();
    show(undefined);
    return () => over.current.abort();
  }, [own]);
  const run = async () => {
    const { signal } = over.current;
    show({ chain: emptyChain, isDone: false });
    try {
      const chain = await verify(own, signal, (part) => show({ chain: part, isDone: false }));
      show({ chain, isDone: true });
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      show({ error });
    }
  };
  const isRunning = progress !== undefined && "chain" in progress && !progress.isDone;
  return (
    <>
      <p>
        <button type="button" disabled={isRunning} onClick={() => void run()}>
          Verify the chain
        </button>{" "}
        <span class="quiet">
          Is the log whole? The hash of each event covers the event before it; this browser computes all of
          them again.
        </span>
      </p>
      <div role="status">
        {progress === undefined ? null : "error" in progress ? (
          <Failure error={progress.error} />
        ) : (
          <Outcome {...progress} />
        )}
      </div>
    </>
  );
}

function Outcome({ chain, isDone }: { chain: Chain; isDone: boolean }) {
  const { events, head, brokenAt, begin } = chain;
  if (!isDone) return <p>Events verified so far: {events}.</p>;
  if (brokenAt !== undefined)
    return (
      <p>
        <State name="attention" word={`The chain is broken at event ${brokenAt}`} />: it, or the event before
        it, was changed or removed. Compare with an archive or a backup.
      </p>
    );
  return (
    <>
      <p>
        <State
          name="online"
          word={`The chain of ${events === 1 ? "one event" : `${events} events`} is whole`}
        />
        .
      </p>
      {begin === "" ? null : (
        <p>
          Older events are in an archive; <code>agent admin audit verify</code> checks its signature.
        </p>
      )}
      <p>
        Keep a copy of its last hash elsewhere. While the search above finds it, no event was cut off the end
        or changed before it:
      </p>
      <Line text={head} />
      <p class="quiet">
        All organizations share the numbers of events, so numbers that are missing here are events of others.
        Changes of users, such as disabled ones, passwords and second factors, belong to no organization: they
        have a chain of their own, under Audit log for staff. <code>agent admin audit verify</code> verifies
        all chains on the control plane.
      </p>
    </>
  );
}
