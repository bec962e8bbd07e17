// The certificate of a node as a bar, with now and its renewal.

import type { Node } from "../../protocol/node.ts";
import { renewalOf } from "../nodes/states.ts";
import { exact, now, timeFormat } from "../words/times.ts";
import { When } from "../ui/parts.tsx";

/** Of the drawing of a certificate, in its own units. */
const width = 306;
const dayMs = 86_400_000;
/** A node that is online renews when two thirds of the life have passed. Later than this share of it, something is wrong. */
const lateShare = 0.75;

/** The life of the certificate as a bar, with now and the renewal. A phone renews nothing: its user imports a new file in time. */
export function CertificateBar({ node: { certificate, phone, state } }: { node: Node }) {
  if (certificate === null)
    return (
      <p class="quiet">
        {state === "revoked" ? "Nodes that have applied the revocation refuse what it had." : "It has none."}
      </p>
    );
  const [begin, end] = [certificate.not_before, certificate.not_after].map(Date.parse) as [number, number];
  const renewal = renewalOf(certificate);
  const isForDays = end - begin > 2 * dayMs;
  const format = timeFormat(isForDays ? { day: "numeric", month: "short" } : { timeStyle: "short" });
  /** Where a time (ms) is in the drawing. */
  const xOf = (time: number) => Math.min(width, Math.max(0, ((time - begin) / (end - begin)) * width));
  const renews = `renews ${format.format(renewal)}`;
  const words = `Issued ${exact(begin)}${phone == null ? `, renews about ${exact(renewal)}` : ""}, ends ${exact(end)}`;
  const isOver = end <= now.value;
  const isLate = phone == null && now.value > begin + (end - begin) * lateShare;
  return (
    <>
      <svg class="draw" viewBox={`0 0 ${width} 40`} role="img" aria-label={words}>
        <title>{words}</title>
        <rect class="track" y="8" width={width} height="6" rx="3" />
        <rect class={isOver || isLate ? "need" : "on"} y="8" width={xOf(now.value)} height="6" rx="3" />
        <path class="now" d={`M${xOf(now.value)} 3v16`} />
        {phone == null ? <path class="axis" d={`M${xOf(renewal)} 4v14`} /> : null}
        <text class="ts" y="34">
          {format.format(begin)}
        </text>
        {phone == null ? (
          <text class="ts" x={xOf(renewal)} y="34" text-anchor="middle">
            {renews}
          </text>
        ) : null}
        <text class="ts" x={width} y="34" text-anchor="end">
          ends
        </text>
      </svg>
      <p class="quiet">
        Ends <When at={certificate.not_after} />, {exact(end)}
      </p>
    </>
  );
}
