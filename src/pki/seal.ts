// Decides which seal follows which: the one place, for nodes, for the control plane and for signers.

import * as v from "valibot";
import { AppError, messageOf } from "../base/errors.ts";
import {
  canonicalJson,
  maxSealBytes,
  Seal,
  sealNamespace,
  type SignedSeal,
  type Signer,
} from "../protocol/seals/seal.ts";
import { sha256Hex } from "../base/sha256.ts";
import { parseSshKey, sshFingerprint, verifySshSignature, type SshKey } from "./ssh-signature.ts";

export type OpenedSeal = { seal: Seal; hash: string };

export const sealHash = (text: string): string => sha256Hex(text);

/**
 * A seal after `held`, or with nothing held one to begin with. A signer of the held seal must have signed it, one of its
 * own, by which it can be verified without the former one, and each new signer: whoever cannot sign is not added. Throws untrusted_answer. Nothing is parsed before its signature is
 * verified, but for a seal to begin with, which names its own signers. `nowMs`: Infinity for a seal that was taken before.
 */
export function openSeal(signed: SignedSeal, held: OpenedSeal | undefined, nowMs: number): OpenedSeal {
  const hash = sealHash(signed.text);
  if (held === undefined) {
    const seal = parseSeal(signed.text);
    const proved = requireOwn(signed, seal);
    if (seal.first === null) requireAll(proved, seal.signers);
    refuseFuture(seal, 0, nowMs);
    return { seal, hash };
  }
  if (hash === held.hash) return held;
  if (signaturesOf(signed, held.seal.signers).size === 0)
    throw refused("no signer of the seal before has signed it");
  const seal = parseSeal(signed.text);
  refuseStrange({ seal, hash }, held);
  refuseFuture(seal, held.seal.made_at, nowMs);
  const known = new Set(held.seal.signers.map(({ key }) => blobOf(key)));
  const added = seal.signers.filter(({ key }) => !known.has(blobOf(key)));
  requireAll(signaturesOf(signed, added), added);
  requireOwn(signed, seal);
  return { seal, hash };
}

/** The very next seal: whoever publishes one leaves no number out, so that none can use the numbers up. */
export function openNextSeal(signed: SignedSeal, newest: OpenedSeal | undefined, nowMs: number): OpenedSeal {
  const opened = openSeal(signed, newest, nowMs);
  const next = (newest?.seal.number ?? 0) + 1;
  if (opened.hash === newest?.hash || opened.seal.number === next) return opened;
  throw refused(`its number is ${opened.seal.number}, and the next one is ${next}`);
}

/** A seal that its reader trusts, from a file of their own. */
export const openTrusted = (text: string): OpenedSeal => ({ seal: parseSeal(text), hash: sealHash(text) });

/**
 * The newest of these that follows `held`, step by step: a node that was away may know the first ones, and need none of
 * them. `refusal`: why the last one does not follow.
 */
export function followSeals(
  seals: readonly SignedSeal[],
  held: OpenedSeal | undefined,
  nowMs = Infinity,
): { held: OpenedSeal | undefined; refusal: string | undefined } {
  let newest = held;
  let refusal: string | undefined;
  for (const signed of seals) {
    try {
      newest = openSeal(signed, newest, nowMs);
      refusal = undefined;
    } catch (error) {
      refusal = messageOf(error);
    }
  }
  return { held: newest, refusal };
}

function requireOwn(signed: SignedSeal, { signers }: Seal): Set<string> {
  const proved = signaturesOf(signed, signers);
  if (proved.size === 0) throw refused("none of its signers has signed it");
  return proved;
}

function requireAll(proved: ReadonlySet<string>, signers: readonly Signer[]): void {
  const silent = signers.find(({ key }) => !proved.has(blobOf(key)));
  if (silent === undefined) return;
  // Several signers may have the same comment. A whole fingerprint looks like a token in an error, which is left out.
  const print = sshFingerprint(parseSshKey(silent.key)).slice(0, 23);
  throw refused(`its new signer "${silent.name}" (${print}) has not signed it`);
}

/** The keys among these that signed. */
function signaturesOf({ text, signatures }: SignedSeal, signers: readonly Signer[]): Set<string> {
  const keys: SshKey[] = signers.map(({ key }) => parseSshKey(key));
  const message = Buffer.from(text);
  const found = new Set<string>();
  for (const signature of signatures) {
    try {
      found.add(verifySshSignature(signature, message, sealNamespace, keys).blob.toString("base64"));
    } catch {
      // Another signer made it; whether there are enough is decided above.
    }
  }
  return found;
}

const blobOf = (key: string): string => parseSshKey(key).blob.toString("base64");

function parseSeal(text: string): Seal {
  try {
    if (Buffer.byteLength(text) > maxSealBytes) throw new RangeError(`it has over ${maxSealBytes} bytes`);
    const seal = v.parse(Seal, JSON.parse(text));
    if (canonicalJson(seal) !== text) throw new RangeError("it is not in its canonical form");
    const keys = seal.signers.map(({ key }) => blobOf(key));
    if (new Set(keys).size < keys.length) throw new RangeError("a signer is named twice");
    if ((seal.number === 1) !== (seal.first === null) || (seal.first === null) !== (seal.previous === null))
      throw new RangeError("it does not say which seal it follows");
    const fault = faultOf(seal);
    if (fault !== undefined) throw new RangeError(fault);
    return seal;
  } catch (error) {
    throw refused(`it cannot be read: ${messageOf(error)}`, error);
  }
}

/** Why no node could enforce it. A fault must stop the signer: nodes would refuse the seal. */
function faultOf({ mode, state }: Seal): string | undefined {
  const { nodes, authorities, sealing } = state;
  const identities = nodes.flatMap(({ identity }) => identity ?? []);
  if (sealing === undefined)
    return mode === "enforce" || identities.length > 0 ? "it names no offline CA" : undefined;
  const isTwice = (all: readonly string[]) => new Set(all).size < all.length;
  if (!sealing.offline.every((each) => authorities.includes(each)))
    return "an offline CA is not among its CAs";
  if (isTwice(nodes.map(({ name }) => name)) || isTwice(identities.map(({ key }) => key)))
    return "a node is named twice";
  if (sealing.network6 === undefined && identities.some(({ address6 }) => address6 !== undefined))
    return "a node has an address in a sealed network, and there is no such network";
  const router = nodes.find(
    ({ identity, routes, exit }) => identity === undefined && routes.length + exit.length > 0,
  );
  if (mode === "enforce" && router !== undefined)
    return `the router or exit ${router.name} has no certificate of an offline CA`;
  return undefined;
}

function refuseStrange({ seal, hash }: OpenedSeal, held: OpenedSeal): void {
  const first = held.seal.first ?? held.hash;
  if ((seal.first ?? hash) !== first || seal.state.organization !== held.seal.state.organization)
    throw refused(`it is of another organization, or begins anew: ${hash.slice(0, 16)}`);
  const { number } = held.seal;
  if (seal.number < number) throw refused(`its number is ${seal.number}, and ${number} is known`);
  const isFork = seal.number === number || (seal.number === number + 1 && seal.previous !== held.hash);
  if (isFork)
    throw refused(
      `there is another seal ${number} than the known one: ${hash.slice(0, 16)} and ${held.hash.slice(0, 16)}`,
    );
  if (seal.made_at < held.seal.made_at) throw refused("it is older than the known one");
}

/** Later ones must not be older than this one. What was taken before stays, so that its organization can be sealed again. */
function refuseFuture({ made_at: madeAt }: Seal, before: number, nowMs: number): void {
  if (madeAt <= before || madeAt <= nowMs / 1000 + 86_400) return;
  throw refused(`it says that it was made on ${new Date(madeAt * 1000).toISOString()}: compare the clocks`);
}

function refused(reason: string, cause?: unknown): AppError {
  return new AppError("untrusted_answer", `The seal is refused: ${reason}`, {
    cause,
    hint: "Ask a signer of the organization whether this is theirs, and compare the hash.",
  });
}
