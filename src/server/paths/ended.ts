// Deletes the paths of nodes that are revoked, and what a node reported beyond its maximum.

import { maxPaths } from "../../protocol/path-report.ts";
import type { ServerOptions } from "../options.ts";
import { computed, integer, queryAll } from "../store/table.ts";
import { paths } from "../store/tables/paths.ts";

const reporting = computed({ nodeId: integer() });
const ended = `SELECT DISTINCT x.node_id FROM paths x JOIN nodes n ON n.id = x.node_id WHERE n.state <> 'active'`;
const tooMany = `SELECT node_id FROM paths GROUP BY node_id HAVING count(*) > ${maxPaths}`;

export async function deleteEndedPaths({ db }: Pick<ServerOptions, "db">): Promise<void> {
  for (const { nodeId } of await queryAll(db, reporting, ended))
    await db.writeFor("rows", (tx) => paths.delete(tx, { nodeId }));
  for (const { nodeId } of await queryAll(db, reporting, tooMany)) {
    await db.writeFor("rows", (tx) =>
      tx.run(
        `DELETE FROM paths WHERE node_id = $1 AND peer NOT IN
           (SELECT peer FROM paths WHERE node_id = $1 ORDER BY at DESC, peer LIMIT ${maxPaths})`,
        [nodeId],
      ),
    );
  }
}
