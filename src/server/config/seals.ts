// The seals of an organization: what the next one would hold, and publishing one that its signers have signed. A seal says what the
// control plane may send the nodes. The control
// plane checks a seal as nodes do, so that none is published that nodes would refuse.

import { AppError } from "../../base/errors.ts";
import { decodeCaBundle, fingerprint } from "../../pki/nebula.ts";
import { followSeals, openTrusted } from "../../pki/seal.ts";
import {
  maxSeals,
  SealedState,
  type Seal,
  type SealedNode,
  type SignedSeal,
} from "../../protocol/seals/seal.ts";
import type { Peer, Rule, Target } from "../../api/rules.ts";
import * as v from "valibot";
import { record, type Actor } from "../audit/record.ts";
import type { Store } from "../options.ts";
import type { Reader, Transaction } from "../store/database.ts";
import { queryAll } from "../store/table.ts";
import { nodes, specialIs } from "../store/tables/nodes.ts";
import { authorities } from "../store/tables/certificates.ts";
import { policies, readSeals } from "../store/tables/policies.ts";
import { raiseConfigVersion } from "../store/versions.ts";
import { newestOf, openForAll } from "./next-seal.ts";
import type { OrgView } from "./organization-views.ts";

const rolePick = nodes.pick("id", "name", "ip", "ip6", "isLighthouse", "isRelay", "subnets", "exitGroups");
const allRoles = `SELECT ${rolePick.select()} FROM nodes WHERE org_id = $1 AND state = 'active'
  AND (${specialIs()} OR exit_groups <> '[]') ORDER BY name`;

/** What the next seal would say: what nodes are sent now. Throws conflict if no seal can hold it. */
export async function sealedStateOf(reader: Reader, view: OrgView): Promise<SealedState> {
  const withRole = await queryAll(reader, rolePick, allRoles, [view.id]);
  const state = {
    organization: view.slug,
    networks: view.config.networks,
    authorities: decodeCaBundle(view.trust.caPem).map(fingerprint).sort(),
    order_key: view.orderKey,
    nodes: withRole.map(sealedNode),
    rules: await rulesByName(reader, view),
  };
  const parsed = v.safeParse(SealedState, state);
  if (parsed.success) return parsed.output;
  const [issue] = parsed.issues;
  const where = v.getDotPath(issue) ?? "";
  throw new AppError("conflict", `No seal can hold this organization: ${where}: ${issue.message}`);
}

function sealedNode({ name, ip, ip6, ...node }: ReturnType<typeof rolePick.parse>): SealedNode {
  return {
    name,
    addresses: [ip, ...(ip6 === null ? [] : [ip6])],
    lighthouse: node.isLighthouse,
    relay: node.isRelay,
    routes: [...node.subnets].sort(),
    exit: [...node.exitGroups].sort(),
  };
}

/** By names, each once. A rule about a node that is gone permits nothing, and is left out. */
async function rulesByName(reader: Reader, { id, config }: OrgView) {
  const names = await namesOf(reader, id, config.rules);
  const sideByName = <T extends Peer | Target>(side: T) => {
    if (!("node" in side)) return side;
    const name = names.get(side.node);
    return name === undefined ? undefined : { node: name };
  };
  const sealed = config.rules.flatMap(({ direction, protocol, ports, ...rule }) => {
    const [peer, target] = [sideByName(rule.peer), sideByName(rule.target)];
    return peer === undefined || target === undefined ? [] : [{ direction, protocol, ports, peer, target }];
  });
  // In one order, so that the same rules give the same text to sign.
  return [...new Map(sealed.map((rule) => [JSON.stringify(rule), rule]))]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([, rule]) => rule);
}

const namePick = nodes.pick("id", "name");

async function namesOf(reader: Reader, orgId: number, rules: readonly Rule[]): Promise<Map<number, string>> {
  const sides = rules.flatMap(({ peer, target }) => [peer, target]);
  const ids = [...new Set(sides.flatMap((side) => ("node" in side ? [side.node] : [])))];
  if (ids.length === 0) return new Map();
  const marks = ids.map((_, at) => `$${at + 2}`).join(", ");
  const sql = `SELECT ${namePick.select()} FROM nodes WHERE org_id = $1 AND state = 'active' AND id IN (${marks})`;
  const found = await queryAll(reader, namePick, sql, [orgId, ...ids]);
  return new Map(found.map(({ id, name }) => [id, name]));
}

/**
 * Deletes the seals of an organization whose signers are all lost. Its nodes enforce what they hold until root ends it, so a stolen
 * session of an owner opens nothing. `requireOwner` runs in the transaction. Throws conflict if there is no seal.
 */
export async function forgetSeals(
  { db, system }: Store,
  org: { id: number; slug: string },
  actor: Actor,
  requireOwner: (tx: Transaction) => Promise<void>,
): Promise<void> {
  await db.writeFor({ org: org.id }, async (tx) => {
    await requireOwner(tx);
    const newest = newestOf(await readSeals(tx, org.id));
    if (newest === undefined) throw new AppError("conflict", `${org.slug} has no seal.`);
    await policies.update(tx, { orgId: org.id }, { seals: [] });
    await raiseConfigVersion(tx, org.id);
    const before = { number: newest.seal.number, hash: newest.hash };
    const subject = `policy/${org.slug}`;
    await record(tx, {
      orgId: org.id,
      at: system.now(),
      type: "policy.seals_forgotten",
      actor,
      subject,
      before,
    });
  });
}

/**
 * Throws conflict for a seal that nodes would refuse. `requireFirst` throws if the caller may not publish the first seal. Only the
 * first seal needs this check, because it names the signers. A signer has signed each later one.
 */
export async function publishSeal(
  { db, system }: Store,
  org: { id: number; slug: string },
  signed: SignedSeal,
  actor: Actor,
  requireFirst: (tx: Transaction) => Promise<void>,
): Promise<{ number: number; hash: string }> {
  return db.writeFor({ org: org.id }, async (tx) => {
    const seals = await readSeals(tx, org.id);
    if (seals.length === 0) await requireFirst(tx);
    const { held: newest } = followSeals(seals, undefined);
    const at = system.now();
    const { seal, hash } = openForAll(signed, newest, org.slug, at);
    if (hash === newest?.hash) return { number: seal.number, hash };
    await policies.upsert(tx, { orgId: org.id, createdAt: at }, "ON CONFLICT (org_id) DO NOTHING");
    await policies.update(tx, { orgId: org.id }, { seals: keptWith(seals, signed, seal) });
    const kept = seal.state.sealing?.offline ?? [];
    // Signers have ended these CAs: the control plane no longer hands them out.
    for (const print of newest?.seal.state.sealing?.offline ?? [])
      if (!kept.includes(print))
        await authorities.update(tx, { orgId: org.id, fingerprint: print, offline: true }, { retiredAt: at });
    await raiseConfigVersion(tx, org.id);
    const after = { number: seal.number, hash, signers: seal.signers.map(({ name }) => name) };
    await record(tx, {
      orgId: org.id,
      at,
      type: "policy.sealed",
      actor,
      subject: `policy/${org.slug}`,
      after,
    });
    return { number: seal.number, hash };
  });
}

/**
 * The seals to keep with a new one. Enforced seals: as many as fit into an answer, because a join key names the one that was the
 * newest when it was made. Of too many, the oldest go first that no node needs: those by the same signers as the one before.
 */
function keptWith(seals: readonly SignedSeal[], signed: SignedSeal, { mode }: Seal): SignedSeal[] {
  if (mode !== "enforce") return [...neededAfter(seals), signed].slice(-maxSeals);
  const all = [...seals, signed];
  const signersOf = ({ text }: SignedSeal) => openTrusted(text).seal.signers;
  const size = () => all.reduce((sum, { text }) => sum + text.length, 0);
  while (all.length > maxSeals || size() > maxKeptBytes) {
    const signers = all.map(signersOf);
    const unneeded = signers.findIndex(
      (each, at) => at > 0 && at < all.length - 1 && Bun.deepEquals(each, signers[at - 1]),
    );
    if (unneeded < 0) break;
    all.splice(unneeded, 1);
  }
  return all.slice(-maxSeals);
}
/** Characters of all seals. */
const maxKeptBytes = 1_048_576;

/**
 * A node that was away follows from one change of the signers to the next. A seal by the same signers as the one before is
 * not needed once there is a newer one.
 */
function neededAfter(seals: readonly SignedSeal[]): readonly SignedSeal[] {
  const signersOf = (list: readonly SignedSeal[]) => followSeals(list, undefined).held?.seal.signers;
  const others = seals.slice(0, -1);
  const isChange = others.length === 0 || !Bun.deepEquals(signersOf(others), signersOf(seals));
  return isChange ? seals : others;
}

/** The first seal, while it is the only one; null once another one follows: a signer has signed again. */
export function firstSealIn({ seals: [first, ...later] }: OrgView): { hash: string; made_at: string } | null {
  if (first === undefined || later.length > 0) return null;
  const { seal, hash } = openTrusted(first.text);
  // With a hash in `first`, it is a later seal, and the first one is not kept any more. `made_at` is in seconds.
  return seal.first === null ? { hash, made_at: new Date(seal.made_at * 1000).toISOString() } : null;
}
