// The next seal, as its signers see it: composed and compared on a signer's machine, from the seal that the signer knows.
// Nothing of the difference is taken from the control plane.

import * as v from "valibot";
import { AppError, messageOf } from "../../base/errors.ts";
import { given } from "../../base/given.ts";
import {
  followSeals,
  openNextSeal,
  openSeal,
  openTrusted,
  sealHash,
  type OpenedSeal,
} from "../../pki/seal.ts";
import { parseSshKey, sshFingerprint } from "../../pki/ssh-signature.ts";
import {
  canonicalJson,
  Seal,
  type SealedIdentity,
  type SealedNode,
  type SealedRule,
  type SealedState,
  type SignedSeal,
  type Signer,
} from "../../protocol/seals/seal.ts";

/** A line of a `.pub` file. Its comment stands for the person. */
export function readSigner(line: string): Signer {
  const key = parseSshKey(line);
  const [type = "", base64 = "", ...comment] = line.trim().split(/\s+/);
  const name = shownText(comment.join(" ")).slice(0, 100);
  return { name: name === "" ? sshFingerprint(key) : name, key: `${type} ${base64}` };
}

export const newestOf = (seals: readonly SignedSeal[]): OpenedSeal | undefined =>
  followSeals(seals, undefined).held;

/** The seal that a signer knows by the first digits of its hash. Throws not_found. */
export function knownIn(seals: readonly SignedSeal[], known: string): OpenedSeal {
  const signed = seals.find(({ text }) => sealHash(text).startsWith(known));
  // Infinity: the signer accepted it before, so its date is not checked.
  if (signed !== undefined) return openSeal(signed, undefined, Infinity);
  throw new AppError("not_found", `The control plane does not send the seal ${known}`, {
    hint: "It keeps those that changed the signers, and the newest. Give the file of your seal in place of its hash.",
  });
}

/** The seal in a file of the signer, from the file's text. Here for the command line, which must not load pki by itself. */
export const openKnownFile = openTrusted;

/** The newest seal, if it follows the known one. Throws untrusted_answer. */
export function newestAfter(seals: readonly SignedSeal[], known: OpenedSeal): OpenedSeal {
  if (seals.length === 0) throw new AppError("untrusted_answer", "The control plane sends no seals");
  const { held, refusal } = followSeals(seals, known);
  if (held !== undefined && refusal === undefined) return held;
  throw new AppError("untrusted_answer", refusal ?? "The seals cannot be read");
}

/** Throws conflict for a seal that the control plane does not publish. */
export function openForAll(
  signed: SignedSeal,
  newest: OpenedSeal | undefined,
  slug: string,
  nowMs: number,
): OpenedSeal {
  try {
    const opened = openNextSeal(signed, newest, nowMs);
    if (opened.seal.state.organization === slug) return opened;
  } catch (error) {
    throw new AppError("conflict", messageOf(error), { cause: error });
  }
  throw new AppError("conflict", `The seal is not for the organization "${slug}".`);
}

export type NextSeal = { number: number; text: string; hash: string };

/** Composes the seal that follows `held`; undefined: the first one. Returns undefined if it would change nothing. */
export function nextSeal(
  held: OpenedSeal | undefined,
  state: SealedState,
  signers: readonly Signer[],
  nowMs: number,
  mode: Seal["mode"] = held?.seal.mode ?? "observe",
): NextSeal | undefined {
  const seal = v.parse(Seal, {
    version: 1,
    number: (held?.seal.number ?? 0) + 1,
    // Seconds. Nodes refuse a seal that is older than the one before it, also if the clock was set back.
    made_at: Math.max(Math.floor(nowMs / 1000), held?.seal.made_at ?? 0),
    first: held === undefined ? null : (held.seal.first ?? held.hash),
    previous: held?.hash ?? null,
    mode,
    // One signer is enough: the format has no other number yet.
    threshold: 1,
    signers: [...signers],
    state,
  });
  const changes = changesOf(held?.seal, seal);
  if (Object.values(changes).every((sentences) => sentences.length === 0)) return undefined;
  const text = canonicalJson(seal);
  return { number: seal.number, text, hash: sealHash(text) };
}

type Content = Pick<Seal, "state" | "signers" | "mode">;

/** `before`: the seal that the signer knows, which need not be the newest. */
export function changesOf(before: Content | undefined, after: Content): Differences & { signers: string[] } {
  const signers = signerDifferences(before?.signers ?? [], after.signers);
  const { gained, lost } = differencesOf(before?.state, after.state);
  const mode = (before?.mode ?? "observe") === after.mode ? [] : [modeWords[after.mode]];
  return { gained: [...mode, ...gained], lost, signers };
}

const modeWords = {
  enforce: "ENFORCE: nodes refuse what the seal does not say",
  observe: "OBSERVE ALONE: nodes no longer refuse what the seal does not say",
} satisfies Record<Seal["mode"], string>;

/**
 * What the control plane proposes, with what signers alone decide taken from the held seal: offline CAs, whose keys signers alone
 * have, privileged groups, which only these CAs give, and identities, the keys and groups of nodes that have their certificates. What
 * the control plane says of these is dropped: a key that is in a seal gets its next certificate without a comparison of its words on
 * the machine.
 */
export function withHeldSealing(proposed: SealedState, held: SealedState | undefined): SealedState {
  const { sealing: _, ...rest } = proposed;
  const state = { ...rest, nodes: rest.nodes.map(({ identity: __, ...node }): SealedNode => node) };
  const sealing = held?.sealing;
  if (held === undefined || sealing === undefined) return state;
  const sealed = new Map(
    held.nodes.flatMap((node) => (node.identity === undefined ? [] : [[node.name, node]])),
  );
  const proposedNodes = state.nodes.map((node) => ({
    ...node,
    ...given({ identity: sealed.get(node.name)?.identity }),
  }));
  const others = [...sealed.values()].filter(({ name }) => !state.nodes.some((node) => node.name === name));
  const withoutRoles = others.map((node) => ({
    ...node,
    lighthouse: false,
    relay: false,
    routes: [],
    exit: [],
  }));
  return { ...state, nodes: byName([...proposedNodes, ...withoutRoles]), sealing };
}

export const byName = (nodes: readonly SealedNode[]): SealedNode[] =>
  nodes.toSorted((a, b) => (a.name < b.name ? -1 : 1));

export type Differences = { gained: string[]; lost: string[] };

/** `before`: undefined for the first seal, which gains everything. */
export function differencesOf(before: SealedState | undefined, after: SealedState): Differences {
  const onlyIn = (one: readonly string[], other: readonly string[]) => {
    const inOther = new Set(other);
    return one.filter((each) => !inOther.has(each));
  };
  const statementsBefore = before === undefined ? [] : statementsOf(before);
  const statementsAfter = statementsOf(after);
  return {
    gained: onlyIn(statementsAfter, statementsBefore),
    lost: onlyIn(statementsBefore, statementsAfter),
  };
}

/** All that a state says, a sentence each: what two states do not share is their difference. */
function statementsOf(state: SealedState): string[] {
  return [
    `organization ${state.organization}`,
    ...state.networks.map((network) => `overlay network ${network}`),
    ...state.authorities.map((print) => `CA ${print}`),
    `order key ${state.order_key.kid} ${state.order_key.x}`,
    ...sealingWords(state),
    ...state.rules.map(
      (rule) =>
        `${ruleWords(rule)}${demandsOfflineCa(rule, state) ? ", with a certificate of the offline CA" : ""}`,
    ),
    ...state.nodes.flatMap(nodeWords),
  ];
}

function sealingWords({ sealing }: SealedState): string[] {
  if (sealing === undefined) return [];
  const { offline, privileged, revoked, network6, suffix } = sealing;
  return [
    ...offline.map((print) => `offline CA ${print}`),
    ...privileged.map((each) => `privileged ${sideWords({ group: each })}: only an offline CA gives it`),
    ...revoked.map((print) => `revoked certificate ${print}`),
    ...(network6 === undefined ? [] : [`sealed network ${network6}`]),
    ...(suffix === undefined ? [] : [`names end with ${suffix}`]),
  ];
}

/** Whether engines demand an offline CA of the peer. All other rules can also be used by whoever has the control plane. */
function demandsOfflineCa({ peer }: SealedRule, { sealing, nodes }: SealedState): boolean {
  if ("group" in peer) return sealing?.privileged.includes(peer.group) === true;
  return "node" in peer && nodes.some(({ name, identity }) => name === peer.node && identity !== undefined);
}

function ruleWords({ direction, protocol, ports, peer, target }: SealedRule): string {
  const what = protocol === "icmp" ? "icmp" : `${protocol}/${ports}`;
  const [from, to] = direction === "inbound" ? [peer, target] : [target, peer];
  return `rule ${direction}: ${what} from ${sideWords(from)} to ${sideWords(to)}`;
}

function sideWords(side: SealedRule["peer"]): string {
  if ("any" in side) return "ANY node";
  if ("group" in side) return `group ${JSON.stringify(side.group)}`;
  return "node" in side ? `node ${side.node}` : `network ${side.cidr}`;
}

function nodeWords({ name, addresses, identity, ...node }: SealedNode): string[] {
  const at = `${name} (${addresses.join(", ")})`;
  return [
    ...(identity === undefined ? [] : identityWords(at, identity)),
    ...(node.lighthouse ? [`lighthouse ${at}`] : []),
    ...(node.relay ? [`relay ${at}`] : []),
    ...node.routes.map((network) => `route to ${network} through ${at}`),
    ...node.exit.map(
      (group) =>
        `exit to the internet through ${at} for ${sideWords(group === "any" ? { any: true } : { group })}`,
    ),
  ];
}

function identityWords(at: string, { kind, key, groups, address6 }: SealedIdentity): string[] {
  // Not the words: a signer would copy them from here, and they must come from the machine.
  return [
    `sealed node ${at}, ${kind}${address6 === undefined ? "" : `, ${address6}`}, host key ${key}`,
    ...groups.map((each) => `${sideWords({ group: each })} for the sealed node ${at}`),
  ];
}

export const signerWords = ({ name, key }: Signer): string => `${name}, ${sshFingerprint(parseSshKey(key))}`;

function signerDifferences(before: readonly Signer[], after: readonly Signer[]): string[] {
  const [wordsBefore, wordsAfter] = [before.map(signerWords), after.map(signerWords)];
  return [
    ...wordsAfter.filter((each) => !wordsBefore.includes(each)).map((each) => `new signer ${each}`),
    ...wordsBefore.filter((each) => !wordsAfter.includes(each)).map((each) => `NO LONGER a signer: ${each}`),
  ];
}

/** A text from a file for a terminal: each character but printable ASCII by its number. */
export const shownText = (line: string): string =>
  line.replace(
    /[^\x20-\x7e]/gu,
    (char) => `<U+${(char.codePointAt(0) ?? 0).toString(16).padStart(4, "0").toUpperCase()}>`,
  );
