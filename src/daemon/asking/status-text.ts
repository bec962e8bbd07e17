// The report of `agent status` as text. Loads little: the command must start fast.

import { brand } from "../../brand.ts";
import { quoteWord } from "../../base/quote.ts";
import { describeLeftOut } from "../../engine/left-out.ts";
import { describeSeal } from "../../engine/seal-seen.ts";
import { describeConfirmation } from "../../node/health/confirmation-shown.ts";
import type { OrganizationState } from "../ipc/messages.ts";
import {
  dataPlaneNotes,
  findingNotes,
  flowNotes,
  healthNotes,
  mappingNotes,
  relayNotes,
  routeNotes,
  stateText,
  tcpNotes,
} from "./health-text.ts";
import { isDaemonMissed, type StatusReport } from "./status-report.ts";
import { daysLeft, roughly, textTable } from "./text-table.ts";

/** The first line is the summary. `width`: of the terminal. */
export function renderStatus(report: StatusReport, now: number, width?: number): string {
  const { teams } = report;
  const lines = [headline(report)];
  if (teams.length > 0) {
    const withPeers = teams.some(({ peers }) => peers !== undefined);
    const rows = teams.map((status) => row(status, withPeers, now));
    const peers = withPeers ? ["PEERS"] : [];
    const table = [
      ["ORGANIZATION", "STATE", "ADDRESS", "PROCESS", "UPTIME", ...peers, "CERTIFICATE", "LAST CHECK-IN"],
      ...rows,
    ];
    lines.push("", ...textTable(table, width));
    const notes = teams.flatMap((status) =>
      [
        ...findingNotes(status),
        ...healthNotes(status, now),
        ...routeNotes(status),
        ...tcpNotes(status),
        ...mappingNotes(status),
        ...relayNotes(status),
        ...dataPlaneNotes(status),
        ...flowNotes(status),
        ...notesOn(status),
      ].map((note) => `${status.team}: ${note}`),
    );
    const all = [...notes, ...(report.names?.notes ?? [])];
    if (all.length > 0) lines.push("", ...all);
  }
  return `${lines.join("\n")}\n`;
}

/** Further notes on one organization. */
function notesOn(status: OrganizationState): string[] {
  const { team: slug, message, restart_pending: pending = [], left_out, findings = [], ...rest } = status;
  // data_plane has its own note of the offloads that wait for a restart.
  const keys = pending.filter((key) => rest.data_plane?.why !== "restart" || !/_?offloads$/.test(key));
  const restart = `${keys.join(", ")} will apply after \`${brand.executable} restart ${quoteWord(slug)}\``;
  return [
    // A finding may say the same.
    ...(message === undefined || findings.some(({ what }) => what.endsWith(message)) ? [] : [message]),
    // A damaged organization has no certificate here, and its message says what to do first.
    ...(rest.state === "stopped" && rest.wanted === "down" && rest.certificate_not_after !== ""
      ? [`To start it: \`${brand.executable} start ${quoteWord(slug)}\``]
      : []),
    ...confirmationNotes(rest),
    ...(keys.length === 0 ? [] : [restart]),
    ...(left_out === undefined ? [] : [describeLeftOut(left_out)]),
    ...(rest.seal === undefined ? [] : [describeSeal(rest.seal)]),
  ];
}

function confirmationNotes({ state, confirm }: Pick<OrganizationState, "state" | "confirm">): string[] {
  if (confirm === undefined || state === "revoked") return [];
  const { what, next } = describeConfirmation(confirm);
  return [`${what}. ${next}`];
}

function headline(report: StatusReport): string {
  const { teams } = report;
  const running = teams.filter(({ state }) => state === "running");
  const daemonDoes = report.daemon.silent === true ? "does not answer" : "is not running";
  const missed = isDaemonMissed(report) ? `The daemon ${daemonDoes}: ` : "";
  const [only] = teams;
  if (only === undefined) return "No organization is registered on this machine";
  const state = stateText(only);
  if (teams.length === 1)
    return `${missed}${only.team} is ${state === "running" ? `running as ${only.ip_address}` : state}`;
  const degraded = teams.filter((status) => stateText(status) === "degraded").length;
  const also = degraded === 0 ? "" : `, ${degraded} of them degraded`;
  return `${missed}${running.length} of ${teams.length} organizations running${also}`;
}

function row(status: OrganizationState, withPeers: boolean, now: number): string[] {
  const checkin = status.last_checkin_at;
  return [
    // The one that `switch` chose.
    status.active === true ? `${status.team} *` : status.team,
    stateText(status),
    status.ip_address,
    status.pid === undefined ? "-" : String(status.pid),
    status.uptime_s === undefined ? "-" : roughly(status.uptime_s),
    ...(withPeers ? [String(status.peers ?? "-")] : []),
    daysLeft(status.certificate_not_after, now),
    checkin === undefined ? "-" : `${roughly((now - Date.parse(checkin)) / 1000)} ago`,
  ];
}
