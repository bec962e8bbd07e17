// Stores the versions that nodes confirm. After a change all nodes confirm one, so those that come together share a commit.

import type { Database } from "../../store/database.ts";
import { nodes } from "../../store/tables/nodes.ts";

/** What comes in this time is written together, ms. A held poll waits meanwhile anyway. */
const gatheredMs = 50;
/** Nodes that are written without a pause: other writers of this process get their turn in it. */
const writtenTogether = 100;

/**
 * Returns a function that stores a confirmed version; its promise resolves when that is written. `replica`: this process, which the
 * notices name. `known`: the nodes that it has in memory, by id; their `confirmed` is updated here.
 */
export function makeConfirmations(
  db: Database,
  replica: string,
  known: ReadonlyMap<number, { confirmed: number }>,
): (node: { id: number; orgId: number }, version: number) => Promise<void> {
  /** By organization, until the write begins; the versions by node. */
  const waiting = new Map<number, { versions: Map<number, number>; written: Promise<void> }>();
  const write = async (orgId: number, versions: ReadonlyMap<number, number>) => {
    waiting.delete(orgId);
    await db.writeFor({ org: orgId }, async (tx) => {
      for (const [at, [id, version]] of [...versions].entries()) {
        if (at % writtenTogether === writtenTogether - 1) await tx.pause();
        await nodes.update(tx, { id }, { confirmedConfigVersion: version });
        // Other replicas forget the node: they would take a later report of the version that they know for no change.
        await tx.notify("node", `${orgId}/${id}/${replica}`);
      }
    });
    for (const [id, version] of versions) {
      const node = known.get(id);
      if (node !== undefined) node.confirmed = version;
    }
  };
  return ({ id, orgId }, version) => {
    const gathering = waiting.get(orgId);
    if (gathering !== undefined) {
      gathering.versions.set(id, version);
      return gathering.written;
    }
    const versions = new Map([[id, version]]);
    const written = Bun.sleep(gatheredMs).then(() => write(orgId, versions));
    waiting.set(orgId, { versions, written });
    return written;
  };
}
