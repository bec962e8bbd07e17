// How a policy names groups of providers of identities: from its words to the group, and back. `people` is the group that stands
// for the users (group-users.ts).

import type { Reader } from "../store/database.ts";
import {
  providerGroup,
  readProviderGroups,
  readProviders,
  type NamedProvider,
  type ProviderGroup,
} from "./group-users.ts";

/**
 * `text`: the word without its `idp:`, so `Engineering` at the only provider, else `Okta/Engineering`. Undefined: there is no such
 * provider, or there are several.
 */
export function providerGroupOf(
  providers: readonly NamedProvider[],
  text: string,
): ProviderGroup | undefined {
  // Names may have slashes: `A/B/x` is the group x of A/B if there is that provider, also if there is A.
  const [named] = providers
    .filter(({ name }) => text.startsWith(`${name}/`) && text.length > name.length + 1)
    .toSorted((a, b) => b.name.length - a.name.length);
  if (named !== undefined) return providerGroup(named.id, text.slice(named.name.length + 1));
  const [only, second] = providers;
  return only === undefined || second !== undefined ? undefined : providerGroup(only.id, text);
}

/** The words of a policy file, such as `idp:Engineering`, by `people`. A group of a provider that is gone has none. */
export function providerWords(
  providers: readonly NamedProvider[],
  groups: readonly ProviderGroup[],
): ReadonlyMap<string, string> {
  return new Map(
    groups.flatMap(({ people, providerId, name }) => {
      const provider = providers.find(({ id }) => id === providerId);
      if (provider === undefined) return [];
      const isNameEnough = providerGroupOf(providers, name)?.people === people;
      return [[people, `idp:${isNameEnough ? name : `${provider.name}/${name}`}`]];
    }),
  );
}

/** The groups that a policy can name. `group`: its `people`; `name`: at the provider; `word`: in the policy file. */
export async function namedProviderGroups(reader: Reader, orgId: number) {
  const groups = await readProviderGroups(reader, orgId);
  const words = providerWords(await readProviders(reader, orgId), groups);
  return groups.flatMap(({ people: group, name }) => {
    const word = words.get(group);
    return word === undefined ? [] : [{ group, name, word }];
  });
}
