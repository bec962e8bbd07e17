// Who may connect to the daemon's socket, how many at a time, and the log of refusals.

import type { Log } from "../../base/log.ts";
import type { System } from "../../base/system.ts";
import type { PeerCredentials } from "../../platform/libc.ts";
import type { Client, Peer } from "./answer-line.ts";
import type { Access } from "./transport.ts";

const maxClients = 500;
/** Maximum connections of one user. */
const maxClientsOfUser = 100;
/** Extra places for root when all others are taken. */
const placesForRoot = 20;
const refusalLogMs = 60_000;

export type Refusal = { code: "permission_denied" | "busy"; message: string };

/** The kernel must identify the caller as root, as the daemon's own user, or as a member of the group. */
export function admit(
  credentials: PeerCredentials | undefined,
  connections: ReadonlySet<{ client: Client }>,
  access: Access,
): Peer | Refusal {
  const peer = identify(credentials, access);
  if (peer === undefined)
    return {
      code: "permission_denied",
      message: "Permission denied: only root and the group can use this socket",
    };
  if (connections.size >= maxClients + (peer.right === "root" ? placesForRoot : 0))
    return { code: "busy", message: "Too many clients" };
  if (peer.right === "member") {
    const ofUser = [...connections].filter(({ client }) => client.peer.uid === peer.uid).length;
    if (ofUser >= maxClientsOfUser) return { code: "busy", message: "Too many clients of this user" };
  }
  return peer;
}

/** The access list of a pipe decides who connects. Windows does not say who did, so each client counts as administrator. */
export const administrator: PeerCredentials = { pid: 0, uid: 0, gid: 0, groups: [] };

function identify(credentials: PeerCredentials | undefined, access: Access): Peer | undefined {
  if (credentials === undefined) return undefined;
  const { pid, uid, gid, groups } = credentials;
  if (uid === 0 || uid === process.getuid?.()) return { pid, uid, gid, right: "root" };
  const { groupId } = access;
  const member = groupId !== undefined && (gid === groupId || groups.includes(groupId));
  return member ? { pid, uid, gid, right: "member" } : undefined;
}

/** The texts of the first refusal, and of those that follow within a minute. */
export const clientRefused = ["Client refused", "More clients refused"] as const;
export const lineRefused = ["Malformed line refused", "More malformed lines refused"] as const;

type RefusalLog = (
  events: typeof clientRefused | typeof lineRefused,
  why: { code: string; message?: string },
  caller: Partial<Pick<PeerCredentials, "uid" | "pid">>,
) => void;

/** Logs the first refusal of a user and code at once, and a minute later the number of further ones. */
export function makeRefusalLog(
  { log, system }: { log: Log; system: Pick<System, "sleep"> },
  ended: AbortSignal,
): RefusalLog {
  /** Refusals since the one that was logged. The key has its text, code and user. */
  const further = new Map<string, number>();
  return ([first, more], { code, message: reason }, { uid, pid }) => {
    const kind = `${first} ${code} ${uid}`;
    const count = further.get(kind);
    if (count !== undefined) return void further.set(kind, count + 1);
    log.warn(first, { code, uid, pid, reason });
    further.set(kind, 0);
    const minute = system.sleep(refusalLogMs, ended).catch(() => undefined);
    void minute.then(() => {
      const refusals = further.get(kind) ?? 0;
      further.delete(kind);
      if (refusals > 0) log.warn(more, { code, uid, refusals });
    });
  };
}
