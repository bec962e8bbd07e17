// The texts of the form of a provider of identities.

import { expect, test } from "bun:test";
import { changesIn, flagsOf, settingsIn, settingsOf, textsOf } from "../../src/console/provider-settings.ts";

const settings = {
  name: "Company",
  client_id: "agent",
  scopes: "openid email",
  groups_claim: "realm_access.roles",
  tenant: "hd=example.org",
  domains: ["example.org", "example.com"],
  required_groups: ["cn=vpn,ou=groups"],
  roles: [
    { group: "cn=net,ou=groups", role: "admin" },
    { group: "staff", role: "member" },
  ],
  node_groups: [{ group: "cn=dev,ou=groups", node_group: "build" }],
  creates_users: true,
};

test("settings come back from the form as they went in, also groups with commas and signs", () => {
  expect(settingsIn(textsOf(settings), true)).toEqual(settings);
  expect(changesIn(settings, settingsIn(textsOf(settings), true))).toEqual({});
});

test("only changes are sent; a group without a role is one of members; an empty tenant is none", () => {
  const texts = {
    ...textsOf(settings),
    roles: " staff \n\n cn=net,ou=groups = admin",
    tenant: " ",
    domains: "",
  };
  const changes = changesIn(settings, settingsIn(texts, false));
  expect(changes).toEqual({
    roles: [
      { group: "staff", role: "member" },
      { group: "cn=net,ou=groups", role: "admin" },
    ],
    tenant: null,
    domains: [],
    creates_users: false,
  });
  const words = "--tenant _ --domain _ --role staff=member --role cn=net,ou=groups=admin --users link";
  expect(flagsOf(changes)).toEqual(words.split(" ").map((word) => (word === "_" ? "" : word)));
});

test("a form that nobody edited sends nothing, although an answer names the organization of each role and group", () => {
  const within = <T extends object>(list: readonly T[]) =>
    list.map((each) => ({ ...each, organization: "acme" }));
  const { roles, node_groups } = settings;
  const provider = { ...settings, id: 1, roles: within(roles), node_groups: within(node_groups) };
  const untouched = settingsIn(textsOf(provider), provider.creates_users);
  expect(changesIn(settingsOf(provider), untouched)).toEqual({});
});
