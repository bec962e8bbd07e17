// Fills a control plane's data with an organization of many nodes, directly through its store while no server runs.
// Certificates of the overlay are real, each node has its own; the request for node.crt is one for all, and what stands
// for node.crt is never read.

import { hash } from "node:crypto";
import { makeCsr } from "../../src/pki/x509.ts";
import { makeHostKey, makeNodeKey, readHostPublicKey } from "../../src/pki/keys.ts";
import { hashToken } from "../../src/pki/opaque.ts";
import { encodePem } from "../../src/pki/bundle.ts";
import { fingerprint, signCertificate } from "../../src/pki/nebula.ts";
import { addressOf, parseNetwork } from "../../src/base/ip.ts";
import { openAuthorities, type OverlayAuthority } from "../../src/server/certificates/authorities.ts";
import { openData, type DataOptions } from "../../src/server/store/data-directory.ts";
import { operator } from "../../src/server/audit/record.ts";
import { publishLateNames } from "../../src/server/names/publish.ts";
import { ensureGroups } from "../../src/server/policy/groups.ts";
import { createOrganization } from "../../src/server/organizations/organizations.ts";
import { createUser } from "../../src/server/users/users.ts";
import { makePasswords } from "../../src/server/users/sign-in/hash-passwords.ts";
import { createRegistrationToken } from "../../src/server/nodes/joining/registration-tokens.ts";
import { createServiceToken } from "../../src/server/users/service-tokens.ts";
import { takeAddress } from "../../src/server/allocation/address-pool.ts";
import type { Transaction } from "../../src/server/store/database.ts";
import { realSystem } from "../../src/base/system.ts";

export const slug = "bench";
const networkText = "10.64.0.0/10";
const day = 86_400_000;

export type Seeded = {
  /** A service token with the rights of an admin. */
  admin: string;
  /** A registration token. */
  registration: string;
  /** E-mail addresses of `password`'s owners. */
  people: string[];
};
/** Named group-0, group-1 and so on. */
export const groups = 100;
export const password = "a long enough password";

/** The API token of a node; ids count from 1. */
export function tokenOf(id: number): string {
  return hash("sha256", `bench node ${id}`, "base64url");
}

/** Host key and CSR that stand for all nodes: making 100,000 pairs would only cost time. */
type Shared = {
  hostKey: string;
  raw: Uint8Array;
  csr: string;
  authority: OverlayAuthority;
  x509Authority: number;
  now: number;
};

/** `uses` of the registration token. */
export async function seed(
  options: DataOptions,
  nodes: number,
  { people = 0, uses = 1_000_000 }: { people?: number; uses?: number } = {},
): Promise<Seeded> {
  const system = realSystem();
  const { db, secretKey, clock } = await openData(options, "server", system);
  const services = {
    db,
    system,
    clock,
    secretKey,
    publicUrl: "http://127.0.0.1",
    passwords: makePasswords(),
  };
  try {
    const by = { ownerId: null, ownerEmail: null, actor: operator };
    const org = await createOrganization(services, { slug, network: networkText }, by);
    const emails = Array.from({ length: people }, (_, at) => `person${at}@example.org`);
    for (const email of emails) await createUser(services, { email, password, isStaff: false }, operator);
    const names = Array.from({ length: groups }, (_, at) => `group-${at}`);
    await db.write((tx) => ensureGroups(tx, org.id, names, system.now()));
    const authorities = openAuthorities(services);
    const authority = await authorities.overlay(db, org.id);
    const { id: x509Authority } = await authorities.x509(db, org.id);
    const hostKey = makeHostKey().publicPem;
    const csr = await makeCsr({ privateKeyPem: makeNodeKey().privatePem, name: "bench" });
    const shared = {
      hostKey,
      raw: readHostPublicKey(hostKey),
      csr,
      authority,
      x509Authority,
      now: system.now(),
    };
    const batch = 5000;
    for (let first = 1; first <= nodes; first += batch) {
      const last = Math.min(nodes, first + batch - 1);
      await db.write((tx) => insertNodes(tx, org.id, first, last, shared));
    }
    await db.write((tx) => tx.run("UPDATE organizations SET next_host = $1", [nodes + 1]));
    const maker = { userId: null, actor: operator };
    const service = await createServiceToken(services, org, { name: "bench", role: "admin" }, maker);
    const request = { uses, expires_in: 30 * 86_400, groups: [], is_lighthouse: false };
    const registration = await createRegistrationToken(services, org, request, maker);
    // Else the first writes of a server publish them, a thousand each.
    await publishLateNames({ db });
    // What autovacuum does within a minute.
    if (db.dialect === "postgres") await db.all("ANALYZE");
    return { admin: service.token, registration: registration.token, people: emails };
  } finally {
    await db.close();
  }
}

async function insertNodes(
  tx: Transaction,
  orgId: number,
  first: number,
  last: number,
  shared: Shared,
): Promise<void> {
  for (let id = first; id <= last; id++) await insertNode(tx, orgId, id, shared);
}

async function insertNode(tx: Transaction, orgId: number, id: number, shared: Shared): Promise<void> {
  const network = parseNetwork(networkText);
  if (network === undefined) throw new Error(`${networkText} is no network`);
  const ip = addressOf(network, id);
  const { now } = shared;
  await tx.run(
    `INSERT INTO nodes (org_id, name, ip, state, mode, host_public_key, csr, token_hash, platform, agent_version,
       overlay_version, confirmed_config_version, created_at, registered_at)
     VALUES ($1, $2, $3, 'active', 'server', $4, $5, $6, 'linux-x64', '0.1.0', '1.10.3', 1, $7, $7)`,
    [orgId, `node-${id}`, ip, shared.hostKey, shared.csr, hashToken(tokenOf(id)), now],
  );
  await tx.run(
    "INSERT INTO sightings (node_id, last_checkin_at, applied_config_version) VALUES ($1, $2, 1)",
    [id, now],
  );
  await takeAddress(tx, orgId, { host: id, ip }, id, 0);
  const life = { notBefore: Math.floor(now / 1000) - 60, notAfter: Math.floor((now + 90 * day) / 1000) };
  const certificate = signCertificate(
    {
      version: 1,
      name: `node-${id}`,
      networks: [`${ip}/${network.prefix}`],
      unsafeNetworks: [],
      groups: [],
      publicKey: shared.raw,
      ...life,
    },
    shared.authority,
  );
  const authorities = { overlay: shared.authority.id, x509: shared.x509Authority };
  for (const kind of ["overlay", "x509"] as const) {
    const isOverlay = kind === "overlay";
    await tx.run(
      `INSERT INTO certificates (org_id, node_id, authority_id, kind, version, fingerprint, pem, not_before, not_after,
         renew_at, state, created_at) VALUES ($1, $2, $3, $4, 1, $5, $6, $7, $8, $9, 'current', $10)`,
      [
        orgId,
        id,
        authorities[kind],
        kind,
        isOverlay ? fingerprint(certificate) : hash("sha256", `bench node.crt ${id}`),
        isOverlay ? encodePem(certificate) : "",
        life.notBefore * 1000,
        life.notAfter * 1000,
        now + 60 * day,
        now,
      ],
    );
  }
  await tx.run("UPDATE nodes SET renew_at = $2 WHERE id = $1", [id, now + 60 * day]);
}
