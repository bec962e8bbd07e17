// The rules and tests as they are saved: what the page reads, with words in place of numbers.

import { type Rule as StoredRule, rulesApi } from "../../api/rules.ts";
import { apiPath } from "../../api/endpoint.ts";
import { policyApi, type Policy } from "../../api/policy.ts";
import { call, getAll } from "../contact/api.ts";
import { emailsOf, membersPath } from "../activity/member-names.ts";
import { readNamed } from "../activity/named-nodes.ts";
import { providerGroupsPath, wordsOf } from "../providers/provider-words.ts";
import type { Words } from "./merge.ts";
import { isOwnerSide, isProviderSide, namesOf, toRule, type Rule } from "./rules.ts";
import { namedIn } from "./rules-of-node.ts";
import type { Tests } from "./test-text.ts";

/** `words`: of the sides of the stored rules. A renamed node changes a word, and not the rule. */
export type Saved = {
  policy: Policy;
  rules: readonly Rule[];
  words: Words;
};

/** The saved tests. */
export const listOf = ({ policy }: Saved): Tests => policy.tests.list;

/** Reads rules, version and tests. Throws an ApiError. */
export async function read(slug: string): Promise<Saved> {
  // Read the version first: if the rules change in between, saving is refused. The other order could overwrite
  // changes.
  const policy = await call(policyApi.retrieve, { slug });
  const stored = await getAll(apiPath(rulesApi.list, { slug }, { page_size: "1000" }));
  const rules = await inWords(slug, stored);
  return { policy, rules, words: wordsBetween(stored, rules) };
}

/** The word of each side of the stored rules. `rules`: the same rules in words, in the same order. */
function wordsBetween(stored: readonly StoredRule[], rules: readonly Rule[]): Words {
  const sides = stored.flatMap(({ peer, target }) => [peer, target]);
  const words = rules.flatMap(({ peer, target }) => [peer, target]);
  return new Map(sides.map((side, at) => [JSON.stringify(side), words[at] ?? ""]));
}

/** Nodes by their numbers; the name of a revoked one follows its number. */
async function readNames(slug: string, ids: readonly number[]): Promise<ReadonlyMap<number, string>> {
  const names = namesOf(await readNamed(slug, ids));
  const others = ids.filter((id) => !names.has(id));
  const revoked = await readNamed(slug, others, true);
  return new Map([...names, ...revoked.map(({ id, name }) => [id, `#${id} ${name}`] as const)]);
}

/** The rules with names in place of the ids of nodes, members and groups of providers. Throws an ApiError. */
export async function inWords(slug: string, stored: readonly StoredRule[]): Promise<Rule[]> {
  const sides = stored.flatMap(({ peer, target }) => [peer, target]);
  const [names, members, groups] = await Promise.all([
    readNames(slug, namedIn(stored)),
    sides.some(isOwnerSide) ? getAll(membersPath(slug)) : [],
    sides.some(isProviderSide) ? getAll(providerGroupsPath(slug)) : [],
  ]);
  const [emails, words] = [emailsOf(members), wordsOf(groups)];
  return stored.map((rule) => toRule(rule, names, emails, words));
}
