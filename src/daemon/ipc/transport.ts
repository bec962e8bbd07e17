// Listens on a Unix socket that only root and the product's group can reach, or on a named pipe. It must not know the
// protocol.

import { chmodSync, chownSync, existsSync, lstatSync, mkdirSync, rmSync } from "node:fs";
import { basename, dirname } from "node:path";
import { brand } from "../../brand.ts";
import { AppError, fromSystemError } from "../../base/errors.ts";
import { systemErrorCode } from "../../base/system-errors.ts";
import { lockFile } from "../../platform/file-lock.ts";
import { longestSocketPath } from "../../platform/file-system.ts";

/** `configRoot`: clients refuse a daemon that runs the organizations of another one. */
export type LocalAddress = ({ kind: "socket"; path: string } | { kind: "pipe"; name: string }) & {
  configRoot?: string;
};

/** Masks with which the socket is made: only root may connect, or root and the group. */
const maskForRoot = 0o177;
const maskForGroup = 0o117;

/** The group that may connect; without a group only root may. */
export type Access = { groupId: number | undefined };

/**
 * Listens. Removes the socket file of a killed daemon, but not one that answers. The lock beside it prevents two daemons
 * from doing this at the same time. Throws AppError("busy") if a daemon is running.
 */
export async function listenLocal<Data>(
  address: LocalAddress,
  access: Access,
  handlers: Bun.SocketHandler<Data>,
): Promise<{ stop(): void }> {
  // Half open: a client that sends nothing more may still wait for answers.
  if (address.kind === "pipe")
    return Bun.listen<Data>({ unix: address.name, socket: handlers, allowHalfOpen: true });
  const { path } = address;
  const longest = longestSocketPath();
  if (Buffer.byteLength(path) > longest)
    throw new AppError(
      "bad_configuration",
      `The path of the socket is longer than ${longest} bytes: ${path}`,
    );
  makeSocketDirectory(dirname(path), access);
  // The lock is held until the process ends.
  if (lockFile(`${path}.lock`) === undefined || (await isAnswered(path))) {
    throw new AppError("busy", `A daemon is already listening on ${path}`);
  }
  removeStaleSocket(path);
  return listenOnSocket(path, access, handlers);
}

function listenOnSocket<Data>(
  path: string,
  access: Access,
  handlers: Bun.SocketHandler<Data>,
): { stop(): void } {
  const umask = process.umask(access.groupId === undefined ? maskForRoot : maskForGroup);
  let listener: { stop(closesConnections: boolean): void } | undefined;
  try {
    listener = Bun.listen<Data>({ unix: path, socket: handlers, allowHalfOpen: true });
    if (access.groupId !== undefined) chownSync(path, -1, access.groupId);
    return { stop: () => listener?.stop(true) };
  } catch (error) {
    listener?.stop(true);
    throw fromSystemError(`listen on ${path}`, error);
  } finally {
    process.umask(umask);
  }
}

/** Sets group and mode of a new directory or of the product's own; leaves any other as it is. */
function makeSocketDirectory(directory: string, access: Access): void {
  try {
    const isNew = !existsSync(directory);
    if (isNew) mkdirSync(directory, { recursive: true, mode: 0o750 });
    if (!isNew && basename(directory) !== brand.id) return;
    if (access.groupId !== undefined) chownSync(directory, -1, access.groupId);
    chmodSync(directory, 0o750);
  } catch (error) {
    throw fromSystemError(`prepare ${directory}`, error);
  }
}

/** Whether a daemon accepts connections there. */
export async function isAnswered(path: string): Promise<boolean> {
  try {
    const socket = await Bun.connect({ unix: path, socket: { data() {}, error() {} } });
    socket.end();
    return true;
  } catch (error) {
    const code = systemErrorCode(error);
    if (code === "ENOENT" || code === "ECONNREFUSED" || code === "ENOTSOCK") return false;
    throw fromSystemError(`reach ${path}`, error);
  }
}

function removeStaleSocket(path: string): void {
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found === undefined) return;
  if (!found.isSocket()) throw new AppError("bad_configuration", `${path} exists and is not a socket`);
  rmSync(path);
}
