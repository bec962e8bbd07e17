// Throttles on several replicas: each sends the others what it counted, a few times a second. So a limit holds for
// all of them together, except for attempts within that moment. While the database is away, each counts for itself.

import { hash } from "node:crypto";
import * as v from "valibot";
import type { System } from "../../base/system.ts";
import { limits, type Throttle } from "../http/throttle.ts";
import type { Database } from "./database.ts";
import { wholeWithin, listOf } from "../../protocol/values.ts";

const sendAfterMs = 200;
/** Kinds and keys in one notice. A flood of more is counted by this replica alone. */
const maxSent = 200;
/** Maximum count for one key: a healthy replica does not send more. */
const maxTimes = 1000;

const Counts = v.pipe(
  v.string(),
  v.parseJson(),
  v.object({
    /** The replica that counted. */
    by: v.string(),
    /** Kind, hash of the key, and how many times. */
    counts: listOf(v.tuple([v.string(), v.string(), wholeWithin(1, maxTimes)]), maxSent),
  }),
);

type Kind = keyof typeof limits;

/** Keys may hold e-mail addresses: the others learn hashes of them. */
export function shareThrottle(
  throttle: Throttle,
  { db, system }: { db: Database; system: Pick<System, "random"> },
): Throttle {
  if (db.dialect === "sqlite") return throttle;
  const by = Buffer.from(system.random(8)).toString("hex");
  /** Not sent yet, by kind and key. */
  let unsent = new Map<string, { kind: Kind; key: string; times: number }>();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const send = async () => {
    timer = undefined;
    const counts = [...unsent.values()].map(({ kind, key, times }) => [kind, key, times]);
    unsent = new Map();
    await db.writeFor("rows", (tx) => tx.notify("throttle", JSON.stringify({ by, counts })));
  };
  db.listen("throttle", (payload) => {
    const received = v.safeParse(Counts, payload);
    if (!received.success || received.output.by === by) return;
    for (const [kind, key, times] of received.output.counts) {
      if (isKind(kind)) for (let time = 0; time < times; time++) throttle.count(kind, key);
    }
  });
  return {
    check: (kind, key) => throttle.check(kind, hashKey(key)),
    counted: (kind, key) => throttle.counted(kind, hashKey(key)),
    count(kind, key) {
      const hashed = hashKey(key);
      throttle.count(kind, hashed);
      const id = `${kind} ${hashed}`;
      const known = unsent.get(id);
      if (known !== undefined) known.times = Math.min(maxTimes, known.times + 1);
      else if (unsent.size < maxSent) unsent.set(id, { kind, key: hashed, times: 1 });
      // While the database is away, the other replicas do not get these counts.
      timer ??= setTimeout(() => void send().catch(() => undefined), sendAfterMs).unref();
    },
  };
}

/** Ignores kinds that only newer replicas know. */
function isKind(name: string): name is Kind {
  return Object.hasOwn(limits, name);
}

/** 22 characters of base64url: 132 bits of the hash. */
function hashKey(key: string): string {
  return hash("sha256", key, "base64url").slice(0, 22);
}
