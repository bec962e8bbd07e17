// The organizations that a command works on, without reading their files: the named one, else all.

import { AppError } from "../../base/errors.ts";
import { listOrganizations, notRegistered } from "../../node/files/list-organizations.ts";

/**
 * The organization that a command changes: the named one, else the only one. Throws usage if there are several. A named one is not
 * checked: callers open it, which fails if it does not exist, and `unregister` also removes one that is incomplete.
 */
export function chooseOne(configRoot: string, slug: string | undefined): string {
  if (slug !== undefined) return slug;
  const slugs = chooseSlugs(configRoot, undefined);
  const [only = ""] = slugs;
  if (slugs.length === 1) return only;
  throw new AppError("usage", `Several organizations are registered. Name one of them: ${slugs.join(", ")}`);
}

/** The named organization, else all of this machine. Throws not_registered if there is none. */
export function chooseSlugs(configRoot: string, slug: string | undefined): string[] {
  const slugs = listOrganizations(configRoot);
  if (slug !== undefined && !slugs.includes(slug)) throw notRegistered(configRoot, slug);
  if (slugs.length > 0) return slug === undefined ? slugs : [slug];
  throw notRegistered(configRoot);
}
