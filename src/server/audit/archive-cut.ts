// Where a chain begins after its oldest events went into an archive. The event `events.archived` tells which events the
// archive has, and the hash that the chain continues from. It repeats the archive's signed header, so that only a holder
// of the secret key can make such an event.

import * as v from "valibot";
import { AppError } from "../../base/errors.ts";
import type { Reader } from "../store/database.ts";
import { lastArchived } from "../store/tables/events.ts";
import { isSignedBy } from "./archive-key.ts";
import { foreignText } from "../../base/text.ts";
import { jsonTextOf } from "../../protocol/values.ts";

const Id = v.pipe(v.number(), v.integer(), v.minValue(0));
const Hash = v.pipe(foreignText(64), v.regex(/^([0-9a-f]{64})?$/));

/** The first line of an archive. */
export const ArchiveHeader = v.object({
  format: v.literal(1),
  /** The slug; null: the events of the operator. */
  organization: v.nullable(foreignText(255)),
  organization_id: v.nullable(Id),
  /** Ids of the first and the last event, and how many there are. */
  first: Id,
  last: Id,
  events: Id,
  /** The times of the first and the last event, RFC 3339. */
  from: foreignText(40),
  until: foreignText(40),
  /** The hash of the event before the first one ("" if there is none), and that of the last one. */
  previous_hash: Hash,
  last_hash: Hash,
  /** Of the lines with events: how many bytes, and their hash. */
  bytes: Id,
  sha256: Hash,
  /** The public key of the signature, Ed25519, in hex. */
  key: Hash,
});
export type ArchiveHeader = v.InferOutput<typeof ArchiveHeader>;

/** `after` of the event. */
export const Cut = v.object({
  archive: ArchiveHeader,
  /** Signature of the header's line, in base64. */
  signature: foreignText(100),
  file: foreignText(255),
  /** The bytes of all events of this chain that are in archives. */
  archived_bytes: Id,
});
export type Cut = v.InferOutput<typeof Cut>;

/** `id` and `at`: of its event. */
export type LastCut = Cut & { id: number; at: number };

/** Undefined unless the event has the form that the server writes. */
export function cutOf(after: string | null): Cut | undefined {
  const parsed = v.safeParse(jsonTextOf(Cut), after);
  return parsed.success ? parsed.output : undefined;
}

/** The newest cut of a chain. */
export async function lastCut(reader: Reader, orgId: number | null): Promise<LastCut | undefined> {
  const found = await lastArchived(reader, orgId);
  if (found === undefined) return undefined;
  const { id, at, after } = found;
  const cut = cutOf(after);
  if (cut !== undefined) return { id, at, ...cut };
  throw new AppError(
    "failed",
    `The audit log was changed: event ${id} does not tell which archive it means`,
    {
      hint: "Compare the database with a backup.",
    },
  );
}

export function headerLine(header: ArchiveHeader): string {
  return JSON.stringify(header);
}

/** Whether this server's key signed the header. `publicKey` undefined: the server never signed anything. */
export function isOurs(
  { archive, signature }: Pick<Cut, "archive" | "signature">,
  publicKey: string | undefined,
): boolean {
  return publicKey === archive.key && isSignedBy(archive.key, headerLine(archive), signature);
}
