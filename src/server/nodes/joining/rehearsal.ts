// The first write of a new process is slow: on PostgreSQL each connection prepares each statement, and its session
// reads the catalog. So a rename of a node, which does what most writes do, runs before the first request, and is
// rolled back.

import { messageOf } from "../../../base/errors.ts";
import type { Log } from "../../../base/log.ts";
import { ourselves } from "../../audit/record.ts";
import { queryOne } from "../../store/table.ts";
import { nodes } from "../../store/tables/nodes.ts";
import { changeAndRecord } from "../nodes.ts";
import type { NodeStore } from "../node-store.ts";

/** Rolls the transaction back. */
class Rehearsed extends Error {}

const pick = nodes.pick("id", "orgId");
const anyNode = `SELECT ${pick.select()} FROM nodes WHERE state = 'active'
  AND org_id IN (SELECT id FROM organizations WHERE deleted_at IS NULL) ORDER BY id LIMIT 1`;

/** Another replica may hold the lock of the organization. Then the first write stays slow. */
const maxMs = 1000;

/** Called at the start of a server. Never throws, and takes a second at most. */
export async function rehearseWrite(services: NodeStore & { log: Pick<Log, "debug"> }): Promise<void> {
  if (services.db.dialect !== "postgres") return;
  const rehearsed = rehearse(services).catch((error: unknown) => {
    // A full blocklist refuses certificates, for example.
    services.log.debug("The first write was not rehearsed", { reason: messageOf(error) });
  });
  await Promise.race([rehearsed, Bun.sleep(maxMs)]);
}

async function rehearse(services: NodeStore): Promise<void> {
  const { db, system } = services;
  const found = await queryOne(db, pick, anyNode);
  if (found === undefined) return;
  const { id, orgId } = found;
  const name = `rehearsal-${Buffer.from(system.random(8)).toString("hex")}`;
  try {
    await db.writeFor({ org: orgId }, async (tx) => {
      await changeAndRecord(tx, services, { id: orgId }, id, { name }, ourselves);
      throw new Rehearsed("rolled back");
    });
  } catch (error) {
    if (!(error instanceof Rehearsed)) throw error;
  }
}
