// The providers that the sign-in page offers: those with a client id, without which no user can sign in. An organization's providers
// are offered only to users who name the organization, or a domain that it has verified.

import type { Reader } from "../store/database.ts";
import { queryAll } from "../store/table.ts";
import { identityProviders, nameOfProvider } from "../store/tables/providers.ts";

const shown = identityProviders.pick("id", "name", "label");
const maxShown = 50;

/** `organization`: a slug. `domain`: of an e-mail address. */
export async function listChoices(
  reader: Reader,
  { organization, domain }: { organization?: string | undefined; domain?: string | undefined },
): Promise<{ id: number; name: string }[]> {
  const rows = await queryAll(
    reader,
    shown,
    `SELECT ${shown.select("p")} FROM identity_providers p LEFT JOIN organizations o ON o.id = p.org_id
     WHERE p.client_id <> '' AND (p.org_id IS NULL OR (o.deleted_at IS NULL AND (o.slug = $1 OR EXISTS (
       SELECT 1 FROM verified_domains d WHERE d.org_id = o.id AND d.domain = $2 AND d.verified_at IS NOT NULL))))
     ORDER BY p.org_id IS NULL, p.id LIMIT ${maxShown}`,
    [organization ?? "", domain ?? ""],
  );
  return rows.map((row) => ({ id: row.id, name: nameOfProvider(row) }));
}
