// What `agent status` shows: the daemon's answer, and for teams that it does not hold what systemd and the process
// table say. It asks and reads; it loads the readers of files and units only where there is something to read.

import { brand } from "../brand.ts";
import { AppError, systemErrorCode } from "../errors.ts";
import { describeLeftOut } from "../left-out.ts";
import { slugPattern } from "../slug.ts";
import type { System } from "../system.ts";
import { connectDaemon } from "./ipc/client.ts";
import type { Answer, TeamStatus } from "./ipc/messages.ts";
import type { LocalAddress } from "./ipc/transport.ts";

export type StatusReport = {
  daemon: { running: boolean; version?: string; pid?: number };
  teams: TeamStatus[];
};

type Places = { address: LocalAddress; configRoot: string };

export async function readStatus(
  { address, configRoot }: Places,
  team: string | undefined,
  system: Pick<System, "sleep" | "run" | "now" | "platform" | "fetch">,
): Promise<StatusReport> {
  // Read while the daemon is at work.
  const [answer, slugs] = await Promise.all([askDaemon(address, system), registered(configRoot)]);
  const held = (answer?.teams ?? []).filter((each) => typeof each === "object");
  const others = slugs.filter((slug) => !held.some((each) => each.team === slug));
  const found = others.length === 0 ? [] : await readOthers(configRoot, others, answer !== undefined, system);
  const teams = [...held, ...found]
    .filter((each) => team === undefined || each.team === team)
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

/** There are teams that only the daemon can speak for, and it does not answer. */
export function isDaemonMissed({ daemon, teams }: StatusReport): boolean {
  return !daemon.running && teams.some(({ mode }) => mode === "desktop");
}

async function askDaemon(address: LocalAddress, system: Pick<System, "sleep">): Promise<Answer | undefined> {
  try {
    const daemon = await connectDaemon(address, system, { patient: false });
    try {
      return await daemon.request({ action: "status" });
    } finally {
      daemon.close();
    }
  } catch (error) {
    if (error instanceof AppError && error.code === "daemon_unreachable") return undefined;
    throw error;
  }
}

/** Bun's own glob, because node:fs costs more than all the rest of this command. It passes over some damage. */
async function registered(configRoot: string): Promise<string[]> {
  const scan = (pattern: string, onlyFiles: boolean) => {
    const found = new Bun.Glob(pattern).scanSync({ cwd: configRoot, followSymlinks: true, onlyFiles });
    return [...found].map((path) => path.split(/[\\/]/)[0] ?? "").filter((name) => slugPattern.test(name));
  };
  try {
    const found = scan("*/node-config.json", true);
    if (found.length === scan("*", false).length) return found;
  } catch (error) {
    if (systemErrorCode(error) === "ENOENT") return [];
  }
  const { listOrganizations } = await import("../node/files/list-organizations.ts");
  return listOrganizations(configRoot);
}

/** Teams of mode server and damaged ones always; those of mode desktop only where no daemon speaks for them. */
async function readOthers(
  configRoot: string,
  slugs: readonly string[],
  daemonRuns: boolean,
  system: Pick<System, "run" | "now" | "platform" | "fetch">,
): Promise<TeamStatus[]> {
  const { readTeamWithoutDaemon } = await import("./team-without-daemon.ts");
  const teams = await Promise.all(slugs.map((slug) => readTeamWithoutDaemon(configRoot, slug, system)));
  return teams
    .filter(({ status, isDamaged }) => isDamaged || status.mode === "server" || !daemonRuns)
    .map(({ status }) => status);
}

/** The report as a person reads it: the first line says it all. */
export function renderStatus(report: StatusReport, now: number): string {
  const { teams } = report;
  const lines = [headline(report)];
  if (teams.length > 0) {
    const withPeers = teams.some(({ peers }) => peers !== undefined);
    const rows = teams.map((team) => row(team, withPeers, now));
    const peers = withPeers ? ["PEERS"] : [];
    const table = [
      ["TEAM", "STATE", "ADDRESS", "PROCESS", "UPTIME", ...peers, "CERTIFICATE", "LAST CHECK-IN"],
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
  const restart = `${pending.join(", ")} will be in force after \`${brand.executable} restart ${team}\``;
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
  if (only === undefined) return "No team is registered on this machine";
  if (teams.length === 1)
    return `${missed}${only.team} is ${only.state === "running" ? `running as ${only.ip_address}` : only.state}`;
  return `${missed}${running.length} of ${teams.length} teams running`;
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

/** "3d 4h", "12m 5s": the two largest units. */
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
