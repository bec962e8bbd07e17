// The rules about a node in words, for its page and for the dialog that edits it.

import { type Rule as StoredRule, rulesApi } from "../../api/rules.ts";
import { apiPath } from "../../api/endpoint.ts";
import { useEffect, useState } from "preact/hooks";
import { namesOf, toRule, type Rule } from "../access/rules.ts";
import { namedIn } from "../access/rules-of-node.ts";
import { emailsOf, membersPath } from "../activity/member-names.ts";
import { readNamed } from "../activity/named-nodes.ts";
import { useList } from "../contact/resource.ts";
import { providerGroupsPath, wordsOf } from "../providers/provider-words.ts";

export const rulesPath = (slug: string) => apiPath(rulesApi.list, { slug }, { page_size: "1000" });

/**
 * Gives what turns a rule of `listed` into words; undefined until all names are known: a node without its name would be called
 * deleted. `read`: all rules, as they were read last. Names are read again when these are.
 */
export function useWords(
  slug: string,
  read: readonly StoredRule[] | undefined,
  listed: readonly StoredRule[],
): ((rule: StoredRule) => Rule) | undefined {
  const ids = namedIn(listed);
  const [known, setKnown] = useState({ ids, names: namesOf([]) });
  useEffect(() => {
    let isOver = false;
    readNamed(slug, ids).then(
      (nodes) => isOver || setKnown({ ids, names: namesOf(nodes) }),
      // The rules are read again within 20 seconds.
      () => undefined,
    );
    return () => void (isOver = true);
  }, [slug, read, ids.join()]);
  const { data: members } = useList(membersPath(slug));
  const { data: groups } = useList(providerGroupsPath(slug));
  const hasAllNames = ids.every((id) => known.ids.includes(id));
  if (read === undefined || members === undefined || groups === undefined || !hasAllNames) return undefined;
  const emails = emailsOf(members);
  const providerGroups = wordsOf(groups);
  return (rule) => toRule(rule, known.names, emails, providerGroups);
}
