// The report of `agent status`: the daemon's answer, completed from systemd and the process table for organizations that
// the daemon does not run. It must start fast, so it loads the readers of files and units only when they are needed.

import { brand } from "../brand.ts";
import { AppError } from "../errors.ts";
import { quoteWord } from "../plan.ts";
import { describeLeftOut } from "../left-out.ts";
import { listOrganizations } from "../node/files/list-organizations.ts";
import type { System } from "../system.ts";
import { askDaemon } from "./ipc/client.ts";
import type { Answer, TeamStatus } from "./ipc/messages.ts";
import type { LocalAddress } from "./ipc/transport.ts";

export type StatusReport = {
  daemon: { running: boolean; version?: string; pid?: number };
  teams: TeamStatus[];
};

type Places = { address: LocalAddress; configRoot: string; stateDb: string };

export async function readStatus(
  { address, configRoot, stateDb }: Places,
  slug: string | undefined,
  system: Pick<System, "sleep" | "run" | "now" | "platform" | "fetch">,
): Promise<StatusReport> {
  // List the directories while the daemon prepares its answer.
  const [answer, slugs] = await Promise.all([
    statusOfDaemon(address, system),
    Promise.try(listOrganizations, configRoot),
  ]);
  const ofDaemon = (answer?.teams ?? []).filter((each) => typeof each === "object");
  const others = slugs.filter((each) => !ofDaemon.some(({ team }) => team === each));
  const found =
    others.length === 0
      ? []
      : await readOthers({ configRoot, stateDb }, others, answer !== undefined, system);
  const teams = [...ofDaemon, ...found]
    .filter(({ team }) => slug === undefined || team === slug)
    .sort((a, b) => (a.team < b.team ? -1 : 1));
  const { version, pid } = answer ?? {};
  return {
    daemon: {
      running: answer !== undefined,
      ...(version === undefined ? {} : { version }),
      ...(pid === undefined ? {} : { pid }),
    },
    teams,
  };
}

/** There are organizations of mode desktop, and their daemon does not run. */
export function isDaemonMissed({ daemon, teams }: StatusReport): boolean {
  return !daemon.running && teams.some(({ mode }) => mode === "desktop");
}

async function statusOfDaemon(
  address: LocalAddress,
  system: Pick<System, "sleep">,
): Promise<Answer | undefined> {
  try {
    return await askDaemon(address, system, { action: "status" }, { patient: false });
  } catch (error) {
    if (error instanceof AppError && error.code === "daemon_unreachable") return undefined;
    throw error;
  }
}

/** Returns organizations of mode server and damaged ones; those of mode desktop only if no daemon runs. */
async function readOthers(
  places: Pick<Places, "configRoot" | "stateDb">,
  slugs: readonly string[],
  daemonRuns: boolean,
  system: Pick<System, "run" | "now" | "platform" | "fetch">,
): Promise<TeamStatus[]> {
  const { readStatusWithoutDaemon } = await import("./status-without-daemon.ts");
  const found = await Promise.all(slugs.map((slug) => readStatusWithoutDaemon(places, slug, system)));
  return found
    .filter(({ status, isDamaged }) => isDamaged || status.mode === "server" || !daemonRuns)
    .map(({ status }) => status);
}

/** The report as text. The first line is the summary. */
export function renderStatus(report: StatusReport, now: number): string {
  const { teams } = report;
  const lines = [headline(report)];
  if (teams.length > 0) {
    const withPeers = teams.some(({ peers }) => peers !== undefined);
    const rows = teams.map((team) => row(team, withPeers, now));
    const peers = withPeers ? ["PEERS"] : [];
    const table = [
      ["ORGANIZATION", "STATE", "ADDRESS", "PROCESS", "UPTIME", ...peers, "CERTIFICATE", "LAST CHECK-IN"],
      ...rows,
    ];
    const widths =
      table[0]?.map((_, at) => Math.max(...table.map((cells) => (cells[at] ?? "").length))) ?? [];
    lines.push(
      "",
      ...table.map((cells) =>
        cells
          .map((cell, at) => cell.padEnd(widths[at] ?? 0))
          .join("  ")
          .trimEnd(),
      ),
    );
    const notes = teams.flatMap((team) => notesOn(team).map((note) => `${team.team}: ${note}`));
    if (notes.length > 0) lines.push("", ...notes);
  }
  return `${lines.join("\n")}\n`;
}

function notesOn({ team, message, restart_pending: pending = [], left_out }: TeamStatus): string[] {
  const restart = `${pending.join(", ")} will apply after \`${brand.executable} restart ${quoteWord(team)}\``;
  return [
    ...(message === undefined ? [] : [message]),
    ...(pending.length === 0 ? [] : [restart]),
    ...(left_out === undefined ? [] : [describeLeftOut(left_out)]),
  ];
}

function headline(report: StatusReport): string {
  const { teams } = report;
  const running = teams.filter(({ state }) => state === "running");
  const missed = isDaemonMissed(report) ? "The daemon is not running: " : "";
  const [only] = teams;
  if (only === undefined) return "No organization is registered on this machine";
  if (teams.length === 1)
    return `${missed}${only.team} is ${only.state === "running" ? `running as ${only.ip_address}` : only.state}`;
  return `${missed}${running.length} of ${teams.length} organizations running`;
}

function row(team: TeamStatus, withPeers: boolean, now: number): string[] {
  const checkin = team.last_checkin_at;
  return [
    team.active === true ? `${team.team} *` : team.team,
    team.state,
    team.ip_address,
    team.pid === undefined ? "-" : String(team.pid),
    team.uptime_s === undefined ? "-" : roughly(team.uptime_s),
    ...(withPeers ? [String(team.peers ?? "-")] : []),
    daysLeft(team.certificate_not_after, now),
    checkin === undefined ? "-" : `${roughly((now - Date.parse(checkin)) / 1000)} ago`,
  ];
}

function daysLeft(notAfter: string, now: number): string {
  const days = Math.floor((Date.parse(notAfter) - now) / 86_400_000);
  if (Number.isNaN(days)) return "-";
  return days < 0 ? "expired" : `${days} days left`;
}

/** The two largest units: "3d 4h", "12m 5s". */
function roughly(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  const parts = [
    [Math.floor(whole / 86_400), "d"],
    [Math.floor(whole / 3600) % 24, "h"],
    [Math.floor(whole / 60) % 60, "m"],
    [whole % 60, "s"],
  ] as const;
  const first = parts.findIndex(([count]) => count > 0);
  const shown = first < 0 ? parts.slice(-1) : parts.slice(first, first + 2);
  return shown.map(([count, unit]) => `${count}${unit}`).join(" ");
}
