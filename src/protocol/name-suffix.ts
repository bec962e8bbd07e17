// Which domains, beside `.internal`, an organization's names may end in. Server and node check the same. Load it on demand:
// the list of public suffixes takes milliseconds and a megabyte.

import { getPublicSuffix } from "tldts";
import { brand } from "../brand.ts";

/** Domains with a meaning of their own (RFC 6761, 6762, 7686, 9476), and the one that every organization has names in. */
const specialDomains = new Set<string>([
  brand.internalDomain,
  "alt",
  "arpa",
  "invalid",
  "local",
  "localhost",
  "onion",
]);

/** Why names must not end in this domain, a NameSuffix; undefined if they may. */
export function whyNoSuffix(suffix: string): string | undefined {
  const [top = ""] = suffix.split(".").slice(-1);
  if (specialDomains.has(top)) return `names below .${top} have a meaning of their own`;
  // The second one is below a rule such as *.kawasaki.jp: then each name would be a public suffix.
  const isPublic = [suffix, `a.${suffix}`].some((each) => publicSuffix(each) === each);
  return isPublic ? `${suffix} is a public suffix: its names belong to many owners` : undefined;
}

const publicSuffix = (name: string) => getPublicSuffix(name, { allowPrivateDomains: true });

/** The first of these hosts that a machine would not find any more, because the suffix answers for it. */
export function hostWithin(suffix: string, hosts: Iterable<string>): string | undefined {
  for (const host of hosts) {
    const name = host.toLowerCase().replace(/\.$/, "");
    if (name === suffix || name.endsWith(`.${suffix}`)) return name;
  }
  return undefined;
}

/** Whether one domain is, or lies within, the other. */
export function overlaps(one: string, other: string): boolean {
  return hostWithin(one, [other]) !== undefined || hostWithin(other, [one]) !== undefined;
}
