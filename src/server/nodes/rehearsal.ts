// A write of a new process is slow the first time: on PostgreSQL each connection prepares each statement, and its session
// reads the catalog. So the rename of a node, which does what most writes do, is run and rolled back before requests come.

import { messageOf } from "../../errors.ts";
import type { Log } from "../../log.ts";
import { ourselves, record } from "../audit/record.ts";
import { findNode } from "../store/nodes.ts";
import { joined, queryOne } from "../store/table.ts";
import { nodes } from "../store/tables/nodes.ts";
import { changeNode, showOne } from "./nodes.ts";
import type { NodeStore } from "./node-store.ts";
import { organizations } from "../store/tables/organizations.ts";

/** Rolls the transaction back. */
class Rehearsed extends Error {}

const pick = joined("n", nodes.pick("id", "orgId"), "o", organizations.pick("slug"));
const anyNode = `SELECT ${pick.select()} FROM nodes n JOIN organizations o ON o.id = n.org_id
  WHERE n.state = 'active' AND o.deleted_at IS NULL ORDER BY n.id LIMIT 1`;

/** Another replica may hold the lock of the organization: then the first write is as slow as it is. */
const maxMs = 1000;

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
  const { id, orgId, slug } = found;
  const org = { id: orgId, slug };
  const name = `rehearsal-${Buffer.from(system.random(8)).toString("hex")}`;
  try {
    await db.writeFor({ org: orgId }, async (tx) => {
      const { updated, issued } = await changeNode(tx, services, org, id, { name }, ourselves);
      await record(tx, [updated, ...issued]);
      throw new Rehearsed("rolled back");
    });
  } catch (error) {
    if (!(error instanceof Rehearsed)) throw error;
  }
  await showOne(services, org, await findNode(db, orgId, id));
}
