// `agent admin server list`: the servers that work on one PostgreSQL database.

import { brand } from "../../brand.ts";
import type { ReplicaReport } from "../../server/store/replicas.ts";
import { onData } from "./data.ts";
import { tableLine } from "../../log.ts";
import type { Implementation } from "../command.ts";
import { dataFlags } from "../server-flags.ts";

export const list: Implementation = {
  notes:
    "Only servers on PostgreSQL are listed: one server at most uses a SQLite file. A server that ended without a stop is\n" +
    "listed for an hour.",
  args: dataFlags,
  examples: [`${brand.executable} admin server list`],
  async run(context) {
    const { listReplicas } = await import("../../server/store/replicas.ts");
    const { formatTime } = await import("../../duration.ts");
    const { replicas, isOne } = await onData(context, async ({ db }) => ({
      replicas: await listReplicas(db),
      isOne: db.dialect === "sqlite",
    }));
    if (isOne) context.output.say("The data is in a SQLite file, which one server at most uses.");
    const servers = replicas.map((each) => ({
      id: each.id,
      host: each.host,
      version: each.version,
      running: each.isRunning,
      started_at: formatTime(each.startedAt),
      last_seen_at: formatTime(each.seenAt),
      leases: each.leases,
      clock_ahead_ms: each.clockAheadMs,
      notices_behind_ms: each.noticesBehindMs,
      last_error: each.lastError,
      last_error_at: each.lastErrorAt === null ? null : formatTime(each.lastErrorAt),
    }));
    context.output.result({ servers }, replicas.map((each) => linesOf(each, formatTime)).join(""));
  },
};

function linesOf(replica: ReplicaReport, formatTime: (ms: number) => string): string {
  const { host, version, isRunning, seenAgoMs, startedAt, leases, lastError, lastErrorAt } = replica;
  const seconds = (ms: number) => `${(ms / 1000).toFixed(1)} s`;
  const state = isRunning ? "running" : "ended";
  const facts = [
    `started ${formatTime(startedAt)}, last seen ${seconds(seenAgoMs)} ago`,
    `runs ${leases.length === 0 ? "no background loop" : leases.join(", ")}`,
    `notices at most ${seconds(replica.noticesBehindMs)} old, clock ${seconds(replica.clockAheadMs)} ahead of the database`,
    ...(lastError === null ? [] : [`last error ${formatTime(lastErrorAt ?? 0)}: ${lastError}`]),
  ];
  return [tableLine([host, version, state]), ...facts.map((fact) => tableLine([`  ${fact}`]))].join("");
}
