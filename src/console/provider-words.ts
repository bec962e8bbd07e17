// The words of groups of providers of identities in rules, `idp:Engineering`.

import { useMemo } from "preact/hooks";
import { org } from "./api.ts";
import { useList } from "./resource.ts";

/** As GET provider_groups/ shows it. */
export type ProviderGroup = { group: string; word: string };

export const providerGroupsPath = (own: string) => org(own, "provider_groups/");

export const wordsOf = (groups: readonly ProviderGroup[]): ReadonlyMap<string, string> =>
  new Map(groups.map(({ group, word }) => [group, word]));

export function useProviderWords(own: string, isNeeded = true): ReadonlyMap<string, string> {
  const { data } = useList<ProviderGroup>(isNeeded ? providerGroupsPath(own) : "");
  return useMemo(() => wordsOf(data ?? []), [data]);
}
