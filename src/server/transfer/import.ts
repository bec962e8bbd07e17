// Takes a hand-made Nebula network over as an organization: its CA signs from now on, each host is a node that a machine
// can register as. Nothing of the running network is touched; all of it is stored, or nothing.

import { isEncryptedCaKey, readCaKey, formatCaKey } from "../../pki/ca-key.ts";
import { formatHostPublicKey, rawPublicKey } from "../../pki/keys.ts";
import { encodePem, fingerprint, fingerprints, type NebulaCertificate } from "../../pki/nebula.ts";
import { sealSecret } from "../../pki/secrets.ts";
import type { Admin } from "../admin.ts";
import { operator, record } from "../audit/record.ts";
import { ensureGroups } from "../policy/groups.ts";
import { readHandMade, type HandMade } from "./import-files.ts";
import { planImport, type ImportPlan, type PlannedHost } from "./import-plan.ts";
import { renewalTime } from "../certificates/issue.ts";
import { announceBlocklist } from "../certificates/blocklist.ts";
import { authorityContext, insertAuthority, type Authority } from "../certificates/make-authorities.ts";
import { createOrganization, OrganizationRequest, type Organization } from "../policy/organizations.ts";
import type { OwnerChoice } from "../people/ownership.ts";
import { findOwner } from "../people/people.ts";
import { parse } from "../http/route.ts";
import type { ServerOptions } from "../options.ts";
import { hostNumber, secondHost, takeAddress } from "../store/address-pool.ts";
import { holdName } from "../store/names.ts";
import { numberOf, type Transaction } from "../store/database.ts";

type Store = Pick<Admin, "db" | "secretKey"> & { system: ServerOptions["system"] };

export type Imported = { organization: Organization; plan: ImportPlan };

/** `passphrase` is asked for where a CA key is encrypted. Throws bad_configuration, invalid_credentials or conflict. */
export async function importNetwork(
  store: Store,
  slug: string,
  directory: string,
  options: {
    network: string | undefined;
    owner: OwnerChoice | undefined;
    passphrase: () => Promise<string>;
    isPlan: boolean;
  },
): Promise<Imported | ImportPlan> {
  const { system } = store;
  const found = readHandMade(directory);
  const keys = await openKeys(found, options.passphrase);
  const plan = planImport(
    found,
    keys.map(({ raw }) => raw),
    Math.floor(system.now() / 1000),
    options.network,
  );
  const key = keys.find(({ raw }) => Buffer.compare(raw, plan.ca.publicKey) === 0);
  const { network, network6, certificateVersion } = plan;
  const request = parse(OrganizationRequest, { slug, network, network6: network6 ?? undefined });
  const owner = options.owner === undefined ? undefined : await findOwner(store.db, options.owner);
  if (options.isPlan) return plan;
  const overlay = authorityOf(store, plan.ca, key?.pem ?? "");
  const organization = await createOrganization(
    store,
    { ...request, certificateVersion },
    { ownerId: owner?.id ?? null, ownerEmail: owner?.email ?? null, actor: operator },
    { overlay, fill: (tx, orgId) => fill(tx, store, orgId, plan) },
  );
  return { organization, plan };
}

type OpenKey = { raw: Uint8Array; pem: string };

async function openKeys({ caKeys }: HandMade, passphrase: () => Promise<string>): Promise<OpenKey[]> {
  const given = caKeys.some(isEncryptedCaKey) ? await passphrase() : undefined;
  const open: OpenKey[] = [];
  for (const pem of caKeys) {
    const key = await readCaKey(pem, given);
    open.push({ raw: rawPublicKey(key.privateKey), pem: formatCaKey(key) });
  }
  return open;
}

/** A CA without its key is trusted, and can sign nothing. */
function authorityOf(
  { secretKey }: Pick<Store, "secretKey">,
  ca: NebulaCertificate,
  keyPem: string,
): Authority {
  const print = fingerprint(ca);
  return {
    kind: "overlay",
    fingerprint: print,
    certificate: encodePem(ca),
    sealed: keyPem === "" ? "" : sealSecret(secretKey, keyPem, authorityContext("overlay", print)),
    notBefore: ca.notBefore * 1000,
    notAfter: ca.notAfter * 1000,
  };
}

async function fill(tx: Transaction, store: Store, orgId: number, plan: ImportPlan): Promise<void> {
  const now = store.system.now();
  for (const ca of plan.otherCas) await insertAuthority(tx, orgId, authorityOf(store, ca, ""), now, "former");
  const rows = await tx.all(
    "SELECT id, fingerprint FROM authorities WHERE org_id = $1 AND kind = 'overlay'",
    [orgId],
  );
  const authorities = new Map(rows.map((row) => [String(row["fingerprint"]), numberOf(row, "id")]));
  const scene = { orgId, now, authorities, random: store.system.random, plan };
  for (const host of plan.hosts) await insertHost(tx, scene, host);
  if (plan.unknownBlocked.length > 0) await insertBlocked(tx, scene);
  await record(tx, {
    orgId,
    at: now,
    type: "ca.imported",
    actor: operator,
    subject: `authority/${fingerprint(plan.ca)}`,
    after: { nodes: plan.hosts.length, blocked: plan.blocklist.size },
  });
  await announceBlocklist(tx, orgId, now);
}

type Scene = {
  orgId: number;
  now: number;
  /** Ids by fingerprint. */
  authorities: ReadonlyMap<string, number>;
  random: Store["system"]["random"];
  plan: ImportPlan;
};

/** An active node that was never registered: its machine runs without us, and may register as it at any time. */
async function insertHost(tx: Transaction, scene: Scene, host: PlannedHost): Promise<void> {
  const { orgId, now, plan } = scene;
  const { current, former, isBlocked } = host;
  const row = await tx.get(
    `INSERT INTO nodes (org_id, name, ip, ip6, state, is_lighthouse, is_relay, public_ip, external_port, host_public_key,
       groups, subnets, created_at, revoked_at, revoke_reason)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) RETURNING id`,
    [
      orgId,
      host.name,
      host.ip,
      plan.certificateVersion === 1 ? null : host.ip6,
      isBlocked ? "revoked" : "active",
      host.isLighthouse ? 1 : 0,
      host.isRelay ? 1 : 0,
      host.publicIp,
      host.externalPort,
      formatHostPublicKey(current.at(-1)?.publicKey ?? new Uint8Array()),
      JSON.stringify(host.groups),
      JSON.stringify(host.subnets),
      now,
      isBlocked ? now : null,
      isBlocked ? "on the blocklist of the network that was imported" : null,
    ],
  );
  const id = numberOf(row ?? {}, "id");
  await ensureGroups(tx, orgId, host.groups, now);
  const networks = { id: orgId, network: plan.network, network6: plan.network6 };
  await takeAddress(tx, orgId, { host: hostNumber(networks, host.ip), ip: host.ip }, id);
  // Its IPv6 address may be the one that would belong to another place.
  const second = secondHost(networks, host.ip6);
  if (second !== undefined) await takeAddress(tx, orgId, { host: second, ip: host.ip6 ?? "" }, id);
  const stateOf = (each: NebulaCertificate, usual: "current" | "former") =>
    isBlocked || plan.blocklist.has(fingerprint(each)) ? "blocked" : usual;
  // The other machines' own configurations may name it: none has confirmed version 1 before it registers.
  if (isBlocked) await holdName(tx, { id, orgId, name: host.name }, 1);
  for (const each of current) await insertCertificate(tx, scene, id, each, stateOf(each, "current"));
  for (const each of former) await insertCertificate(tx, scene, id, each, stateOf(each, "former"));
}

async function insertCertificate(
  tx: Transaction,
  { orgId, now, authorities, random }: Scene,
  nodeId: number,
  certificate: NebulaCertificate,
  state: "current" | "former" | "blocked",
): Promise<void> {
  const [print = "", twin = null] = fingerprints(certificate);
  const [notBefore, notAfter] = [certificate.notBefore * 1000, certificate.notAfter * 1000];
  await tx.run(
    `INSERT INTO certificates
       (org_id, node_id, authority_id, kind, version, fingerprint, twin, pem, not_before, not_after, renew_at, state, blocked_at, created_at)
     VALUES ($1, $2, $3, 'overlay', $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`,
    [
      orgId,
      nodeId,
      authorities.get(certificate.issuer) ?? 0,
      certificate.version,
      print,
      twin,
      encodePem(certificate),
      notBefore,
      notAfter,
      renewalTime(notBefore, notAfter, random),
      state,
      state === "blocked" ? now : null,
      now,
    ],
  );
}

/** What the network has blocked stays blocked, also where nothing but its fingerprint is known: until the CA's end. */
async function insertBlocked(tx: Transaction, { orgId, now, authorities, plan }: Scene): Promise<void> {
  const row = await tx.get(
    `INSERT INTO nodes (org_id, name, ip, state, created_at, revoked_at, revoke_reason)
     VALUES ($1, 'blocked-before-import', '', 'revoked', $2, $2, 'fingerprints on the blocklist of the network that was imported')
     RETURNING id`,
    [orgId, now],
  );
  for (const print of plan.unknownBlocked) {
    await tx.run(
      `INSERT INTO certificates
         (org_id, node_id, authority_id, kind, version, fingerprint, pem, not_before, not_after, renew_at, state, blocked_at, created_at)
       VALUES ($1, $2, $3, 'overlay', 1, $4, '', $5, $6, $6, 'blocked', $5, $5)`,
      [
        orgId,
        numberOf(row ?? {}, "id"),
        authorities.get(fingerprint(plan.ca)) ?? 0,
        print,
        now,
        plan.ca.notAfter * 1000,
      ],
    );
  }
}
