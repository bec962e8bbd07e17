// The offline CA of a sealed organization (docs/design/sealed.md): its key is on the machines of signers. The control plane
// hands out its certificate and those that it signed, and never replaces them by its own. Beside it, the control plane's own CA may
// be limited: then it certifies only IPv4 addresses of the organization, and no networks behind nodes (ca-limits.ts).

import { AppError } from "../../base/errors.ts";
import { brand } from "../../brand.ts";
import { decodeBundle, encodePem } from "../../pki/bundle.ts";
import { readHostPublicKey } from "../../pki/keys.ts";
import {
  decodeCaBundle,
  fingerprint,
  fingerprints,
  verifyCertificate,
  type NebulaCertificate,
} from "../../pki/nebula.ts";
import { record, type Actor } from "../audit/record.ts";
import type { ServerOptions } from "../options.ts";
import { writeAsAdmin } from "../require-role.ts";
import type { Reader, Transaction } from "../store/database.ts";
import { findNode } from "../store/nodes.ts";
import { queryAll } from "../store/table.ts";
import { authorities, certificates } from "../store/tables/certificates.ts";
import { nodes, type NodeRow } from "../store/tables/nodes.ts";
import { raiseConfigVersion, raiseOwnVersion } from "../store/versions.ts";
import { isWhole, outdatePhones, readIssuingOrg, setRenewal } from "./issue.ts";
import { otherHolder } from "./other-holder.ts";
import { isLimited } from "./ca-limits.ts";
import type { Org } from "../http/route.ts";

type Store = Pick<ServerOptions, "db" | "system" | "clock">;

/** Offline CAs of an organization: a seal can name no more. */
const maxOffline = 4;

/**
 * Adds an offline CA, which all nodes trust from now on. Adding it again changes nothing. `requireOwner` runs in the transaction: the
 * holder of the CA's key keeps rights in the organization, so the request of an owner who was removed meanwhile must fail.
 */
export async function addOfflineAuthority(
  { db, system, clock }: Store,
  org: Org,
  pem: string,
  actor: Actor,
  requireOwner: (tx: Transaction) => Promise<void>,
): Promise<{ fingerprint: string }> {
  // Throws clock_doubted: with a wrong clock, validity cannot be judged.
  clock.requireBelieved();
  const now = system.now();
  const [ca, ...others] = decodeCaBundle(pem);
  if (ca === undefined || others.length > 0) throw refused("Send the certificate of one CA.");
  const print = fingerprint(ca);
  if (ca.notBefore * 1000 > now || ca.notAfter * 1000 <= now)
    throw refused(`The CA "${ca.name}" is not valid now: compare the clocks.`);
  // With the lock of all organizations, because the CA is compared with theirs.
  await db.write(async (tx) => {
    await requireOwner(tx);
    const known = await authorities.all(tx, { orgId: org.id, offline: true, retiredAt: null });
    if (known.some((each) => each.fingerprint === print)) return;
    if ((await authorities.find(tx, { orgId: org.id, fingerprint: print, offline: false })) !== undefined)
      throw refused(`The CA "${ca.name}" is one of the control plane, which has its key: it is not offline.`);
    if ((await authorities.find(tx, { orgId: org.id, fingerprint: print, offline: true })) !== undefined)
      throw refused(`Signers have ended the CA "${ca.name}": make another one.`);
    if ((await otherHolder(tx, org.id, print)) !== undefined)
      throw new AppError("conflict", `The CA "${ca.name}" belongs to another organization here.`, {
        hint: `Nodes of both would trust each other. Make a CA for ${org.slug} alone: \`${brand.executable} admin seal ca ${org.slug} FILE\` with another file.`,
      });
    if (known.length >= maxOffline) throw refused(`${org.slug} has ${maxOffline} offline CAs already.`);
    await authorities.insert(tx, {
      orgId: org.id,
      kind: "overlay",
      version: ca.version,
      fingerprint: print,
      certificate: encodePem(ca),
      // The control plane has no key of it, and so never signs with it. It is trusted until it is retired.
      privateKeySealed: "",
      state: "former",
      notBefore: ca.notBefore * 1000,
      notAfter: ca.notAfter * 1000,
      createdAt: now,
      offline: true,
    });
    await raiseConfigVersion(tx, org.id);
    await outdatePhones(tx, org.id);
    const after = { fingerprint: print, name: ca.name };
    await record(tx, {
      orgId: org.id,
      at: now,
      type: "ca.added",
      actor,
      subject: `authority/${print}`,
      after,
    });
  });
  return { fingerprint: print };
}

/**
 * The only network that the next overlay CA may certify; undefined: it has no limit. After a limited CA, the next one is limited as
 * well. Throws conflict if the organization cannot have a limited CA, or not before routers and exits have certificates of an
 * offline CA, since a limited CA would not certify their networks.
 */
export async function limitOf(
  reader: Reader,
  orgId: number,
  { isWanted }: { isWanted: boolean },
): Promise<string | undefined> {
  const active = await authorities.find(reader, { orgId, kind: "overlay", state: "active" });
  const [ca] = active === undefined ? [] : decodeCaBundle(active.certificate);
  const isKept = ca !== undefined && isLimited(ca);
  if (!isKept && !isWanted) return undefined;
  const { slug, network, network6 } = await readIssuingOrg(reader, orgId);
  if (isKept) return network;
  const [offline] = await authorities.all(reader, { orgId, offline: true, retiredAt: null });
  if (offline === undefined)
    throw new AppError("conflict", `${slug} has no offline CA.`, {
      hint: `Make one on the machine of a signer: \`${brand.executable} admin seal ca ${slug} FILE\`.`,
    });
  if (network6 !== null)
    throw new AppError(
      "conflict",
      `${slug} has the IPv6 network ${network6}, and a limited CA certifies IPv4 addresses alone.`,
      {
        hint: `No command removes an IPv6 network. Create an organization without one (\`${brand.executable} admin org create\`), and register the machines there.`,
      },
    );
  const uncertified = await queryAll(reader, namePick, uncertifiedRouters, [orgId]);
  if (uncertified.length === 0) return network;
  throw new AppError(
    "conflict",
    `Routers and exits need certificates of the offline CA first: ${uncertified.map(({ name }) => name).join(", ")}.`,
    {
      hint: `A signer makes them: \`${brand.executable} admin seal sign ${slug}\`.`,
    },
  );
}

const namePick = nodes.pick("name");
const uncertifiedRouters = `SELECT name FROM nodes n WHERE n.org_id = $1 AND n.state = 'active' AND (n.subnets <> '[]' OR n.exit_groups <> '[]')
  AND NOT EXISTS (SELECT 1 FROM certificates c JOIN authorities a ON a.id = c.authority_id
    WHERE c.node_id = n.id AND c.state = 'current' AND a.offline = 1) ORDER BY name LIMIT 10`;

/**
 * Stores certificates that an offline CA signed: all versions that the organization has, of each node. They become the
 * nodes' current ones. Throws conflict for one that does not fit its node any more.
 */
export async function storeOffline(
  { db, system, clock }: Store,
  org: Org,
  pem: string,
  actor: Actor,
): Promise<{ nodes: string[] }> {
  clock.requireBelieved();
  const signedByKey = Map.groupBy(decodeBundle(pem), ({ publicKey }) =>
    Buffer.from(publicKey).toString("hex"),
  );
  return writeAsAdmin(db, org.id, actor, async (tx) => {
    const cas = await authorities.all(tx, { orgId: org.id, offline: true, retiredAt: null });
    const issuing = await readIssuingOrg(tx, org.id);
    const active = await queryAll(tx, keyPick, allKeys, [org.id]);
    const nodeIds = new Map(active.map(({ id, hostPublicKey }) => [hexOf(hostPublicKey ?? ""), id]));
    const stored: string[] = [];
    for (const [key, signed] of signedByKey) {
      const id = nodeIds.get(key);
      if (id === undefined) throw refused(`No node has the key of the certificate of "${signed[0]?.name}".`);
      const node = await findNode(tx, org.id, id);
      if (signed.some(({ isCa }) => isCa) || !isWhole(issuing, node, signed))
        throw refused(`The node ${node.name} has changed since its certificate was signed: sign it again.`);
      if (await storeSigned(tx, node, cas, signed, system)) {
        stored.push(node.name);
        await raiseOwnVersion(tx, org.id, id);
        await record(tx, {
          orgId: org.id,
          at: system.now(),
          type: "certificate.renewed",
          actor,
          subject: `node/${id}`,
          after: { fingerprint: signed.map(fingerprint).at(-1), offline: true },
        });
      }
    }
    return { nodes: stored };
  });
}

const keyPick = nodes.pick("id", "hostPublicKey");
const allKeys = `SELECT ${keyPick.select()} FROM nodes
  WHERE org_id = $1 AND state = 'active' AND phone IS NULL AND host_public_key IS NOT NULL`;

const hexOf = (publicPem: string) =>
  publicPem === "" ? "" : Buffer.from(readHostPublicKey(publicPem)).toString("hex");

/** Stores the certificates of one node. False if they are stored already. */
async function storeSigned(
  tx: Transaction,
  node: NodeRow,
  cas: readonly { id: number; fingerprint: string; certificate: string }[],
  signed: readonly NebulaCertificate[],
  { now }: Pick<ServerOptions["system"], "now">,
): Promise<boolean> {
  const prints = signed.map(fingerprint);
  const known = await Promise.all(prints.map((each) => certificates.find(tx, { fingerprint: each })));
  if (known.every((row) => row?.state === "current")) return false;
  if (known.some((row) => row !== undefined)) throw refused(`${node.name} had such a certificate before.`);
  await certificates.update(tx, { nodeId: node.id, kind: "overlay", state: "current" }, { state: "former" });
  for (const each of signed) {
    const ca = cas.find(({ fingerprint: print }) => print === each.issuer);
    if (ca === undefined) throw refused(`The CA of the certificate of ${node.name} is no offline CA here.`);
    verifyCertificate(each, decodeCaBundle(ca.certificate), Math.floor(now() / 1000));
    // `twin`: a P-256 certificate has a second fingerprint, which is blocked with the first.
    const [print = "", twin = null] = fingerprints(each);
    await certificates.insert(tx, {
      orgId: node.orgId,
      nodeId: node.id,
      authorityId: ca.id,
      kind: "overlay",
      version: each.version,
      fingerprint: print,
      twin,
      pem: encodePem(each),
      notBefore: each.notBefore * 1000,
      notAfter: each.notAfter * 1000,
      // Signers renew it before. If they do not, the node then gets one of the control plane, without privileged groups.
      renewAt: each.notAfter * 1000,
      state: "current",
      createdAt: now(),
    });
  }
  await setRenewal(tx, node.id);
  return true;
}

const refused = (message: string) => new AppError("conflict", message);
