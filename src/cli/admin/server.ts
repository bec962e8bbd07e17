// `agent admin server list`: the servers that work on one PostgreSQL database. `agent admin clock confirm`.

import { request } from "../../api/request.ts";
import { serversApi, type Server } from "../../api/servers.ts";
import { brand } from "../../brand.ts";
import { formatTime } from "../../base/quantities.ts";
import type { Implementation } from "../command.ts";
import { read, write } from "./api.ts";

export const list: Implementation = {
  notes:
    "Only servers on PostgreSQL are listed: one server at most uses a SQLite file. A server that ended without a stop is\n" +
    "listed for an hour.",
  examples: [`${brand.executable} admin server list`],
  async run(context) {
    const { servers, database, warnings } = await read(context, (api) => api.call(serversApi.list, {}));
    if (database === "sqlite")
      context.output.say("The data is in a SQLite file, which one server at most uses.");
    for (const { text, hint } of warnings) context.output.say(`Warning: ${text}\n  ${hint}`);
    context.output.list(
      { servers, warnings },
      {
        columns: ["HOST", "VERSION", "STATE", "LAST SEEN", "RUNS", "CLOCK AHEAD", "NOTICES", "LAST ERROR"],
        rows: servers.map(rowOf),
        none: "No servers are listed.",
      },
    );
  },
};

export const confirmClock: Implementation = {
  notes:
    "After a jump of its clock, a control plane signs no certificate until the clock is back: what is signed by a wrong clock,\n" +
    "no node can use. This command says that what the clock shows is right. The clock of this machine must agree with it.",
  examples: [`${brand.executable} admin clock confirm`],
  async run(context) {
    const time = formatTime(context.system.now());
    const shown = await write(context, async () => ({
      ...request(serversApi.confirmClock, {}, { time }),
      effect: `confirm that it is ${time}`,
    }));
    if (shown === undefined) return;
    context.output.result(
      shown,
      `The clock is confirmed: it is ${shown.clock}. Certificates are signed again.\n`,
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
