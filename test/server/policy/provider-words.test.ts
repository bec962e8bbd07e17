// The words of a policy for groups of providers are read back as the groups for which they were written.

import { expect, test } from "bun:test";
import { providerGroup } from "../../../src/server/policy/group-users.ts";
import { providerGroupOf, providerWords } from "../../../src/server/policy/provider-words.ts";

test.each([
  ["one provider", ["Okta"], "idp:Engineering"],
  ["several", ["Entra", "Okta"], "idp:Okta/Engineering"],
  ["a name with a slash that begins as another name does", ["Okta", "Okta/EU"], "idp:Okta/EU/Engineering"],
  ["the same in the other order", ["Okta/EU", "Okta"], "idp:Okta/Engineering"],
])("%s", (_, names, expected) => {
  const providers = names.map((name, at) => ({ id: at + 1, name }));
  const group = providerGroup(providers.length, "Engineering");
  const word = providerWords(providers, [group]).get(group.people) ?? "";
  expect(word).toBe(expected);
  expect(providerGroupOf(providers, word.slice("idp:".length))).toEqual(group);
});
