// The blocklist in every configuration of an organization, and its limits. A list that is too long for an engine or an agent would
// prevent every later revocation. So long before, the server refuses to sign certificates, but it never refuses a revocation.

import { formatTime } from "../../base/quantities.ts";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { blocklistLimit, blocklistWarning } from "../../protocol/download.ts";
import { clocksMayDifferMs } from "../../protocol/finding-kinds.ts";
import { ourselves, record } from "../audit/record.ts";
import type { Reader, Transaction } from "../store/database.ts";
import {
  computed,
  integer,
  integerOrNull,
  places,
  queryAll,
  queryNumber,
  queryOne,
  text,
  truth,
} from "../store/table.ts";
import { certificates } from "../store/tables/certificates.ts";
import { organizations } from "../store/tables/organizations.ts";

/**
 * From this length on, the server signs no certificates on request, only renewals by itself. The rest of the list is reserved for
 * certificates that exist already.
 */
const issuingEnds = 75_000;
/** Unexpired overlay certificates of one node: enough for two changes a day in 90 days. */
const maxOfOneNode = 200;
/** Lengths at which an event is recorded, once each while the list grows. */
const marks = [blocklistWarning, issuingEnds, blocklistLimit];

/** ms. Certificates that ended after this time may still be accepted by a peer whose clock is behind. */
export const acceptedFrom = (now: number): number => now - clocksMayDifferMs;

/**
 * SQL: the CA of the certificate may be in a node's bundle. A retired CA counts until its key is deleted: until then, lighthouses may
 * still trust it.
 */
const isTrusted =
  "NOT EXISTS (SELECT 1 FROM authorities a WHERE a.id = c.authority_id AND a.retired_at IS NOT NULL AND a.private_key_sealed = '')";
/** Certificates that a peer would accept: they ended after $1 (`acceptedFrom`), and are signed by a CA in the bundle. */
const isAccepted = `c.kind = 'overlay' AND c.not_after > $1 AND ${isTrusted}`;
const isListed = `c.state = 'blocked' AND ${isAccepted}`;
/** A twin is the second fingerprint of a certificate whose signature has a second valid form (P-256): both are in the list. */
const entryCount = "count(*) + count(c.twin)";

const blockedPick = certificates.pick("id", "fingerprint", "twin", "notAfter");
const factsPick = computed({ isRevoked: truth(0), isTrusted: truth(0) });

/**
 * Fingerprints of the blocked certificates that a peer may still accept, in the order in which they were issued.
 *
 * A list with `warning` entries or more leaves out certificates of CAs that are not in the bundle any more: nodes get bundle and
 * blocklist together, and refuse these certificates anyway. Beyond `limit`, it leaves out former certificates of nodes that are not
 * revoked first: such a node may regain a group or an address, but no revoked node gets in. Then those that expire first.
 */
export async function readBlocklist(
  reader: Reader,
  orgId: number,
  now: number,
  { warning, limit } = { warning: blocklistWarning, limit: blocklistLimit },
): Promise<string[]> {
  const rows = await reader.all(
    `SELECT ${blockedPick.select("c")}, CASE WHEN n.state = 'revoked' THEN 1 ELSE 0 END AS is_revoked,
       CASE WHEN ${isTrusted} THEN 1 ELSE 0 END AS is_trusted
     FROM certificates c JOIN nodes n ON n.id = c.node_id
     WHERE c.org_id = $2 AND c.state = 'blocked' AND c.kind = 'overlay' AND c.not_after > $1 ORDER BY c.id`,
    [acceptedFrom(now), orgId],
  );
  const blocked = rows.map((row) => {
    const { id, fingerprint, twin, notAfter } = blockedPick.parse(row);
    const prints = twin === null ? [fingerprint] : [fingerprint, twin];
    return { id, prints, notAfter, ...factsPick.parse(row) };
  });
  const printsOf = (entries: typeof blocked) => entries.flatMap(({ prints }) => prints);
  if (printsOf(blocked).length < warning) return printsOf(blocked);
  const trusted = blocked.filter((each) => each.isTrusted);
  if (printsOf(trusted).length <= limit) return printsOf(trusted);
  trusted.sort((a, b) => Number(b.isRevoked) - Number(a.isRevoked) || b.notAfter - a.notAfter || a.id - b.id);
  const kept: typeof trusted = [];
  let room = limit;
  for (const each of trusted) {
    room -= each.prints.length;
    if (room < 0) break;
    kept.push(each);
  }
  return printsOf(kept.sort((a, b) => a.id - b.id));
}

/** The number of entries that an organization's list would have without the limit. */
export async function countBlocklist(reader: Reader, orgId: number, now: number): Promise<number> {
  const sql = `SELECT ${entryCount} AS n FROM certificates c WHERE c.org_id = $2 AND ${isListed}`;
  return queryNumber(reader, sql, [acceptedFrom(now), orgId]);
}

/**
 * The same, but 0 if the list surely has less than `least` entries. It is asked before each certificate and after each block, so it
 * must be fast: while less than half as many certificates are blocked (each may have two entries), an index answers it.
 */
async function entriesFrom(reader: Reader, orgId: number, least: number, now: number): Promise<number> {
  const sql =
    "SELECT count(*) AS n FROM certificates WHERE org_id = $1 AND state = 'blocked' AND not_after > $2";
  const blocked = await queryNumber(reader, sql, [orgId, acceptedFrom(now)]);
  return 2 * blocked < least ? 0 : countBlocklist(reader, orgId, now);
}

/** The lengths of the lists of all organizations that have entries. */
export async function countBlocklists(reader: Reader, now: number): Promise<{ slug: string; n: number }[]> {
  return queryAll(
    reader,
    computed({ slug: text(), n: integer() }),
    `SELECT o.slug, ${entryCount} AS n FROM certificates c JOIN organizations o ON o.id = c.org_id
     WHERE o.deleted_at IS NULL AND ${isListed} GROUP BY o.slug ORDER BY o.slug`,
    [acceptedFrom(now)],
  );
}

/** Records one event for each mark that the list reaches. Call it in the transaction that blocks certificates. */
export async function announceBlocklist(tx: Transaction, orgId: number, now: number): Promise<void> {
  const entries = await entriesFrom(tx, orgId, blocklistWarning, now);
  const reached = marks.findLast((mark) => entries >= mark) ?? 0;
  const announced = await queryNumber(tx, "SELECT blocklist_mark AS n FROM organizations WHERE id = $1", [
    orgId,
  ]);
  if (reached === announced) return;
  await organizations.update(tx, { id: orgId }, { blocklistMark: reached });
  if (reached < announced) return;
  await record(tx, {
    orgId,
    at: now,
    type: "blocklist.filling",
    actor: ourselves,
    subject: `organization/${orgId}`,
    after: { entries, mark: reached, limit: blocklistLimit },
  });
}

/**
 * Refuses one more certificate on request for a node or an organization at its limit: every certificate that exists may
 * have to be blocked later. Throws too_many_certificates.
 */
export async function limitCertificates(
  reader: Reader,
  org: { id: number; slug: string },
  node: { id: number; name: string },
  now: number,
): Promise<void> {
  const [own, entries] = await Promise.all([
    queryOne(
      reader,
      computed({ n: integer(), until: integerOrNull() }),
      `SELECT count(*) AS n, min(c.not_after) AS until FROM certificates c WHERE c.node_id = $2 AND ${isAccepted}`,
      [acceptedFrom(now), node.id],
    ),
    entriesFrom(reader, org.id, issuingEnds, now),
  ]);
  const remedy = `A CA rotation replaces them all: \`${brand.executable} admin ca rotate ${org.slug}\`.`;
  if (own !== undefined && own.n >= maxOfOneNode) {
    const first = formatTime(own.until ?? now);
    throw new AppError(
      "too_many_certificates",
      `The node ${node.name} has ${maxOfOneNode} unexpired certificates, the maximum for one node. The first expires at ${first}. ${remedy}`,
    );
  }
  if (entries < issuingEnds) return;
  throw new AppError(
    "too_many_certificates",
    `The blocklist of ${org.slug} has ${issuingEnds} entries or more: the server signs no certificates on request until it is shorter. Revocations still work. ${remedy}`,
  );
}

/** The same for a change that renews the nodes `ids`, or all active ones. */
export async function limitCertificatesOfAll(
  reader: Reader,
  orgId: number,
  now: number,
  ids?: readonly number[],
): Promise<void> {
  const these = ids === undefined ? "" : ` AND n.id IN (${places(ids, 3)})`;
  // A node at its limit, else any: the limit of the organization is the same for all.
  const node = await queryOne(
    reader,
    computed({ id: integer(), name: text(), slug: text() }),
    `SELECT n.id, n.name, o.slug FROM nodes n JOIN organizations o ON o.id = n.org_id
     WHERE n.org_id = $2 AND n.state = 'active'${these} ORDER BY CASE WHEN ${maxOfOneNode} <=
       (SELECT count(*) FROM certificates c WHERE c.node_id = n.id AND ${isAccepted}) THEN 0 ELSE 1 END, n.id LIMIT 1`,
    [acceptedFrom(now), orgId, ...(ids ?? [])],
  );
  if (node !== undefined) await limitCertificates(reader, { id: orgId, slug: node.slug }, node, now);
}
