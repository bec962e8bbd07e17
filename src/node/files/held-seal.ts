// seal.json: the newest seal of the organization that this node has accepted, called the held seal. It stays when the control
// plane sends none, and when the node registers again: only root ends it. A second file, the mark, says that the held seal is
// enforced, so that a seal.json that is damaged or lost does not open the node.

import { rmSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { brand } from "../../brand.ts";
import { AppError, messageOf } from "../../base/errors.ts";
import { syncDirectory, writeFileAtomic } from "../../base/files.ts";
import { quoteWord } from "../../base/quote.ts";
import type { LeftOut } from "../../engine/left-out.ts";
import { maxSeals, SignedSeal } from "../../protocol/seals/seal.ts";
import { followSeals, openSeal, sealHash, type OpenedSeal } from "../../pki/seal.ts";
import { enforcedMark, isSealMarked, sealFile } from "./granted/seal-files.ts";
import type { EnforcedState } from "./granted/sealed-node.ts";
import { readJsonFile } from "./json-file.ts";

/** In place of the hash of a seal that cannot be read. */
export const damagedSeal = "damaged";

/** Undefined if there is no file. Throws if it is damaged: what the control plane sends must not take its place. */
function readHeldSeal(directory: string): OpenedSeal | undefined {
  const signed = readJsonFile(join(directory, sealFile), SignedSeal);
  // Accepted before: neither a former seal nor the time is compared again.
  if (signed !== undefined) return openSeal(signed, undefined, Infinity);
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

/** A file to write or, without a text, to remove. Lists are in the order of writing: a kill can come between any two. */
type SealWrite = { name: typeof sealFile | typeof enforcedMark; text?: string };

export function writeSealFiles(writes: readonly SealWrite[], directory: string): void {
  for (const { name, text } of writes) {
    if (text === undefined) rmSync(join(directory, name), { force: true });
    else writeFileAtomic(join(directory, name), text, 0o644);
  }
  if (writes.some(({ text }) => text === undefined)) syncDirectory(directory);
}

/** What makes the mark fit this seal. After a kill, or with files from a backup, it may not. */
function markOf({ hash, seal }: OpenedSeal, directory: string): SealWrite[] {
  const isMarked = isSealMarked(directory);
  if (seal.mode === "enforce") return isMarked ? [] : [{ name: enforcedMark, text: `${hash}\n` }];
  return isMarked ? [{ name: enforcedMark }] : [];
}

/**
 * The mark comes before an enforced seal, so that the seal is never without it. Not for the first seal: a kill in between would leave
 * a mark alone, which means that a seal was lost.
 */
function writesOf(newest: SignedSeal, opened: OpenedSeal, isFirst: boolean, directory: string): SealWrite[] {
  const mark = markOf(opened, directory);
  const seal: SealWrite = { name: sealFile, text: `${JSON.stringify(newest)}\n` };
  return opened.seal.mode === "enforce" && !isFirst ? [...mark, seal] : [seal, ...mark];
}

/** What ends the seal, for root. A kill in between leaves a seal without its mark: it is readable, and still enforced. */
export const endingWrites: readonly SealWrite[] = [{ name: enforcedMark }, { name: sealFile }];

/** The next seal that the control plane sends then counts as the first one. */
export function removeSeal(directory: string): void {
  writeSealFiles(endingWrites, directory);
}

/** The hash of the seal in seal.json: empty if there is none, `damagedSeal` if it cannot be read. */
export function heldSealHash(directory: string): string {
  try {
    return readHeldSeal(directory)?.hash ?? "";
  } catch {
    return damagedSeal;
  }
}

const Received = v.pipe(v.array(SignedSeal), v.maxLength(maxSeals));

/** Seals of a *line* follow each other, each signed by the signers of the one before. */
export type TakenSeal = {
  /** The seal that is held now. */
  held: OpenedSeal | undefined;
  /** There is a seal that cannot be read. Only root ends it. */
  damaged?: true;
  /** The held seal is not shown to be of the same line as the pinned one. */
  unpinned?: true;
  /** Why the newest of the sent seals was not accepted. */
  refusal: LeftOut | undefined;
};

const refusalOf = (reason: string): LeftOut => ({ key: "the newest seal", reason: reason.slice(0, 400) });

/**
 * Accepts, of the sent seals, what follows the held one, and stores it. Never throws: a seal must keep nothing else from the node.
 * `pin`: the hash of a seal that a signer gave to this machine. The first seal must be that one, and a held one must be of its
 * line.
 */
export function takeSeals(received: unknown, directory: string, nowMs: number, pin?: string): TakenSeal {
  const { writes, heldBefore, ...taken } = decideSeals(received, directory, nowMs, pin);
  try {
    writeSealFiles(writes, directory);
    return taken;
  } catch (error) {
    return { held: heldBefore, refusal: refusalOf(`Cannot write ${sealFile}: ${messageOf(error)}`) };
  }
}

type Decided = TakenSeal & { writes: SealWrite[]; heldBefore: OpenedSeal | undefined };

/** What `takeSeals` does, without doing it. `heldBefore`: what is held until all is written. */
export function decideSeals(received: unknown, directory: string, nowMs: number, pin?: string): Decided {
  let heldBefore: OpenedSeal | undefined;
  try {
    heldBefore = readHeldSeal(directory);
  } catch (error) {
    const reason = `${messageOf(error).slice(0, 200)}. No other seal takes its place: root puts the file back, or deletes it after comparing the newest seal's hash with a signer`;
    return { held: undefined, heldBefore, damaged: true, refusal: { key: sealFile, reason }, writes: [] };
  }
  /** Accepts no seal, and corrects the mark of the held one. */
  const unchanged = (reason?: string): Decided => ({
    held: heldBefore,
    heldBefore,
    refusal: reason === undefined ? undefined : refusalOf(reason),
    writes: heldBefore === undefined ? [] : markOf(heldBefore, directory),
  });
  /** Without a pin, or if the pinned seal is the held one, nothing has to be shown. */
  const isOfPin = pin === undefined || heldBefore?.hash === pin;
  /** The same, while nothing shows that the held seal is of the pinned line. */
  const unproven = (reason?: string): Decided => ({
    ...unchanged(reason),
    ...(isOfPin ? {} : { unpinned: true }),
  });
  if (received === undefined) return unproven();
  const parsed = v.safeParse(Received, received);
  if (!parsed.success) return unproven("The seals that the control plane sent cannot be read");
  const sent = parsed.output;
  const pinIndex = isOfPin ? 0 : sent.findIndex(({ text }) => sealHash(text) === pin);
  if (pinIndex < 0) return unproven(`None of the seals that the control plane sent is ${pin?.slice(0, 16)}`);
  const sincePin = sent.slice(pinIndex);
  if (!isOfPin && heldBefore !== undefined && !isOfLine(sincePin, heldBefore, directory))
    return unproven(
      `This node holds the seal ${heldBefore.hash.slice(0, 16)}, which does not belong to ${pin?.slice(0, 16)}`,
    );
  // A first seal must be the pinned one or follow it. A held one is followed from where it is.
  const isFirst = heldBefore === undefined;
  const { refusal, held } = followSeals(isFirst ? sincePin : sent, heldBefore, nowMs);
  const newest = sent.findLast(({ text }) => sealHash(text) === held?.hash);
  if (held === undefined || newest === undefined || held.hash === heldBefore?.hash) return unchanged(refusal);
  return { ...unchanged(refusal), held, writes: writesOf(newest, held, isFirst, directory) };
}

/** Whether the newest of these seals follows the held one, or the held one follows that: each by its signatures. */
function isOfLine(line: readonly SignedSeal[], held: OpenedSeal, directory: string): boolean {
  const newest = followSeals(line, undefined).held;
  if (newest === undefined) return false;
  if (followSeals(line, held).held?.hash === newest.hash) return true;
  const ownFile = readJsonFile(join(directory, sealFile), SignedSeal);
  return ownFile !== undefined && followSeals([ownFile], newest).held?.hash === held.hash;
}
