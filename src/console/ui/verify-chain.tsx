// Verifies the chain of an organization's events in the browser: each hash covers the one before.

import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { emptyChain, verifyEnd, verifyNext, type Chain } from "../activity/chain.ts";
import { ago } from "../words/ago.ts";
import { ApiError, get } from "../contact/api.ts";
import { eventsPath } from "../activity/log.ts";
import { now } from "../words/times.ts";
import { Button, CloseEnd } from "./button.tsx";
import { Dialog } from "./dialog.tsx";
import { Copy, Failure, State } from "./parts.tsx";
import { plural } from "../words/numbers.ts";

async function sha256(text: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Reads and verifies all events, the oldest first. `report`: called after each part. `last`: the id of the last event. */
async function verify(slug: string, signal: AbortSignal, report: (chain: Chain) => void) {
  let chain = emptyChain;
  for (let after = 0; ;) {
    const events = await get(eventsPath(slug, { after: `${after}`, limit: "1000" }), signal);
    const last = events.at(-1);
    if (last === undefined) return { chain: await verifyEnd(chain, sha256), last: after };
    chain = await verifyNext(chain, events, sha256);
    after = last.id;
    report(chain);
  }
}

/** `error`: the log could not be read. */
type Progress = { chain: Chain; isDone: boolean } | { error: ApiError };

/** What this window has verified, by slug. `last`: the id of the last event. `at`: when, ms since 1970. */
type Verified = { last: number; at: number; isWhole: boolean };
const verified = signal<ReadonlyMap<string, Verified>>(new Map());

/** What is known of the chain, and the button that verifies it. */
export function Verification({ slug }: { slug: string }) {
  const [isShown, setShown] = useState(false);
  const known = verified.value.get(slug);
  return (
    <>
      {known === undefined ? null : (
        <span class="quiet no-phone">
          {known.isWhole ? (
            <State name="online" word={`whole to event ${known.last}, checked ${ago(known.at, now.value)}`} />
          ) : (
            <State name="attention" word="the chain is broken" />
          )}
        </span>
      )}
      <Button label="Verify the chain" onClick={() => setShown(true)}>
        Verify
      </Button>
      {isShown ? <VerifyDialog slug={slug} close={() => setShown(false)} /> : null}
    </>
  );
}

function VerifyDialog({ slug, close }: { slug: string; close(): void }) {
  const [progress, setProgress] = useState<Progress>({ chain: emptyChain, isDone: false });
  useEffect(() => {
    const closed = new AbortController();
    const run = async () => {
      const { chain, last } = await verify(slug, closed.signal, (part) =>
        setProgress({ chain: part, isDone: false }),
      );
      setProgress({ chain, isDone: true });
      const isWhole = chain.brokenAt === undefined;
      verified.value = new Map([...verified.value, [slug, { last, at: Date.now(), isWhole }]]);
    };
    run().catch((error: unknown) => {
      if (closed.signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      setProgress({ error });
    });
    return () => closed.abort();
  }, [slug]);
  return (
    <Dialog title="Is the log whole?" close={close}>
      <p class="quiet">
        The hash of each event covers the event before it; this browser computes all of them again.
      </p>
      <div role="status">
        {"error" in progress ? <Failure error={progress.error} /> : <Outcome {...progress} />}
      </div>
      <CloseEnd close={close} />
    </Dialog>
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
        <State name="online" word={`The chain of ${plural(events, "event")} is whole`} />.
      </p>
      {begin === "" ? null : <p>Older events are in an archive.</p>}
      <p>
        Keep a copy of its last hash elsewhere. While the search of this page finds it, no event was cut off
        the end or changed before it:
      </p>
      <p>
        <code>{head}</code> <Copy text={head} />
      </p>
      <p class="quiet">
        Numbers that are missing are events of other organizations. <code>agent admin audit verify</code>{" "}
        verifies all chains, and the signatures of archives.
      </p>
    </>
  );
}
