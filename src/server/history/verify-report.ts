// Verifies a report about a moment without the control plane, and says what it does not prove.

import * as v from "valibot";
import { PastReport } from "../../api/history/past.ts";
import { AppError, messageOf } from "../../base/errors.ts";
import { verifyReport as verifySignature } from "../../pki/signed-messages.ts";
import { OrderKey, jsonTextOf } from "../../protocol/values.ts";

/** What the reader has from elsewhere. `key`: the text of a file with the pinned key. `head`: a noted hash of the audit log. */
type Known = { key?: string; head?: string };
/** `proved`, `unproved`: sentences. */
export type Verified = { report: PastReport; proved: string[]; unproved: string[] };

export const notHeld = (hash: string): string =>
  `The audit log holds no event with the hash ${hash}: it was changed since you noted it, or is that of another organization.`;

/** `text`: the report's line, and its signature. Throws failed if the report is forged. */
export async function verifyReport(text: string, { key, head }: Known): Promise<Verified> {
  const [line = "", signature = "", ...more] = text.split("\n");
  const parsed = v.safeParse(jsonTextOf(PastReport), line, { abortEarly: true });
  if (!parsed.success || more.some((each) => each.trim() !== ""))
    throw new AppError("failed", "This file is not a report", {
      hint: "A report is two lines, as `policy test --report` wrote them. Copy it once more, if it was cut or edited.",
    });
  const report = parsed.output;
  // `x` of a key is its public half (RFC 8037).
  const pinned = key === undefined ? report.order_key : keyIn(key);
  if (pinned.x !== report.order_key.x)
    throw new AppError(
      "failed",
      `The report is forged, or --key is of another organization: the report says that it is about ${report.organization}, and names another order key`,
    );
  try {
    await verifySignature(signature, line, pinned);
  } catch (error) {
    throw new AppError("failed", `The report is forged, or was changed: ${messageOf(error)}`, {
      cause: error,
    });
  }
  const proved = [`Signed by the order key ${report.order_key.x}`];
  const unproved = [...report.doubts];
  if (key === undefined) unproved.push("Unproved: that this is the key of the organization. Give --key.");
  const { chain } = report;
  const { noted } = chain;
  // `noted` is the hash that the report was asked for. `event` is null if the log held no event with it.
  const held = [
    chain.head,
    chain.last?.hash,
    ...(noted === null || noted.event === null ? [] : [noted.hash]),
  ];
  if (head === undefined)
    unproved.push("Unproved: that no event was changed or removed before the report. Give --head.");
  else if (held.includes(head)) proved.push(`The log held the event with the hash ${head}`);
  else if (noted?.hash === head) throw new AppError("failed", notHeld(head));
  else unproved.push(`Unproved: the report says nothing of the hash ${head}. Ask for one with --head.`);
  return { report, proved, unproved };
}

const Config = v.pipe(
  v.object({ order_key: OrderKey }),
  v.transform((config) => config.order_key),
);

/** The key itself, or a node's configuration. Throws usage. */
function keyIn(text: string): OrderKey {
  const parsed = v.safeParse(jsonTextOf(v.union([OrderKey, Config])), text);
  if (parsed.success) return parsed.output;
  throw new AppError("usage", "The file of --key holds no order key");
}
