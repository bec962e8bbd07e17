// Problems of this server, for readiness checks, `agent admin server list` and the console.

import type { Warning } from "../../api/servers.ts";
import { brand } from "../../brand.ts";
import { diskSpaceAt } from "../../base/disk-space.ts";
import type { ServerOptions } from "../options.ts";
import { howToCompare, type NodeClocks } from "../nodes/contact/node-clocks.ts";
import { describeDoubt, howToConfirm } from "../store/clock.ts";

export function findWarnings({
  db,
  clock,
  nodeClocks,
  dataDirectory,
}: Pick<ServerOptions, "db" | "clock" | "dataDirectory"> & { nodeClocks: NodeClocks }): Warning[] {
  const found: Warning[] = [];
  const doubt = clock.doubt();
  if (doubt !== undefined)
    found.push({ code: "clock_doubted", text: `${describeDoubt(doubt)}.`, hint: howToConfirm });
  const byNodes = nodeClocks.doubt();
  if (byNodes !== undefined)
    found.push({ code: "clock_doubted_by_nodes", text: byNodes, hint: howToCompare });
  const damage = db.damage();
  if (damage !== undefined)
    found.push({
      code: "database_damaged",
      text: `The database is damaged: ${damage}.`,
      hint: `Examine the disk${db.dialect === "postgres" ? " of PostgreSQL, whose log says what is damaged" : ": what it cannot read looks damaged"}. If this stays, stop the server, and restore the last backup: \`${brand.executable} admin restore FILE --replace\`.`,
    });
  const disk = dataDirectory === undefined ? undefined : diskSpaceAt(dataDirectory);
  if (disk !== undefined && disk.state !== "ok") {
    const isFull = disk.state === "full";
    found.push({
      code: isFull ? "disk_full" : "disk_filling",
      text: `The disk of the control plane is ${isFull ? "full" : "nearly full"}: ${disk.text}.`,
      hint: "Delete old backups and what you do not need, or give it a larger disk. On a full disk nothing can be changed; nodes still learn of revocations.",
    });
  }
  return found;
}
