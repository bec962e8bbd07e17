// Imports a hand-made Nebula network as an organization. Its CA signs from now on, and each host is a node that its
// machine can register as. The running network is not changed. The import stores everything or nothing.

import { isEncryptedCaKey, readCaKey, formatCaKey } from "../../pki/ca-key.ts";
import { formatHostPublicKey, rawPublicKey } from "../../pki/keys.ts";
import { AppError } from "../../base/errors.ts";
import { encodePem } from "../../pki/bundle.ts";
import { fingerprint, fingerprints, type NebulaCertificate } from "../../pki/nebula.ts";
import { sealSecret } from "../../pki/secrets.ts";
import type { Admin } from "../admin.ts";
import { operator, record } from "../audit/record.ts";
import { ensureGroups } from "../policy/groups.ts";
import { readHandMade, type HandMade } from "./import-files.ts";
import { quoted } from "./hand-config.ts";
import { isBlockedBy, requestOf, type PlannedHost } from "./import-hosts.ts";
import { planImport, type ImportPlan } from "./import-plan.ts";
import { renewalTime } from "../certificates/issue.ts";
import { announceBlocklist } from "../certificates/blocklist.ts";
import { otherHolder } from "../certificates/other-holder.ts";
import { authorityContext, insertAuthority, type NewAuthority } from "../certificates/make-authorities.ts";
import { createOrganization } from "../organizations/organizations.ts";
import { OrganizationRequest, type Organization } from "../../api/organizations.ts";
import type { OwnerChoice } from "../users/ownership.ts";
import { findOwner } from "../users/users.ts";
import { parse } from "../http/parse-input.ts";
import { readObstacles } from "../nodes/subnets.ts";
import type { ServerOptions } from "../options.ts";
import { hostNumber, hostOf6, takeAddress } from "../allocation/address-pool.ts";
import { holdName } from "../allocation/held-names.ts";
import type { Reader, Transaction } from "../store/database.ts";
import { authorities, certificates } from "../store/tables/certificates.ts";
import { nodes } from "../store/tables/nodes.ts";
import { organizations } from "../store/tables/organizations.ts";

/** In place of an organization's id, before it exists. */
const noOrganization = 0;

type Store = Pick<Admin, "db" | "secretKey" | "clock"> & { system: ServerOptions["system"] };

export type Imported = { organization: Organization; plan: ImportPlan };

/**
 * With `isPlan`, returns the plan and stores nothing. `network`: instead of the network of the certificates. Calls `passphrase`
 * if a CA key is encrypted. Throws bad_configuration, invalid_credentials or conflict.
 */
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
  const plan = planImport(found, {
    publicKeys: keys.map(({ publicKey }) => publicKey),
    nowS: Math.floor(system.now() / 1000),
    network:
      options.network === undefined
        ? undefined
        : parse(OrganizationRequest, { slug, network: options.network }).network,
    controlPlane: (await readObstacles(store.db, noOrganization)).controlPlane,
  });
  const key = keys.find(({ publicKey }) => Buffer.compare(publicKey, plan.ca.publicKey) === 0);
  const { network, network6, certificateVersion } = plan;
  const request = parse(OrganizationRequest, { slug, network, network6: network6 ?? undefined });
  const owner = options.owner === undefined ? undefined : await findOwner(store.db, options.owner);
  await requireUnknown(store.db, slug, plan);
  if (options.isPlan) return plan;
  // planImport takes only a CA whose key is there.
  const overlay = authorityOf(store, plan.ca, key?.pem ?? "");
  const organization = await createOrganization(
    store,
    { ...request, certificateVersion },
    { ownerId: owner?.id ?? null, ownerEmail: owner?.email ?? null, actor: operator },
    { overlay, fill: (tx, orgId) => fillOrganization(tx, store, orgId, plan) },
  );
  return { organization, plan };
}

/** A CA key that was decrypted. `pem`: the private key, plain. */
type OpenKey = { publicKey: Uint8Array; pem: string };

/** Each key once: to open an encrypted one takes seconds. Throws for a key that cannot be read, with its file. */
async function openKeys({ caKeys }: HandMade, passphrase: () => Promise<string>): Promise<OpenKey[]> {
  const different = new Map(caKeys.map((each) => [each.value, each]));
  const given = caKeys.some(({ value }) => isEncryptedCaKey(value)) ? await passphrase() : undefined;
  const open: OpenKey[] = [];
  for (const { file, value } of different.values()) {
    const key = await readCaKey(value, given).catch((error: unknown) => {
      throw withFile(file, error, different.size > 1);
    });
    open.push({ publicKey: rawPublicKey(key.privateKey), pem: formatCaKey(key) });
  }
  return open;
}

function withFile(file: string, error: unknown, hasOthers: boolean): unknown {
  if (!(error instanceof AppError)) return error;
  const hint =
    "Remove keys of CAs that are not used any more from the directory. All encrypted keys need the same passphrase.";
  return new AppError(error.code, `${file}: ${error.message}`, {
    cause: error,
    ...(hasOthers ? { hint } : {}),
  });
}

/** A CA without its key is trusted but cannot sign. */
function authorityOf(
  { secretKey }: Pick<Store, "secretKey">,
  ca: NebulaCertificate,
  keyPem: string,
): NewAuthority {
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

/** Checks that the plan and the import share. */
async function requireUnknown(reader: Reader, slug: string, plan: ImportPlan): Promise<void> {
  await requireOwnCas(reader, noOrganization, plan);
  if ((await organizations.find(reader, { slug, deletedAt: null })) !== undefined)
    throw new AppError("conflict", `There is an organization ${slug} already.`);
}

async function requireOwnCas(reader: Reader, orgId: number, plan: ImportPlan): Promise<void> {
  for (const ca of [plan.ca, ...plan.otherCas]) {
    const holder = await otherHolder(reader, orgId, fingerprint(ca));
    if (holder === undefined) continue;
    const which = `${holder.slug}${holder.deletedAt === null ? "" : ", which was deleted"}`;
    throw new AppError(
      "conflict",
      `The CA ${quoted(ca.name)} belongs to another organization here: ${which}.`,
      {
        hint: "Nodes of both would trust each other. Make a CA of its own for this network (`nebula-cert ca`), and import then.",
      },
    );
  }
}

async function fillOrganization(
  tx: Transaction,
  store: Store,
  orgId: number,
  plan: ImportPlan,
): Promise<void> {
  const now = store.system.now();
  await requireOwnCas(tx, orgId, plan);
  for (const ca of plan.otherCas) await insertAuthority(tx, orgId, authorityOf(store, ca, ""), now, "former");
  const cas = await authorities.all(tx, { orgId, kind: "overlay" });
  const authorityIds = new Map(cas.map((ca) => [ca.fingerprint, ca.id]));
  const context = { orgId, now, authorityIds, random: store.system.random, plan };
  for (const host of plan.hosts) await insertHost(tx, context, host);
  if (plan.unknownBlocked.length > 0) await insertBlocked(tx, context);
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

type Context = {
  orgId: number;
  now: number;
  /** Ids of the CAs by their fingerprints. */
  authorityIds: ReadonlyMap<string, number>;
  random: Store["system"]["random"];
  plan: ImportPlan;
};

/** Inserts an active node that was never registered. Its machine works without us, and may register at any time. */
async function insertHost(tx: Transaction, context: Context, host: PlannedHost): Promise<void> {
  const { orgId, now, plan } = context;
  const { isBlocked } = host;
  const { name, groups = [], subnets = [], ...request } = requestOf(host);
  const { id } = await nodes.insertReturning(tx, {
    orgId,
    name,
    ip: host.ip,
    ip6: plan.certificateVersion === 1 ? null : host.ip6,
    state: isBlocked ? "revoked" : "active",
    isLighthouse: request.is_lighthouse ?? false,
    isRelay: request.is_relay ?? false,
    publicIp: request.public_ip ?? null,
    externalPort: request.external_port ?? null,
    // The certificate of the highest version counts: another one may have an older key.
    hostPublicKey: formatHostPublicKey(host.current.at(-1)?.publicKey ?? new Uint8Array()),
    groups,
    subnets,
    createdAt: now,
    ...(isBlocked
      ? { revokedAt: now, revokeReason: "on the blocklist of the network that was imported" }
      : {}),
  });
  await ensureGroups(tx, orgId, groups, now);
  const networks = { id: orgId, network: plan.network, network6: plan.network6 };
  await takeAddress(tx, orgId, { host: hostNumber(networks, host.ip), ip: host.ip }, id, now);
  // Its IPv6 address may belong to another host number.
  const second = hostOf6(networks, host.ip6);
  if (second !== undefined) await takeAddress(tx, orgId, { host: second, ip: host.ip6 ?? "" }, id, now);
  // Configurations on other machines may name it. None of them has confirmed version 1 before it registers.
  if (isBlocked) await holdName(tx, { id, orgId, name }, 1);
  for (const state of ["current", "former"] as const) {
    for (const each of host[state]) {
      const blocked = isBlocked || isBlockedBy(plan.blocklist, each);
      await insertCertificate(tx, context, id, each, blocked ? "blocked" : state);
    }
  }
}

async function insertCertificate(
  tx: Transaction,
  { orgId, now, authorityIds, random }: Context,
  nodeId: number,
  certificate: NebulaCertificate,
  state: "current" | "former" | "blocked",
): Promise<void> {
  const [print = "", twin = null] = fingerprints(certificate);
  const [notBefore, notAfter] = [certificate.notBefore * 1000, certificate.notAfter * 1000];
  await certificates.insert(tx, {
    orgId,
    nodeId,
    // planImport reads only hosts of these CAs: there is always one.
    authorityId: authorityIds.get(certificate.issuer) ?? 0,
    kind: "overlay",
    version: certificate.version,
    fingerprint: print,
    twin,
    pem: encodePem(certificate),
    notBefore,
    notAfter,
    renewAt: renewalTime(notBefore, notAfter, random),
    state,
    blockedAt: state === "blocked" ? now : null,
    createdAt: now,
  });
}

/**
 * Keeps unknown fingerprints of the network's blocklist blocked until the CA expires, under a revoked placeholder node, which has no
 * address and no key. Of the certificates only the fingerprints are known: their other columns are placeholders, too.
 */
async function insertBlocked(tx: Transaction, { orgId, now, authorityIds, plan }: Context): Promise<void> {
  const placeholder = await nodes.insertReturning(tx, {
    orgId,
    name: "blocked-before-import",
    ip: "",
    state: "revoked",
    createdAt: now,
    revokedAt: now,
    revokeReason: "fingerprints on the blocklist of the network that was imported",
  });
  const notAfter = plan.ca.notAfter * 1000;
  for (const print of plan.unknownBlocked) {
    await certificates.insert(tx, {
      orgId,
      nodeId: placeholder.id,
      authorityId: authorityIds.get(fingerprint(plan.ca)) ?? 0,
      kind: "overlay",
      version: 1,
      fingerprint: print,
      pem: "",
      notBefore: now,
      notAfter,
      renewAt: notAfter,
      state: "blocked",
      blockedAt: now,
      createdAt: now,
    });
  }
}
