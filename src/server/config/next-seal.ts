// The next seal, as its signers see it: composed and compared on a signer's machine, from the seal that the signer knows.
// Nothing of the difference is taken from the control plane.

import * as v from "valibot";
import { AppError } from "../../base/errors.ts";
import { followSeals, sealHash, type OpenedSeal } from "../../pki/seal.ts";
import { parseSshKey, sshFingerprint } from "../../pki/ssh-signature.ts";
import {
  canonicalJson,
  Seal,
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

/** The newest seal, if it follows the one with this hash, of which some digits are enough. Throws untrusted_answer. */
export function newestAfter(seals: readonly SignedSeal[], known: string): OpenedSeal {
  const at = seals.findIndex(({ text }) => sealHash(text).startsWith(known));
  if (at === -1)
    throw new AppError("untrusted_answer", `The control plane does not send the seal ${known}`, {
      hint: "Ask the signer who signed last for the hash of the newest seal, and review what changed since yours.",
    });
  const { held, refusal } = followSeals(seals.slice(at), undefined);
  if (held !== undefined && refusal === undefined) return held;
  throw new AppError("untrusted_answer", refusal ?? "The seals cannot be read");
}

export type NextSeal = Differences & { number: number; text: string; hash: string; signers: string[] };

/** Undefined: it would change nothing. `held`: undefined for the first one. */
export function nextSeal(
  held: OpenedSeal | undefined,
  state: SealedState,
  signers: readonly Signer[],
  nowMs: number,
): NextSeal | undefined {
  const seal = v.parse(Seal, {
    version: 1,
    number: (held?.seal.number ?? 0) + 1,
    made_at: Math.max(Math.floor(nowMs / 1000), held?.seal.made_at ?? 0),
    first: held === undefined ? null : (held.seal.first ?? held.hash),
    previous: held?.hash ?? null,
    mode: "observe",
    threshold: 1,
    signers: [...signers],
    state,
  });
  const differences = differencesOf(held?.seal.state, seal.state);
  const changed = signerDifferences(held?.seal.signers ?? [], seal.signers);
  if (differences.gained.length + differences.lost.length + changed.length === 0) return undefined;
  const text = canonicalJson(seal);
  return { ...differences, number: seal.number, text, hash: sealHash(text), signers: changed };
}

export type Differences = { gained: string[]; lost: string[] };

/** `before`: undefined for the first seal, which gains everything. */
export function differencesOf(before: SealedState | undefined, after: SealedState): Differences {
  const [former, next] = [before === undefined ? [] : statementsOf(before), statementsOf(after)];
  const [known, kept] = [new Set(former), new Set(next)];
  return {
    gained: next.filter((each) => !known.has(each)),
    lost: former.filter((each) => !kept.has(each)),
  };
}

/** All that a state says, a sentence each: what two states do not share is their difference. */
function statementsOf(state: SealedState): string[] {
  return [
    `organization ${state.organization}`,
    ...state.networks.map((network) => `overlay network ${network}`),
    ...state.authorities.map((print) => `CA ${print}`),
    `order key ${state.order_key.kid} ${state.order_key.x}`,
    ...state.rules.map(ruleWords),
    ...state.nodes.flatMap(nodeWords),
  ];
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

function nodeWords({ name, addresses, ...node }: SealedNode): string[] {
  const at = `${name} (${addresses.join(", ")})`;
  return [
    ...(node.lighthouse ? [`lighthouse ${at}`] : []),
    ...(node.relay ? [`relay ${at}`] : []),
    ...node.routes.map((network) => `route to ${network} through ${at}`),
    ...node.exit.map(
      (group) =>
        `exit to the internet through ${at} for ${sideWords(group === "any" ? { any: true } : { group })}`,
    ),
  ];
}

export const signerWords = ({ name, key }: Signer): string => `${name}, ${sshFingerprint(parseSshKey(key))}`;

function signerDifferences(before: readonly Signer[], after: readonly Signer[]): string[] {
  const [former, next] = [before, after].map((list) => list.map(signerWords));
  return [
    ...(next ?? []).filter((each) => former?.includes(each) !== true).map((each) => `new signer ${each}`),
    ...(former ?? [])
      .filter((each) => next?.includes(each) !== true)
      .map((each) => `NO LONGER a signer: ${each}`),
  ];
}

export const shownText = (line: string): string =>
  line.replace(
    /[^\x20-\x7e]/gu,
    (char) => `<U+${(char.codePointAt(0) ?? 0).toString(16).padStart(4, "0").toUpperCase()}>`,
  );
