// The actions of the daemon's socket: one table with the right that each needs. Requests name registered organizations,
// never paths; `team` is the slug of an organization. Framing of lines belongs to ipc/.

import { join } from "node:path";
import { given } from "../base/given.ts";
import { countOf } from "../base/quantities.ts";
import { brand } from "../brand.ts";
import { buildInfo } from "../build-info.ts";
import { AppError, messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { staysClosed } from "../node/files/granted/exits.ts";
import { fileLog, lastLines } from "../node/engine/engine-log.ts";
import type { System } from "../base/system.ts";
import type { Answer, Notice, Request, OrganizationState } from "./ipc/messages.ts";
import { followLog } from "./follow-log.ts";
import type { Client, Handler } from "./ipc/answer-line.ts";
import type { OrganizationEngines } from "./organization-engines.ts";

type ActionDeps = {
  engines: OrganizationEngines;
  configRoot: string;
  subscribers: Set<(notice: Notice) => void>;
  system: Pick<System, "sleep">;
  log: Log;
  /** Starts the orderly end of the daemon. */
  shutDown(): void;
};

type Call = { request: Request; client: Client; deps: ActionDeps };
type Reply = Omit<Answer, "ok" | "id">;

type Action = {
  /** member: everyone who can connect (root and the group); root: only root. */
  right: "member" | "root";
  /** Changes are logged with the user who requested them. */
  changes: boolean;
  run(call: Call): Promise<Reply>;
};

const defaultLines = 100;
/** Characters of log lines in one answer. */
const maxLogText = 1024 * 1024;

export const actions: Readonly<Record<string, Action>> = {
  teams: { right: "member", changes: false, run: async ({ deps }) => listed(deps.engines.slugs()) },
  list: { right: "member", changes: false, run: showStatus },
  status: { right: "member", changes: false, run: showStatus },
  version: {
    right: "member",
    changes: false,
    run: async ({ deps }) => ({ message: `${brand.id} ${buildInfo.version}`, ...aboutDaemon(deps) }),
  },
  peers: { right: "member", changes: false, run: listPeers },
  logs: { right: "member", changes: false, run: readLogs },
  subscribe: { right: "member", changes: false, run: subscribe },
  prove: { right: "member", changes: false, run: prove },
  start: { right: "member", changes: true, run: onOne("start", "is running") },
  stop: { right: "member", changes: true, run: onOne("stop", "is stopped") },
  restart: { right: "member", changes: true, run: onOne("restart", "is running again") },
  switch: { right: "member", changes: true, run: onOne("switch", "is the active organization") },
  delete: { right: "member", changes: true, run: onOne("forget", "is forgotten; its files stay") },
  provision: { right: "member", changes: true, run: async ({ deps }) => listed(deps.engines.provision()) },
  sync: { right: "member", changes: true, run: sync },
  exit: { right: "member", changes: true, run: chooseExit },
  shutdown: {
    right: "root",
    changes: true,
    run: async ({ deps }) => {
      deps.shutDown();
      return { message: "The daemon stops", ...aboutDaemon(deps) };
    },
  },
};

/** The handler of the socket: finds the action, checks the right, logs refusals and changes. */
export function makeHandler(deps: ActionDeps): Handler {
  return async (request, client) => {
    const { uid, pid, right } = client.peer;
    const about = { action: request.action, team: request.team, uid, pid, reason: request.reason };
    try {
      const action = Object.hasOwn(actions, request.action) ? actions[request.action] : undefined;
      if (action === undefined)
        throw new AppError("unknown_action", `There is no action "${request.action}"`);
      if (action.right === "root" && right !== "root")
        throw new AppError("permission_denied", `Only root may request "${request.action}"`);
      if (action.changes) deps.log.info("Change requested", about);
      return { ok: true, ...(await action.run({ request, client, deps })) };
    } catch (error) {
      deps.log.warn("Request refused", { ...about, why: messageOf(error) });
      throw error;
    }
  };
}

/** Answers with slugs. */
function listed(slugs: readonly string[]): Reply {
  return { message: slugs.length === 0 ? "No organization" : slugs.join(", "), teams: slugs };
}

function aboutDaemon({ configRoot }: ActionDeps): Pick<Answer, "version" | "pid" | "config_root"> {
  return { version: buildInfo.version, pid: process.pid, config_root: configRoot };
}

async function showStatus({ request, deps }: Call): Promise<Reply> {
  if (request.probe === true) await deps.engines.check(request.team);
  const statuses = await deps.engines.statusWithPeers(request.team);
  return { message: summarize(statuses), teams: statuses, ...aboutDaemon(deps) };
}

/** All peers; with `peer` only that one, which is then probed for a minute. */
async function listPeers({ request, deps }: Call): Promise<Reply> {
  const slug = slugOf(request);
  const { peers, reportsTunnels, engineVersion } = await deps.engines.peers(slug, request.peer);
  return {
    message: countOf(peers.length, "peer"),
    team: slug,
    peers,
    reports_tunnels: reportsTunnels,
    ...given({ engine_version: engineVersion }),
  };
}

/** "1 of 2 organizations running". */
export function summarize(statuses: readonly OrganizationState[]): string {
  const running = statuses.filter(({ state }) => state === "running").length;
  return `${running} of ${statuses.length} organizations running`;
}

/** An action on one organization. `outcome`: how the message goes on after its name. */
function onOne(verb: "start" | "stop" | "restart" | "switch" | "forget", outcome: string): Action["run"] {
  return async ({ request, deps: { engines } }) => {
    const slug = slugOf(request);
    await engines[verb](slug);
    const pid = engines.pid(slug);
    return { message: `${slug} ${outcome}`, team: slug, ...given({ pid }) };
  };
}

/** Proves that a session of the caller is on this machine. The proof only lets the session end with the node. */
async function prove({ request, deps }: Call): Promise<Reply> {
  const { session, control_plane: controlPlane } = request;
  if (session === undefined || controlPlane === undefined || !URL.canParse(controlPlane))
    throw new AppError("validation_failed", "`prove` needs `session` and `control_plane`");
  const { proofsOf } = await import("../node/contact/requests/session-nodes.ts");
  const proofs = proofsOf(deps.configRoot, controlPlane, session);
  return { message: `${countOf(proofs.length, "node")} at this control plane`, proofs };
}

async function sync({ request, deps }: Call): Promise<Reply> {
  const slug = slugOf(request);
  const outcome = await deps.engines.sync(slug);
  const { result, access, action, configVersion, reason, leftOut = [], restored = [] } = outcome;
  return {
    message: `${slug}: ${access === "ok" ? result : access}${reason === undefined ? "" : `, ${reason}`}`,
    team: slug,
    result,
    access,
    action,
    config_version: configVersion,
    ...(leftOut.length === 0 ? {} : { left_out: leftOut }),
    ...(restored.length === 0 ? {} : { restored }),
    ...given({ reason }),
  };
}

async function chooseExit({ request, client, deps }: Call): Promise<Reply> {
  const slug = slugOf(request);
  if (request.exit === undefined) throw new AppError("validation_failed", '"exit" needs `exit`');
  // --strict needs a unit that blocks other ways at a boot, which only root can install. And only root ends what root began.
  const { strict, use } = request.exit;
  const isStrictNow = staysClosed(join(deps.configRoot, slug));
  if ((strict || isStrictNow) && client.peer.right !== "root") {
    const what = strict ? "use an exit with --strict" : "open or change an exit that is used with --strict";
    const { exitCommand } = await import("../node/exit/set-exit.ts");
    throw new AppError("permission_denied", `Only root may ${what}`, {
      hint: `\`sudo ${exitCommand(slug, use === "off" ? use : request.exit)}\``,
    });
  }
  await deps.engines.useExit(slug, request.exit);
  return { message: `The exit of ${slug}: ${request.exit.use}`, team: slug };
}

async function readLogs({ request, client, deps }: Call): Promise<Reply> {
  const slug = slugOf(request);
  const path = deps.engines.logPath(slug);
  // Open it before the last lines are read: else new lines in between would be missed.
  const tail = fileLog(path)();
  const lines = lastLines(path, request.lines ?? defaultLines);
  // Drop the oldest lines that do not fit.
  for (let size = lines.join("\n").length; size > maxLogText; size -= (lines.shift() ?? "").length + 1);
  if (request.follow === true) followLog(client, slug, tail, deps);
  return { message: `${lines.length} lines`, team: slug, lines };
}

async function subscribe({ client, deps }: Call): Promise<Reply> {
  client.stay();
  if (!deps.subscribers.has(client.notify)) {
    client.gone.addEventListener("abort", () => deps.subscribers.delete(client.notify), { once: true });
  }
  deps.subscribers.add(client.notify);
  return { message: "Changes follow", teams: deps.engines.status() };
}

function slugOf({ action, team: slug }: Request): string {
  if (slug === undefined)
    throw new AppError("validation_failed", `"${action}" needs "team": the slug of an organization`);
  return slug;
}

/** The change of an organization as subscribers get it. */
export function noticeOf(slug: string, status: OrganizationState | undefined): Notice {
  return status === undefined ? { event: "gone", team: slug } : { event: "team", team: slug, status };
}
