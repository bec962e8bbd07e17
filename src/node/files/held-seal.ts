// seal.json: the newest seal of the organization that this node has taken. It stays when the control plane sends none, and
// when the node registers again: only root ends it.

import { join } from "node:path";
import * as v from "valibot";
import { messageOf } from "../../base/errors.ts";
import { writeFileAtomic } from "../../base/files.ts";
import type { LeftOut } from "../../engine/left-out.ts";
import { maxSeals, SignedSeal } from "../../protocol/seals/seal.ts";
import { followSeals, openSeal, sealHash, type OpenedSeal } from "../../pki/seal.ts";
import { readJsonFile } from "./organizations.ts";

export const sealFile = "seal.json";

/** In place of the hash of a seal that cannot be read. */
export const damagedSeal = "damaged";

/** Undefined if there is no file. Throws if it is damaged: what the control plane sends must not take its place. */
function readHeldSeal(directory: string): OpenedSeal | undefined {
  const present = readJsonFile(join(directory, sealFile), SignedSeal);
  return present === undefined ? undefined : openSeal(present, undefined, Infinity);
}

/** Of the seal in seal.json; empty if there is none. */
export function heldSealHash(directory: string): string {
  try {
    return readHeldSeal(directory)?.hash ?? "";
  } catch {
    return damagedSeal;
  }
}

const Received = v.pipe(v.array(SignedSeal), v.maxLength(maxSeals));

/** `damaged`: there is a seal, but nobody can read it, and only root ends it. */
type TakenSeal = { held: OpenedSeal | undefined; damaged?: true; refusal: LeftOut | undefined };

const refusalOf = (reason: string): LeftOut => ({ key: "the newest seal", reason: reason.slice(0, 400) });

/** Takes what follows the held seal. Never throws: a seal that is only observed keeps nothing else from the node. */
export function takeSeals(received: unknown, directory: string, nowMs: number): TakenSeal {
  let held: OpenedSeal | undefined;
  try {
    held = readHeldSeal(directory);
  } catch (error) {
    const reason = `${messageOf(error).slice(0, 200)}. No other seal takes its place: root puts the file back, or deletes it after comparing the newest seal's hash with a signer`;
    return { held, damaged: true, refusal: { key: sealFile, reason } };
  }
  if (received === undefined) return { held, refusal: undefined };
  const parsed = v.safeParse(Received, received);
  if (!parsed.success)
    return { held, refusal: refusalOf("The seals that the control plane sent cannot be read") };
  const { refusal, ...opened } = followSeals(parsed.output, held, nowMs);
  const followed = { ...opened, refusal: refusal === undefined ? undefined : refusalOf(refusal) };
  const newest = parsed.output.findLast(({ text }) => sealHash(text) === followed.held?.hash);
  if (newest === undefined || followed.held?.hash === held?.hash) return followed;
  try {
    writeFileAtomic(join(directory, sealFile), `${JSON.stringify(newest)}\n`, 0o644);
    return followed;
  } catch (error) {
    return { held, refusal: refusalOf(`Cannot write ${sealFile}: ${messageOf(error)}`) };
  }
}
