// The words of groups of providers of identities in rules, `idp:Engineering`.

import { useMemo } from "preact/hooks";
import { apiPath, type ItemOf } from "../api/endpoint.ts";
import { rulesApi } from "../api/rules.ts";
import { useList } from "./resource.ts";

export const providerGroupsPath = (own: string) => apiPath(rulesApi.providerGroups, { slug: own });

export const wordsOf = (
  groups: readonly ItemOf<typeof rulesApi.providerGroups>[],
): ReadonlyMap<string, string> => new Map(groups.map(({ group, word }) => [group, word]));

export function useProviderWords(own: string, isNeeded = true): ReadonlyMap<string, string> {
  const { data } = useList(isNeeded ? providerGroupsPath(own) : "");
  return useMemo(() => wordsOf(data ?? []), [data]);
}
