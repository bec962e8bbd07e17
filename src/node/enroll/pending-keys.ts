// The two keys of a registration: the overlay's (host.key) and that of X.509 (node.key), in its pending directory.

import { join } from "node:path";
import { fromSystemError } from "../../base/errors.ts";
import { hasMode, readTextIfThere, removeTree, syncDirectory, writeNewFile } from "../../base/files.ts";
import { planReplaced } from "../../base/plan/plan-file.ts";
import type { Step } from "../../base/plan/plan.ts";
import { isHostKey, isNodeKey, makeHostKey, makeNodeKey } from "../../pki/keys.ts";

/** Private keys in PEM. */
export type Keys = { host: string; node: string };

/** The two keys: their files, and how one is recognized and made. */
type KeyFile = { name: string; part: keyof Keys; isKey(pem: string): boolean; make(): string };
const hostKeyFile: KeyFile = {
  name: "host.key",
  part: "host",
  isKey: isHostKey,
  make: () => makeHostKey().privatePem,
};
const nodeKeyFile: KeyFile = {
  name: "node.key",
  part: "node",
  isKey: isNodeKey,
  make: () => makeNodeKey().privatePem,
};

/**
 * Writes the keys of a registration into its pending directory, if they are not there, and returns them. `wanted` says which:
 *
 * - undefined: those of the pending registration, else those in `directory`, which --force registers again, else new ones.
 * - "new": the same, but never those in `directory`, since this machine becomes another node.
 * - keys: these.
 */
export function makeKeys(pending: string, directory: string, wanted?: Keys | "new"): Keys {
  const keyOf = (file: KeyFile): string => {
    const pendingPem = readKey(pending, file);
    const formerPem = readKey(directory, file);
    if (wanted === undefined) return pendingPem ?? writeKey(pending, file, formerPem ?? file.make());
    if (wanted !== "new") return writeKey(pending, file, wanted[file.part]);
    const isNew = pendingPem !== undefined && pendingPem !== formerPem;
    return isNew ? pendingPem : writeKey(pending, file, file.make());
  };
  const keys = { host: keyOf(hostKeyFile), node: keyOf(nodeKeyFile) };
  syncDirectory(pending);
  return keys;
}

/** Undefined if there is no valid key. */
function readKey(directory: string, { name, isKey }: KeyFile): string | undefined {
  const pem = readOrNothing(join(directory, name));
  return pem !== undefined && isKey(pem) ? pem : undefined;
}

function writeKey(pending: string, { name }: KeyFile, pem: string): string {
  const path = join(pending, name);
  try {
    removeTree(path);
    writeNewFile(path, pem, 0o600);
    return pem;
  } catch (error) {
    removeTree(pending);
    throw fromSystemError(`write ${path}`, error);
  }
}

/** Whether registering again is for the same node, because both of its keys can be used again. */
export function keepsKeys(directory: string): boolean {
  return [hostKeyFile, nodeKeyFile].every((file) => readKey(directory, file) !== undefined);
}

/** The plan of makeKeys without a pending registration. */
export function planKeys(directory: string, areNew: boolean): Step[] {
  return [hostKeyFile, nodeKeyFile].map((file) => {
    const path = join(directory, file.name);
    const step = planReplaced(path, 0o600);
    const isKept = !areNew && readKey(directory, file) !== undefined && hasMode(path, 0o600);
    return isKept ? { ...step, change: "same" } : step;
  });
}

/** An unreadable key is replaced by a new one. */
function readOrNothing(path: string): string | undefined {
  try {
    return readTextIfThere(path);
  } catch {
    return undefined;
  }
}
