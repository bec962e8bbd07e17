// Providers of identities and verified domains in a restored database: what was deleted, or restricted, after the backup
// stays so. A provider that was removed must not sign anybody in again.

import type { Reader, Transaction } from "../store/database.ts";
import { identities, identityProviders, organizationIdentities } from "../store/tables/identity-providers.ts";
import { verifiedDomains } from "../store/tables/verified-domains.ts";

/** `old`: the replaced database. Tokens of providers are not in `tx` any more. */
export async function carryProviders(old: Reader, tx: Transaction): Promise<void> {
  for (const { id, issuer, createdAt } of await identityProviders.all(tx, {})) {
    const kept = await identityProviders.find(old, { id, issuer, createdAt });
    if (kept === undefined) {
      await organizationIdentities.delete(tx, { providerId: id });
      await identities.delete(tx, { providerId: id });
      await identityProviders.delete(tx, { id });
      continue;
    }
    const { roles, nodeGroups, requiredGroups, domains, tenant, createsUsers, trust } = kept;
    const settings = { roles, nodeGroups, requiredGroups, domains, tenant, createsUsers, trust };
    await identityProviders.update(tx, { id }, settings);
  }
  for (const { id, orgId, domain, proof } of await verifiedDomains.all(tx, {})) {
    const kept = await verifiedDomains.find(old, { orgId, domain, proof });
    if (kept?.verifiedAt == null) await verifiedDomains.delete(tx, { id });
  }
}
