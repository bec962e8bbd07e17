// `agent admin server list`: the servers that work on one PostgreSQL database.

import { brand } from "../../brand.ts";
import type { Implementation } from "../command.ts";
import { Servers, type Server } from "./answers.ts";
import { read } from "./api.ts";
import { targetFlags } from "./target.ts";

export const list: Implementation = {
  notes:
    "Only servers on PostgreSQL are listed: one server at most uses a SQLite file. A server that ended without a stop is\n" +
    "listed for an hour.",
  args: targetFlags,
  examples: [`${brand.executable} admin server list`],
  async run(context) {
    const { servers, database } = await read(context, (api) => api.get("/api/servers/", Servers));
    if (database === "sqlite")
      context.output.say("The data is in a SQLite file, which one server at most uses.");
    context.output.list(
      { servers },
      {
        columns: ["HOST", "VERSION", "STATE", "LAST SEEN", "RUNS", "CLOCK AHEAD", "NOTICES", "LAST ERROR"],
        rows: servers.map(rowOf),
        none: "No servers are listed.",
      },
    );
  },
};

const seconds = (ms: number) => `${(ms / 1000).toFixed(1)} s`;

function rowOf(server: Server) {
  const { last_error: error, last_error_at: errorAt, leases } = server;
  return [
    server.host,
    server.version,
    server.running ? ({ text: "running", mark: "good" } as const) : ({ text: "ended", mark: "bad" } as const),
    server.last_seen_at,
    leases.length === 0 ? "no background loop" : leases.join(", "),
    seconds(server.clock_ahead_ms),
    `${seconds(server.notices_behind_ms)} old`,
    error === null ? "-" : `${errorAt ?? ""}: ${error}`,
  ];
}
