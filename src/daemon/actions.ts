// What the daemon's socket can be asked for: one table, the right that is needed beside each entry. How lines come
// and go is not known here, and nobody can name a path here: teams are picked from those that are registered.

import { brand } from "../brand.ts";
import { buildInfo } from "../build-info.ts";
import { AppError, messageOf } from "../errors.ts";
import type { Log } from "../log.ts";
import { fileLog, lastLines } from "../node/engine/engine-log.ts";
import type { System } from "../system.ts";
import type { Answer, Notice, Request, TeamStatus } from "./ipc/messages.ts";
import type { Client, Handler } from "./ipc/answer.ts";
import type { Teams } from "./teams.ts";

export type ActionDeps = {
  teams: Teams;
  subscribers: Set<(notice: Notice) => void>;
  system: Pick<System, "sleep">;
  log: Log;
  /** Begins the orderly end of the daemon. */
  shutDown(): void;
};

type Asked = { request: Request; client: Client; deps: ActionDeps };
type Reply = Omit<Answer, "ok" | "id">;

type Action = {
  /** Who may: whoever the socket lets in (root and the group), or root alone. */
  right: "member" | "root";
  /** It changes something, so it goes into the log with who asked. */
  changes: boolean;
  run(asked: Asked): Promise<Reply>;
};

const defaultLines = 100;
/** An answer with log lines stays below this. */
const maxLogText = 1024 * 1024;
const followEveryMs = 250;
/** So much of a followed log waits for a client to read it. */
const burstBytes = 256 * 1024;
const followed = new WeakMap<Client, Set<string>>();

export const actions: Readonly<Record<string, Action>> = {
  teams: { right: "member", changes: false, run: async ({ deps }) => listed(deps.teams.slugs()) },
  list: { right: "member", changes: false, run: async (asked) => status(asked) },
  status: { right: "member", changes: false, run: async (asked) => status(asked) },
  version: {
    right: "member",
    changes: false,
    run: async () => ({ message: `${brand.id} ${buildInfo.version}`, ...daemonItself() }),
  },
  logs: { right: "member", changes: false, run: async (asked) => logs(asked) },
  subscribe: { right: "member", changes: false, run: async (asked) => subscribe(asked) },
  start: { right: "member", changes: true, run: async (asked) => onTeam(asked, "start", "is running") },
  stop: { right: "member", changes: true, run: async (asked) => onTeam(asked, "stop", "is stopped") },
  restart: {
    right: "member",
    changes: true,
    run: async (asked) => onTeam(asked, "restart", "is running again"),
  },
  switch: {
    right: "member",
    changes: true,
    run: async (asked) => onTeam(asked, "switch", "is the active team"),
  },
  delete: {
    right: "member",
    changes: true,
    run: async (asked) => onTeam(asked, "forget", "is forgotten; its files stay"),
  },
  provision: { right: "member", changes: true, run: async ({ deps }) => listed(deps.teams.provision()) },
  sync: { right: "member", changes: true, run: async (asked) => sync(asked) },
  shutdown: {
    right: "root",
    changes: true,
    run: async ({ deps }) => {
      deps.shutDown();
      return { message: "The daemon stops", ...daemonItself() };
    },
  },
};

/** The handler of the socket: finds the action, checks the right, writes refusals and changes into the log. */
export function makeHandler(deps: ActionDeps): Handler {
  return async (request, client) => {
    const { uid, pid, right } = client.peer;
    const about = { action: request.action, team: request.team, uid, pid, reason: request.reason };
    try {
      const action = Object.hasOwn(actions, request.action) ? actions[request.action] : undefined;
      if (action === undefined)
        throw new AppError("unknown_action", `There is no action "${request.action}"`);
      if (action.right === "root" && right !== "root")
        throw new AppError("permission_denied", `Only root may ask for "${request.action}"`);
      if (action.changes) deps.log.info("Asked for a change", about);
      return { ok: true, ...(await action.run({ request, client, deps })) };
    } catch (error) {
      deps.log.warn("A request is refused", { ...about, why: messageOf(error) });
      throw error;
    }
  };
}

function listed(slugs: readonly string[]): Reply {
  return { message: slugs.length === 0 ? "No team" : slugs.join(", "), teams: slugs };
}

function daemonItself(): Pick<Answer, "version" | "pid"> {
  return { version: buildInfo.version, pid: process.pid };
}

async function status({ request, deps }: Asked): Promise<Reply> {
  const teams = await deps.teams.statusAsked(request.team);
  return { message: headcount(teams), teams, ...daemonItself() };
}

/** The state of all teams in a few words. */
export function headcount(teams: readonly TeamStatus[]): string {
  const running = teams.filter(({ state }) => state === "running").length;
  return `${running} of ${teams.length} teams running`;
}

async function onTeam(
  asked: Asked,
  verb: "start" | "stop" | "restart" | "switch" | "forget",
  outcome: string,
): Promise<Reply> {
  const team = namedTeam(asked.request);
  const { teams } = asked.deps;
  await teams[verb](team);
  const pid = teams.pid(team);
  return { message: `${team} ${outcome}`, team, ...(pid === undefined ? {} : { pid }) };
}

async function sync({ request, deps }: Asked): Promise<Reply> {
  const team = namedTeam(request);
  const { result, access, action, configVersion, reason, leftOut = [] } = await deps.teams.sync(team);
  return {
    message: `${team}: ${access === "ok" ? result : access}${reason === undefined ? "" : `, ${reason}`}`,
    team,
    result,
    access,
    action,
    config_version: configVersion,
    ...(leftOut.length === 0 ? {} : { left_out: leftOut }),
    ...(reason === undefined ? {} : { reason }),
  };
}

function logs({ request, client, deps }: Asked): Reply {
  const team = namedTeam(request);
  const path = deps.teams.logPath(team);
  const open = fileLog(path);
  const tail = open();
  const lines = lastLines(path, request.lines ?? defaultLines);
  for (let size = lines.join("\n").length; size > maxLogText; size -= (lines.shift() ?? "").length + 1);
  if (request.follow === true && isFirst(client, team)) {
    client.stay();
    let waiting: string[] = [];
    void follow(client, deps, () => {
      // A burst is sent as it is read, so that nobody is cut off for it.
      if (waiting.length === 0) waiting = tail.read();
      while (waiting.length > 0 && client.unread() < burstBytes) {
        client.notify({ event: "log", team, line: waiting.shift() ?? "" });
      }
    });
  }
  return { message: `${lines.length} lines`, team, lines };
}

/** What a client follows already is not sent twice, nor looked for twice. */
function isFirst(client: Client, team: string): boolean {
  const known = followed.get(client) ?? new Set();
  followed.set(client, known);
  return !known.has(team) && known.add(team).has(team);
}

async function follow(client: Client, { system, log }: ActionDeps, look: () => void): Promise<void> {
  try {
    while (!client.gone.aborted) {
      await system.sleep(followEveryMs, client.gone);
      look();
    }
  } catch (error) {
    if (!client.gone.aborted) log.warn("A log can no longer be followed", { reason: messageOf(error) });
  }
}

function subscribe({ client, deps }: Asked): Reply {
  client.stay();
  if (!deps.subscribers.has(client.notify)) {
    client.gone.addEventListener("abort", () => deps.subscribers.delete(client.notify), { once: true });
  }
  deps.subscribers.add(client.notify);
  return { message: "Changes follow", teams: deps.teams.status() };
}

function namedTeam(request: Request): string {
  if (request.team === undefined) throw new AppError("validation_failed", `"${request.action}" needs a team`);
  return request.team;
}

/** A team's change as subscribers get it. */
export function noticeOf(team: string, status: TeamStatus | undefined): Notice {
  return status === undefined ? { event: "gone", team } : { event: "team", team, status };
}
