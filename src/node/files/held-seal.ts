// seal.json: the newest seal of the organization that this node has taken. It stays when the control plane sends none, and
// when the node registers again: only root ends it. A second file marks a seal that is enforced, so that a seal.json that is
// damaged or lost does not open the node.

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

/** A file with its text, or without one: it is removed. In the order of a list, with a kill between any two. */
type SealWrite = { name: typeof sealFile | typeof enforcedMark; text?: string };

export function writeSealFiles(writes: readonly SealWrite[], directory: string): void {
  for (const { name, text } of writes) {
    if (text === undefined) rmSync(join(directory, name), { force: true });
    else writeFileAtomic(join(directory, name), text, 0o644);
  }
  if (writes.some(({ text }) => text === undefined)) syncDirectory(directory);
}

/** What makes the mark that of this seal. A kill, or a backup that was put back, may have left another one. */
function markOf({ hash, seal }: OpenedSeal, directory: string): SealWrite[] {
  const isMarked = isSealMarked(directory);
  if (seal.mode === "enforce") return isMarked ? [] : [{ name: enforcedMark, text: `${hash}\n` }];
  return isMarked ? [{ name: enforcedMark }] : [];
}

/**
 * A seal that is enforced is not without its mark, unless it is the first one: a mark without a seal is that of a lost seal,
 * which only root ends.
 */
function writesOf(newest: SignedSeal, opened: OpenedSeal, isFirst: boolean, directory: string): SealWrite[] {
  const [mark, seal] = [
    markOf(opened, directory),
    { name: sealFile, text: `${JSON.stringify(newest)}\n` } as const,
  ];
  return opened.seal.mode === "enforce" && !isFirst ? [...mark, seal] : [seal, ...mark];
}

/** Root ends the seal. A kill in between leaves a seal without its mark: it is readable, and still enforced. */
export const endingWrites: readonly SealWrite[] = [{ name: enforcedMark }, { name: sealFile }];

/** The next seal that the control plane sends is taken as the first one is. */
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

/** `damaged`: there is a seal, but nobody can read it, and only root ends it. */
export type TakenSeal = {
  held: OpenedSeal | undefined;
  damaged?: true;
  /** The held seal is not proved to be of the line of the pin. */
  unpinned?: true;
  refusal: LeftOut | undefined;
};

const refusalOf = (reason: string): LeftOut => ({ key: "the newest seal", reason: reason.slice(0, 400) });

/**
 * Takes what follows the held seal. Never throws: a seal that is only observed keeps nothing else from the node. `pin`: the
 * hash of a seal that a signer told this machine. With nothing held, the first one must be that; a held one must be of its line.
 */
export function takeSeals(received: unknown, directory: string, nowMs: number, pin?: string): TakenSeal {
  const { writes, before, ...taken } = decideSeals(received, directory, nowMs, pin);
  try {
    writeSealFiles(writes, directory);
    return taken;
  } catch (error) {
    return { held: before, refusal: refusalOf(`Cannot write ${sealFile}: ${messageOf(error)}`) };
  }
}

type Decided = TakenSeal & { writes: SealWrite[]; before: OpenedSeal | undefined };

/** What `takeSeals` does, without doing it. `before`: what is held until all is written. */
export function decideSeals(received: unknown, directory: string, nowMs: number, pin?: string): Decided {
  let before: OpenedSeal | undefined;
  try {
    before = readHeldSeal(directory);
  } catch (error) {
    const reason = `${messageOf(error).slice(0, 200)}. No other seal takes its place: root puts the file back, or deletes it after comparing the newest seal's hash with a signer`;
    return { held: before, before, damaged: true, refusal: { key: sealFile, reason }, writes: [] };
  }
  const kept = (reason?: string): Decided => ({
    held: before,
    before,
    refusal: reason === undefined ? undefined : refusalOf(reason),
    writes: before === undefined ? [] : markOf(before, directory),
  });
  const isPinned = pin === undefined || before?.hash === pin;
  const unpinned = (reason?: string): Decided => ({
    ...kept(reason),
    ...(isPinned ? {} : { unpinned: true }),
  });
  if (received === undefined) return unpinned();
  const parsed = v.safeParse(Received, received);
  if (!parsed.success) return unpinned("The seals that the control plane sent cannot be read");
  const all = parsed.output;
  const from = isPinned ? 0 : all.findIndex(({ text }) => sealHash(text) === pin);
  if (from < 0) return unpinned(`None of the seals that the control plane sent is ${pin?.slice(0, 16)}`);
  const line = all.slice(from);
  if (!isPinned && before !== undefined && !isOfLine(line, before, directory))
    return unpinned(
      `This node holds the seal ${before.hash.slice(0, 16)}, which does not belong to ${pin?.slice(0, 16)}`,
    );
  const { refusal, held } = followSeals(before === undefined ? line : all, before, nowMs);
  const newest = all.findLast(({ text }) => sealHash(text) === held?.hash);
  if (held === undefined || newest === undefined || held.hash === before?.hash) return kept(refusal);
  return { ...kept(refusal), held, writes: writesOf(newest, held, before === undefined, directory) };
}

/** Whether the newest seal of a line follows the held one, or the held one follows that: each by its signatures. */
function isOfLine(line: readonly SignedSeal[], held: OpenedSeal, directory: string): boolean {
  const newest = followSeals(line, undefined).held;
  if (newest === undefined) return false;
  if (followSeals(line, held).held?.hash === newest.hash) return true;
  const own = readJsonFile(join(directory, sealFile), SignedSeal);
  return own !== undefined && followSeals([own], newest).held?.hash === held.hash;
}
