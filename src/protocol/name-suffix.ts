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
  // `a.` finds wildcard rules such as *.kawasaki.jp, by which each name below the suffix would be a public suffix.
  const isPublic = [suffix, `a.${suffix}`].some((each) => publicSuffix(each) === each);
  return isPublic ? `${suffix} is a public suffix: its names belong to many owners` : undefined;
}

const publicSuffix = (name: string) => getPublicSuffix(name, { allowPrivateDomains: true });

/** The first of these hosts that is, or lies below, the suffix: a machine would not find it any more. In lower case. */
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
