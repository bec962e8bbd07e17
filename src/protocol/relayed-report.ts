// The wire format of relayed traffic, inside check-ins. Both sides use it. Not in path-report.ts: every check-in
// needs this, few need the other schemas.

import * as v from "valibot";
import { foreignText } from "../base/text.ts";

/** The bytes that a relay has forwarded for others, as its machine counts them. */
export const RelayedReport = v.object({
  /** Names the counter: another one begins at 0. */
  counter: v.pipe(foreignText(32), v.regex(/^[a-z0-9]{1,32}$/)),
  bytes: v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(Number.MAX_SAFE_INTEGER)),
});
export type RelayedReport = v.InferOutput<typeof RelayedReport>;

/** The control plane's answer to it. */
export const RelayedAnswer = v.object({
  /** Forwarded in this month (UTC). */
  bytes: v.pipe(v.number(), v.minValue(0)),
  limit_bytes: v.nullable(v.pipe(v.number(), v.minValue(0))),
  /** The limit is reached: no node uses this relay until the next month. */
  paused: v.boolean(),
});
export type RelayedAnswer = v.InferOutput<typeof RelayedAnswer>;

/** Undefined if the answer has no part about relays. */
export function relayedIn({ relayed }: { relayed?: unknown }): RelayedAnswer | undefined {
  const parsed = v.safeParse(RelayedAnswer, relayed);
  return parsed.success ? parsed.output : undefined;
}
