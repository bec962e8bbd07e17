// The blocklist that every configuration of an organization holds, and its limits. A list that an engine or an agent
// cannot load would stop every later revocation, so certificates are refused long before; a revocation never is.

import { formatTime } from "../../duration.ts";
import { brand } from "../../brand.ts";
import { AppError } from "../../errors.ts";
import { blocklistLimit, blocklistWarning } from "../../protocol.ts";
import { ourselves, record } from "../audit/record.ts";
import {
  numberOf,
  textOf,
  textOrNull,
  truthOf,
  type Reader,
  type Row,
  type Transaction,
} from "../store/database.ts";

/** From this length on, only the server's own renewals are signed. The rest is for certificates that exist already. */
const issuingEnds = 75_000;
/** Overlay certificates of one node that have not expired. Two changes a day for 90 days fit. */
const mostOfOneNode = 200;
/** Lengths that are announced by an event, each once while the list grows. */
const marks = [blocklistWarning, issuingEnds, blocklistLimit];

const isTrusted =
  "NOT EXISTS (SELECT 1 FROM authorities a WHERE a.id = c.authority_id AND a.retired_at IS NOT NULL AND a.private_key_sealed = '')";
/** Certificates that a peer would accept: not expired, and of a CA in the bundle. */
const isAccepted = `c.kind = 'overlay' AND c.not_after > $1 AND ${isTrusted}`;
const isListed = `c.state = 'blocked' AND ${isAccepted}`;
/** A certificate with a twin is on the list twice. */
const length = "count(*) + count(c.twin)";

/**
 * Fingerprints of the blocked certificates that have not expired, in the order in which they were issued.
 *
 * A list that reaches `warning` goes without the certificates of CAs that have left the bundle: bundle and blocklist
 * reach a node in one configuration, so these are refused all the same. Beyond `limit`, former certificates of nodes
 * that are still members are left out first: such a node regains a group or an address, no stranger comes in. Then
 * those that expire soonest.
 */
export async function readBlocklist(
  reader: Pick<Reader, "all">,
  orgId: number,
  now: number,
  [warning, limit] = [blocklistWarning, blocklistLimit],
): Promise<string[]> {
  const rows = await reader.all(
    `SELECT c.id, c.fingerprint, c.twin, c.not_after, CASE WHEN n.state = 'revoked' THEN 1 ELSE 0 END AS is_revoked,
       CASE WHEN ${isTrusted} THEN 1 ELSE 0 END AS is_trusted
     FROM certificates c JOIN nodes n ON n.id = c.node_id
     WHERE c.org_id = $2 AND c.state = 'blocked' AND c.kind = 'overlay' AND c.not_after > $1 ORDER BY c.id`,
    [now, orgId],
  );
  const blocked = rows.map((row) => ({
    id: numberOf(row, "id"),
    prints: [textOf(row, "fingerprint"), textOrNull(row, "twin") ?? []].flat(),
    isRevoked: truthOf(row, "is_revoked"),
    isTrusted: truthOf(row, "is_trusted"),
    notAfter: numberOf(row, "not_after"),
  }));
  const printsOf = (entries: typeof blocked) => entries.flatMap(({ prints }) => prints);
  if (printsOf(blocked).length < warning) return printsOf(blocked);
  const trusted = blocked.filter((each) => each.isTrusted);
  if (printsOf(trusted).length <= limit) return printsOf(trusted);
  trusted.sort((a, b) => Number(b.isRevoked) - Number(a.isRevoked) || b.notAfter - a.notAfter || a.id - b.id);
  let room = limit;
  const kept = trusted.filter(({ prints }) => (room -= prints.length) >= 0);
  return printsOf(kept.sort((a, b) => a.id - b.id));
}

/** How many entries the list of an organization has to have, without the limit. */
export async function countBlocklist(
  reader: Pick<Reader, "get">,
  orgId: number,
  now: number,
): Promise<number> {
  const row = await reader.get(
    `SELECT ${length} AS n FROM certificates c WHERE c.org_id = $2 AND ${isListed}`,
    [now, orgId],
  );
  return numberOf(row ?? {}, "n");
}

/** The same of every organization that has any: rows of `slug` and `n`. */
export function countBlocklists(reader: Pick<Reader, "all">, now: number): Promise<Row[]> {
  return reader.all(
    `SELECT o.slug, ${length} AS n FROM certificates c JOIN organizations o ON o.id = c.org_id
     WHERE o.deleted_at IS NULL AND ${isListed} GROUP BY o.slug ORDER BY o.slug`,
    [now],
  );
}

/** To be called in the transaction that blocks certificates. One event for each mark that the list reaches. */
export async function announceBlocklist(tx: Transaction, orgId: number, now: number): Promise<void> {
  const entries = await countBlocklist(tx, orgId, now);
  const reached = marks.findLast((mark) => entries >= mark) ?? 0;
  const row = await tx.get("SELECT blocklist_mark FROM organizations WHERE id = $1", [orgId]);
  const announced = numberOf(row ?? {}, "blocklist_mark");
  if (reached === announced) return;
  await tx.run("UPDATE organizations SET blocklist_mark = $2 WHERE id = $1", [orgId, reached]);
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
 * Whether one more certificate may be signed for the node on request. Each one that exists may have to be blocked
 * later. Throws too_many_certificates.
 */
export async function limitCertificates(
  reader: Pick<Reader, "get">,
  org: { id: number; slug: string },
  node: { id: number; name: string },
  now: number,
): Promise<void> {
  const own = await reader.get(
    `SELECT count(*) AS n, min(c.not_after) AS until FROM certificates c WHERE c.node_id = $2 AND ${isAccepted}`,
    [now, node.id],
  );
  const ends = `A rotation of the CA ends them all: \`${brand.executable} admin ca rotate ${org.slug}\`.`;
  if (numberOf(own ?? {}, "n") >= mostOfOneNode) {
    const first = formatTime(numberOf(own ?? {}, "until"));
    throw new AppError(
      "too_many_certificates",
      `The node ${node.name} has ${mostOfOneNode} certificates that have not expired, the most that one node may have. The first expires at ${first}. ${ends}`,
    );
  }
  if ((await countBlocklist(reader, org.id, now)) < issuingEnds) return;
  throw new AppError(
    "too_many_certificates",
    `The blocklist of ${org.slug} has ${issuingEnds} entries or more; until it is shorter, no certificate is signed on request. Revocations still work. ${ends}`,
  );
}

/** The same for what makes every node of the organization due: refused while one of them has no room. */
export async function limitCertificatesOfAll(
  reader: Pick<Reader, "get">,
  orgId: number,
  now: number,
): Promise<void> {
  const full = await reader.get(
    `SELECT n.id, n.name, o.slug FROM nodes n JOIN organizations o ON o.id = n.org_id
     WHERE n.org_id = $2 AND n.state = 'active' AND ${mostOfOneNode} <=
       (SELECT count(*) FROM certificates c WHERE c.node_id = n.id AND ${isAccepted})
     ORDER BY n.id LIMIT 1`,
    [now, orgId],
  );
  if (full === undefined) return;
  const node = { id: numberOf(full, "id"), name: textOf(full, "name") };
  await limitCertificates(reader, { id: orgId, slug: textOf(full, "slug") }, node, now);
}
