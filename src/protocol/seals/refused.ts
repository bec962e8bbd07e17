// What the seal of a node refuses, as a check-in reports it. A seal says, with the signatures of an organization's signers, what
// the control plane may send. Imports little, because every check-in loads it.

import * as v from "valibot";
import { foreignText } from "../../base/text.ts";

/** A check-in with as many stays below 4 KiB; `status` of the node shows all. */
const mostRefused = 8;
const maxKey = 120;
const maxReason = 200;
/** Longest reason in sync.json. */
const maxWritten = 400;

export const SealRefused = v.object({
  /** Absent: the node only reports what its seal does not say, and takes it. */
  enforced: v.exactOptional(v.literal(true)),
  what: v.pipe(
    v.array(v.object({ key: foreignText(maxKey), reason: foreignText(maxReason) })),
    v.minLength(1),
    v.maxLength(mostRefused),
  ),
});
export type SealRefused = v.InferOutput<typeof SealRefused>;
type Refused = SealRefused["what"][number];

const plain = (text: string, max: number) => text.slice(0, max).replace(/[^\x20-\x7e…]/g, "?");

/**
 * The same in printable ASCII, cut for sync.json. Reasons may quote a certificate or a seal of a thief, and these texts are
 * written, reported and shown on terminals.
 */
export const plainRefused = ({ key, reason }: Refused): Refused => ({
  key: plain(key, maxKey),
  reason: plain(reason, maxWritten),
});

/** The report for a check-in. Undefined: nothing is refused. */
export function refusedOf(
  seal: { objections: readonly Refused[]; enforced?: true | undefined } | undefined,
): SealRefused | undefined {
  if (seal === undefined || seal.objections.length === 0) return undefined;
  const first = seal.objections.slice(0, mostRefused);
  const what = first.map(({ key, reason }) => ({
    key: plain(key, maxKey),
    reason: plain(reason, maxReason),
  }));
  return seal.enforced === true ? { enforced: true, what } : { what };
}
