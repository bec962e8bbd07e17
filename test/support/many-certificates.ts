// Nodes with many certificates, without the time that issuing them takes.

import type { RegisteredNode } from "./nodes.ts";
import { onPostgres, type TestServer } from "./server.ts";

let made = 10_000_000;
/** Copies of the node's current certificate, each with another fingerprint: the last digits rise. `notAfter`: ms. */
export async function addCertificates(
  { db, clock }: Pick<TestServer, "db" | "clock">,
  node: RegisteredNode,
  n: number,
  state: "former" | "blocked",
  notAfter = clock.ms + 80 * 86_400_000,
): Promise<void> {
  const first = made;
  made += n;
  await db.write(async (tx) => {
    // PostgreSQL would look up three foreign keys for each of a hundred thousand rows.
    if (onPostgres) await tx.run("SET LOCAL session_replication_role = replica");
    await tx.run(
      `WITH RECURSIVE numbers (i) AS (SELECT ${first} UNION ALL SELECT i + 1 FROM numbers WHERE i < ${made - 1})
       INSERT INTO certificates (org_id, node_id, authority_id, kind, version, fingerprint, pem, not_before, not_after,
         renew_at, state, created_at)
       SELECT org_id, node_id, authority_id, kind, version, '${"0".repeat(56)}' || i, '', not_before, ${notAfter},
         renew_at, '${state}', created_at
       FROM certificates, numbers WHERE node_id = $1 AND kind = 'overlay' AND state = 'current'`,
      [node.id],
    );
    // What its autovacuum would do: without it queries expect an empty table.
    if (onPostgres && n > 1000) await tx.run("ANALYZE certificates");
  });
}
