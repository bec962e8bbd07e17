// Groups of providers of identities: from the name by which rules are stored, `idp:3.<digest>`, to the word that rules are
// shown with, `idp:Engineering`.

import { useMemo } from "preact/hooks";
import { apiPath, type ItemOf } from "../../api/endpoint.ts";
import { rulesApi } from "../../api/rules.ts";
import { useList } from "../contact/resource.ts";

export const providerGroupsPath = (slug: string) => apiPath(rulesApi.providerGroups, { slug });

export const wordsOf = (
  groups: readonly ItemOf<typeof rulesApi.providerGroups>[],
): ReadonlyMap<string, string> => new Map(groups.map(({ group, word }) => [group, word]));

/** `isNeeded` false: no request is sent, as of every list without a path. */
export function useProviderWords(slug: string, isNeeded = true): ReadonlyMap<string, string> {
  const { data } = useList(isNeeded ? providerGroupsPath(slug) : "");
  return useMemo(() => wordsOf(data ?? []), [data]);
}
