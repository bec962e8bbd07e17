// The domains whose addresses count when an organization's provider names them. A domain is proven by a TXT record, which only
// its owner can publish, or by the word of staff.

import type { ClaimedDomain, VouchedDomain } from "../../api/providers/domains.ts";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { timeOrNull } from "../../base/quantities.ts";
import { makeOpaqueToken } from "../../pki/opaque.ts";
import { record, type Actor } from "../audit/record.ts";
import type { Store } from "../options.ts";
import { requireStaff, writeAsAdmin } from "../require-role.ts";
import { organizationBySlug } from "../organizations/organizations.ts";
import { ifNotUnique, type Reader, type Transaction } from "../store/database.ts";
import { verifiedDomains, type VerifiedDomainRow } from "../store/tables/organizations.ts";
import { within } from "../../base/within.ts";

type Org = { id: number };

const maxOfOrganization = 50;
/** Time limit of the look-up of a TXT record. */
const lookupMs = 5000;

function show({ id, domain, proof, verifiedAt, verifiedBy }: VerifiedDomainRow): ClaimedDomain {
  return {
    id,
    domain,
    record_name: recordName(domain),
    record_text: recordText(proof),
    verified_at: timeOrNull(verifiedAt),
    verified_by: verifiedBy,
  };
}

const recordName = (domain: string) => `_${brand.id}.${domain}`;
const recordText = (proof: string) => `${brand.id}-domain=${proof}`;

export async function listDomains(reader: Reader, org: Org): Promise<ClaimedDomain[]> {
  return (await verifiedDomains.all(reader, { orgId: org.id })).map(show);
}

async function findDomain(reader: Reader, org: Org, id: number): Promise<VerifiedDomainRow> {
  const found = await verifiedDomains.find(reader, { id, orgId: org.id });
  if (found === undefined) throw new AppError("not_found", "The organization has claimed no such domain.");
  return found;
}

/**
 * Claims a domain, which counts once it is verified. Several organizations may claim a domain, and each must verify
 * it.
 */
export async function addDomain(
  { db, system }: Store,
  org: Org,
  domain: string,
  actor: Actor,
): Promise<ClaimedDomain> {
  const added = writeAsAdmin(db, org.id, actor, async (tx) =>
    show(await insertDomain(tx, system, org, { domain, actor })),
  );
  const sentence = `The organization has claimed ${domain} already.`;
  return added.catch(ifNotUnique((cause) => new AppError("conflict", sentence, { cause })));
}

async function insertDomain(
  tx: Transaction,
  system: Store["system"],
  org: Org,
  { domain, actor }: { domain: string; actor: Actor },
): Promise<VerifiedDomainRow> {
  if ((await verifiedDomains.all(tx, { orgId: org.id })).length >= maxOfOrganization)
    throw new AppError("conflict", `An organization claims at most ${maxOfOrganization} domains.`);
  const row = { orgId: org.id, domain, proof: makeOpaqueToken(system.random), createdAt: system.now() };
  const created = await verifiedDomains.insertReturning(tx, row);
  await record(tx, { ...event(system, org, actor, domain), type: "domain.created" });
  return created;
}

/** Looks for the TXT record. Throws domain_unverified. */
export async function checkDomain(
  { db, system }: Store,
  org: Org,
  id: number,
  actor: Actor,
): Promise<ClaimedDomain> {
  const { domain, proof } = await findDomain(db, org, id);
  const name = recordName(domain);
  const texts: readonly string[] = await within(system, lookupMs, system.lookupTexts(name), []);
  if (!texts.includes(recordText(proof)))
    throw new AppError("domain_unverified", `There is no TXT record of ${name} with the expected text.`, {
      hint: `\`${brand.executable} admin domain list ORG\` prints the text to publish. Try again some minutes after that.`,
    });
  return writeAsAdmin(db, org.id, actor, async (tx) =>
    verify(tx, system, await findDomain(tx, org, id), { actor, by: "dns" }),
  );
}

/** Verifies a domain by the word of staff. The organization need not have claimed it. Throws not_found. */
export async function vouchForDomain(
  { db, system }: Store,
  { organization, domain }: VouchedDomain,
  actor: Actor,
): Promise<ClaimedDomain> {
  const org = await organizationBySlug(db, organization);
  return db.writeFor({ org: org.id }, async (tx) => {
    await requireStaff(tx, actor);
    const claimed =
      (await verifiedDomains.find(tx, { orgId: org.id, domain })) ??
      (await insertDomain(tx, system, org, { domain, actor }));
    return verify(tx, system, claimed, { actor, by: "staff" });
  });
}

async function verify(
  tx: Transaction,
  system: Store["system"],
  { id, orgId, domain }: VerifiedDomainRow,
  { actor, by }: { actor: Actor; by: "dns" | "staff" },
): Promise<ClaimedDomain> {
  await verifiedDomains.update(tx, { id }, { verifiedAt: system.now(), verifiedBy: by });
  const verified = { ...event(system, { id: orgId }, actor, domain), after: { verified_by: by } };
  await record(tx, { ...verified, type: "domain.verified" });
  return show(await findDomain(tx, { id: orgId }, id));
}

/** Deletes a domain. Users lose their addresses in it at the next sign-in. */
export async function removeDomain({ db, system }: Store, org: Org, id: number, actor: Actor): Promise<void> {
  await writeAsAdmin(db, org.id, actor, async (tx) => {
    const { domain } = await findDomain(tx, org, id);
    await verifiedDomains.delete(tx, { id });
    await record(tx, { ...event(system, org, actor, domain), type: "domain.deleted" });
  });
}

function event({ now }: Store["system"], { id }: Org, actor: Actor, domain: string) {
  return { orgId: id, at: now(), actor, subject: `domain/${domain}` };
}
