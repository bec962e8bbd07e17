// The one place that decides which seal follows which, for nodes, the control plane and signers. A seal is a signed text; its
// *signers* are the keys that it names.

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

/** A seal with its signatures verified. */
export type OpenedSeal = { seal: Seal; hash: string };

const daySeconds = 86_400;

export const sealHash = (text: string): string => sha256Hex(text);

/**
 * A seal that follows `held`, or the same one again; with nothing held, one to begin with. Throws untrusted_answer. `nowMs`:
 * Infinity for a seal that was accepted before.
 */
export function openSeal(signed: SignedSeal, held: OpenedSeal | undefined, nowMs: number): OpenedSeal {
  if (held === undefined) return openFirstSeal(signed, nowMs);
  return sealHash(signed.text) === held.hash ? held : openFollowing(signed, held, nowMs);
}

/** One of its own signers must have signed it. All of them, if it is the first seal of its organization. */
function openFirstSeal(signed: SignedSeal, nowMs: number): OpenedSeal {
  const seal = parseSeal(signed.text);
  const signedBy = requireOwnSigner(signed, seal);
  if (seal.first === null) requireAll(signedBy, seal.signers);
  refuseFuture(seal, 0, nowMs);
  return { seal, hash: sealHash(signed.text) };
}

/**
 * These must have signed it: a signer of the held seal; each new signer, so that no key is added that cannot sign; and one of its
 * own signers, so that it can be verified without the held one. Nothing is parsed before the first of these is verified.
 */
function openFollowing(signed: SignedSeal, held: OpenedSeal, nowMs: number): OpenedSeal {
  const hash = sealHash(signed.text);
  if (signaturesOf(signed, held.seal.signers).size === 0)
    throw refused("no signer of the seal before has signed it");
  const seal = parseSeal(signed.text);
  refuseStrange({ seal, hash }, held);
  refuseFuture(seal, held.seal.made_at, nowMs);
  const formerSigners = new Set(held.seal.signers.map(({ key }) => blobOf(key)));
  const newSigners = seal.signers.filter(({ key }) => !formerSigners.has(blobOf(key)));
  requireAll(signaturesOf(signed, newSigners), newSigners);
  requireOwnSigner(signed, seal);
  return { seal, hash };
}

/** The seal with the very next number: a published seal leaves none out, so that nobody can use the numbers up. */
export function openNextSeal(signed: SignedSeal, newest: OpenedSeal | undefined, nowMs: number): OpenedSeal {
  const opened = openSeal(signed, newest, nowMs);
  const next = (newest?.seal.number ?? 0) + 1;
  if (opened.hash === newest?.hash || opened.seal.number === next) return opened;
  throw refused(`its number is ${opened.seal.number}, and the next one is ${next}`);
}

/** A seal from a file that the reader trusts: no signature is verified. */
export const openTrusted = (text: string): OpenedSeal => ({ seal: parseSeal(text), hash: sealHash(text) });

/**
 * The newest of these seals that follows `held`, step by step. Some of the first ones may be older than `held`: a refusal counts only
 * if no later seal is accepted. `refusal`: why the last one was refused.
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

/** The signers of the seal itself that signed it: at least one. */
function requireOwnSigner(signed: SignedSeal, { signers }: Seal): Set<string> {
  const signedBy = signaturesOf(signed, signers);
  if (signedBy.size === 0) throw refused("none of its signers has signed it");
  return signedBy;
}

function requireAll(signedBy: ReadonlySet<string>, signers: readonly Signer[]): void {
  const missing = signers.find(({ key }) => !signedBy.has(blobOf(key)));
  if (missing === undefined) return;
  // With a fingerprint, as several signers may have the same name. It is cut: errors leave out what looks like a token.
  const print = sshFingerprint(parseSshKey(missing.key)).slice(0, 23);
  throw refused(`its new signer "${missing.name}" (${print}) has not signed it`);
}

/** Those of the signers who signed, by the bytes of their keys. */
function signaturesOf({ text, signatures }: SignedSeal, signers: readonly Signer[]): Set<string> {
  const keys: SshKey[] = signers.map(({ key }) => parseSshKey(key));
  const message = Buffer.from(text);
  const found = new Set<string>();
  for (const signature of signatures) {
    try {
      found.add(verifySshSignature(signature, message, sealNamespace, keys).blob.toString("base64"));
    } catch {
      // The signature of another key. Whether there are enough is decided above.
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
    const isFirst = seal.number === 1;
    if (isFirst !== (seal.first === null) || isFirst !== (seal.previous === null))
      throw new RangeError("it does not say which seal it follows");
    const fault = faultOf(seal);
    if (fault !== undefined) throw new RangeError(fault);
    return seal;
  } catch (error) {
    throw refused(`it cannot be read: ${messageOf(error)}`, error);
  }
}

/** Why no node could enforce the seal. Signers learn of it before they sign: nodes refuse such a seal. */
function faultOf({ mode, state }: Seal): string | undefined {
  const { nodes, authorities, sealing } = state;
  const identities = nodes.flatMap(({ identity }) => identity ?? []);
  if (sealing === undefined)
    return mode === "enforce" || identities.length > 0 ? "it names no offline CA" : undefined;
  const hasDuplicate = (texts: readonly string[]) => new Set(texts).size < texts.length;
  if (!sealing.offline.every((ca) => authorities.includes(ca))) return "an offline CA is not among its CAs";
  if (hasDuplicate(nodes.map(({ name }) => name)) || hasDuplicate(identities.map(({ key }) => key)))
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

/** Throws for a seal of another organization or line, and for one that does not come after the held one. */
function refuseStrange({ seal, hash }: OpenedSeal, held: OpenedSeal): void {
  // `first` of a seal: the hash of the first seal of its organization; null in that one itself.
  const first = held.seal.first ?? held.hash;
  if ((seal.first ?? hash) !== first || seal.state.organization !== held.seal.state.organization)
    throw refused(`it is of another organization, or begins anew: ${hash.slice(0, 16)}`);
  const { number } = held.seal;
  if (seal.number < number) throw refused(`its number is ${seal.number}, and ${number} is known`);
  // Seals in between may never have been seen here: `previous` is compared only if this is the very next seal.
  const isFork = seal.number === number || (seal.number === number + 1 && seal.previous !== held.hash);
  if (isFork)
    throw refused(
      `there is another seal ${number} than the known one: ${hash.slice(0, 16)} and ${held.hash.slice(0, 16)}`,
    );
  if (seal.made_at < held.seal.made_at) throw refused("it is older than the known one");
}

/**
 * Throws if the seal says that it was made more than a day from now: later seals must not be older, so it would keep them out. Not
 * if the held seal says so too (`heldMadeAt`, in s), so that its organization can still make seals.
 */
function refuseFuture({ made_at: madeAt }: Seal, heldMadeAt: number, nowMs: number): void {
  if (madeAt <= heldMadeAt || madeAt <= nowMs / 1000 + daySeconds) return;
  throw refused(`it says that it was made on ${new Date(madeAt * 1000).toISOString()}: compare the clocks`);
}

function refused(reason: string, cause?: unknown): AppError {
  return new AppError("untrusted_answer", `The seal is refused: ${reason}`, {
    cause,
    hint: "Ask a signer of the organization whether this is theirs, and compare the hash.",
  });
}
