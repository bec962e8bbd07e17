// seal.json: the newest seal of the organization that this node has taken. It stays when the control plane sends none, and
// when the node registers again: only root ends it. A second file marks a seal that is enforced, so that a seal.json that is
// damaged or lost does not open the node.

import { rmSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { brand } from "../../brand.ts";
import { AppError, messageOf } from "../../base/errors.ts";
import { syncDirectory, writeFileAtomic } from "../../base/files.ts";
import { quoteWord } from "../../base/plan.ts";
import type { LeftOut } from "../../engine/left-out.ts";
import { maxSeals, SignedSeal } from "../../protocol/seals/seal.ts";
import { followSeals, openSeal, sealHash, type OpenedSeal } from "../../pki/seal.ts";
import { enforcedMark, isSealMarked, sealFile } from "./granted/seal-files.ts";
import type { EnforcedState } from "./granted/sealed-node.ts";
import { readJsonFile } from "./organizations.ts";

/** In place of the hash of a seal that cannot be read. */
export const damagedSeal = "damaged";

/** Undefined if there is no file. Throws if it is damaged: what the control plane sends must not take its place. */
function readHeldSeal(directory: string): OpenedSeal | undefined {
  const present = readJsonFile(join(directory, sealFile), SignedSeal);
  if (present !== undefined) return openSeal(present, undefined, Infinity);
  if (isSealMarked(directory))
    throw new AppError("bad_configuration", `${join(directory, sealFile)} is gone`);
  return undefined;
}

/**
 * What the held seal makes this node enforce; undefined if it is observed, or if there is none. Throws bad_configuration for
 * one that was enforced and cannot be read: the configuration in force then stays. `slug`: for the hint.
 */
export function enforcedSeal(directory: string, slug: string): EnforcedState | undefined {
  try {
    const { mode, state } = readHeldSeal(directory)?.seal ?? {};
    if (mode !== "enforce" || state?.sealing === undefined) return undefined;
    return { ...state, sealing: state.sealing };
  } catch (error) {
    if (!isSealMarked(directory)) return undefined;
    throw new AppError(
      "bad_configuration",
      `The seal of ${slug} cannot be read, so its configuration stays as it is: ${messageOf(error)}`,
      {
        cause: error,
        hint: `Put ${sealFile} back from a backup, or end the seal on this machine: \`${brand.executable} unseal ${quoteWord(slug)}\``,
      },
    );
  }
}

function mark({ hash }: OpenedSeal, directory: string): void {
  if (!isSealMarked(directory)) writeFileAtomic(join(directory, enforcedMark), `${hash}\n`, 0o644);
}

/** Root ends the seal. The next one that the control plane sends is taken as the first one is. */
export function removeSeal(directory: string): void {
  // A kill in between leaves a seal without its mark: it is readable, and still enforced.
  for (const name of [enforcedMark, sealFile]) rmSync(join(directory, name), { force: true });
  syncDirectory(directory);
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
export type TakenSeal = { held: OpenedSeal | undefined; damaged?: true; refusal: LeftOut | undefined };

const refusalOf = (reason: string): LeftOut => ({ key: "the newest seal", reason: reason.slice(0, 400) });

/**
 * Takes what follows the held seal. Never throws: a seal that is only observed keeps nothing else from the node. `pin`: the
 * hash of a seal that a signer told this machine. With nothing held, the first one must be that.
 */
export function takeSeals(received: unknown, directory: string, nowMs: number, pin?: string): TakenSeal {
  let held: OpenedSeal | undefined;
  try {
    held = readHeldSeal(directory);
  } catch (error) {
    const reason = `${messageOf(error).slice(0, 200)}. No other seal takes its place: root puts the file back, or deletes it after comparing the newest seal's hash with a signer`;
    return { held, damaged: true, refusal: { key: sealFile, reason } };
  }
  if (held?.seal.mode === "enforce") mark(held, directory);
  if (received === undefined) return { held, refusal: undefined };
  const parsed = v.safeParse(Received, received);
  if (!parsed.success)
    return { held, refusal: refusalOf("The seals that the control plane sent cannot be read") };
  const from =
    held === undefined && pin !== undefined
      ? parsed.output.findIndex(({ text }) => sealHash(text) === pin)
      : 0;
  if (from < 0)
    return {
      held,
      refusal: refusalOf(`None of the seals that the control plane sent is ${pin?.slice(0, 16)}`),
    };
  const { refusal, ...opened } = followSeals(parsed.output.slice(from), held, nowMs);
  const followed = { ...opened, refusal: refusal === undefined ? undefined : refusalOf(refusal) };
  const newest = parsed.output.findLast(({ text }) => sealHash(text) === followed.held?.hash);
  if (newest === undefined || followed.held?.hash === held?.hash) return followed;
  try {
    const isEnforced = followed.held?.seal.mode === "enforce";
    // First the mark: a seal that is enforced is not without it.
    if (followed.held !== undefined && isEnforced) mark(followed.held, directory);
    writeFileAtomic(join(directory, sealFile), `${JSON.stringify(newest)}\n`, 0o644);
    if (!isEnforced) rmSync(join(directory, enforcedMark), { force: true });
    return followed;
  } catch (error) {
    return { held, refusal: refusalOf(`Cannot write ${sealFile}: ${messageOf(error)}`) };
  }
}
