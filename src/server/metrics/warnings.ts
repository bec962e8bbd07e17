// Problems of this server, for readiness checks, `agent admin server list` and the console.

import { X509Certificate } from "node:crypto";
import type { Warning } from "../../api/servers.ts";
import { diskSpaceAt } from "../../base/disk-space.ts";
import { formatTime } from "../../base/quantities.ts";
import type { ServerOptions } from "../options.ts";
import { howToCompare, type NodeClocks } from "../nodes/contact/node-clocks.ts";
import { damageRemedy } from "../store/sqlite/errors.ts";
import { damageRemedy as postgresDamageRemedy } from "../store/postgres/errors.ts";
import { describeDoubt, howToConfirm } from "../store/clock.ts";

type Sources = Pick<ServerOptions, "db" | "clock" | "dataDirectory" | "tlsCertificate"> & {
  nodeClocks: NodeClocks;
};

export function findWarnings({ db, clock, nodeClocks, dataDirectory, tlsCertificate }: Sources): Warning[] {
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
      hint: db.dialect === "postgres" ? postgresDamageRemedy : damageRemedy,
    });
  const disk = dataDirectory === undefined ? undefined : diskSpaceAt(dataDirectory);
  if (disk !== undefined && disk.state !== "ok") {
    const isFull = disk.state === "full";
    found.push({
      code: isFull ? "disk_full" : "disk_filling",
      text: `The disk of the control plane ${isFull ? "is so full that the next change may fail" : "is nearly full"}: ${disk.text}.`,
      hint: "Delete old backups and what you do not need, or give it a larger disk. Once it is full, nothing can be changed; nodes still learn of revocations.",
    });
  }
  const certificate = tlsCertificate?.();
  const ending = certificate === undefined ? undefined : describeEnding(certificate, clock.now());
  if (ending !== undefined)
    found.push({
      code: "tls_certificate_ending",
      text: ending,
      hint: "Nodes and browsers refuse it from then on. Replace the files of --tls-cert and --tls-key, and the server uses them at once; with --tls acme its log says why the authority gives no new one.",
    });
  return found;
}

const soonMs = 14 * 86_400_000;

/**
 * Undefined while the certificate has two weeks left, or a tenth of its life: an authority may want it renewed as late as
 * that (renewal.ts).
 */
function describeEnding(pem: string, now: number): string | undefined {
  const { validFromDate, validToDate } = new X509Certificate(pem);
  const [from, to] = [validFromDate.getTime(), validToDate.getTime()];
  if (to - now > Math.min(soonMs, (to - from) / 10)) return undefined;
  return `The TLS certificate of the control plane ${to <= now ? "ended" : "ends"} on ${formatTime(to)}, and was not renewed.`;
}
