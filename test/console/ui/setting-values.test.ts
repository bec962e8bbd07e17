// The values and texts of settings in forms.

import { expect, test } from "bun:test";
import { join } from "node:path";
import * as v from "valibot";
import { organizationProviderSettings, providerSettings } from "../../../src/api/providers/providers.ts";
import { leaverSettings } from "../../../src/api/users.ts";
import { webhookSettings } from "../../../src/api/webhooks/webhooks.ts";
import { differing, valuesOf } from "../../../src/console/ui/setting-values.ts";
import { flagWords, itemOf, itemText, type Setting } from "../../../src/protocol/settings.ts";

const { roles, node_groups } = organizationProviderSettings;
const saved = {
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

test("items come back from their texts as they went in, also groups with commas and signs", () => {
  for (const item of saved.roles) expect(itemOf(roles, itemText(roles, item))).toEqual(item);
  for (const item of saved.node_groups)
    expect(itemOf(node_groups, itemText(node_groups, item))).toEqual(item);
  // The text of the installation's providers names the organization; a group of nodes may have a colon.
  const whole = { group: "cn=dev,ou=groups", organization: "acme", node_group: "user:7" };
  expect(itemText(providerSettings.node_groups, whole)).toBe("cn=dev,ou=groups=acme:user:7");
  expect(itemOf(providerSettings.node_groups, "cn=dev,ou=groups=acme:user:7")).toEqual(whole);
});

test("a group without a role is one of members; a group of machines without a name is refused by the server", () => {
  expect(itemOf(roles, "staff")).toEqual({ group: "staff", role: "member" });
  expect(itemOf(roles, "cn=net,ou=groups = admin")).toEqual({ group: "cn=net,ou=groups", role: "admin" });
  expect(itemOf(node_groups, "dev")).toEqual({ group: "dev", node_group: "" });
});

test("a form that nobody edited sends nothing, although an answer names the organization of each role and group", () => {
  const within = <T extends object>(list: readonly T[]) =>
    list.map((each) => ({ ...each, organization: "acme" }));
  const answer = { ...saved, id: 1, roles: within(saved.roles), node_groups: within(saved.node_groups) };
  const values = valuesOf(organizationProviderSettings, answer);
  expect(values).toEqual(saved);
  expect(differing(values, valuesOf(organizationProviderSettings, answer))).toEqual({});
});

test("a new thing begins with what the control plane would take, and only changes become flags", () => {
  const usual = valuesOf(organizationProviderSettings);
  expect(usual).toMatchObject({ name: "", client_id: "", groups_claim: "groups", tenant: null, roles: [] });
  expect(valuesOf(webhookSettings)).toMatchObject({ url: "", events: ["*"] });
  const now = { ...saved, tenant: null, domains: [], creates_users: false, client_secret: "s3cret" };
  const changes = differing(now, saved);
  expect(changes).toEqual({ tenant: null, domains: [], creates_users: false, client_secret: "s3cret" });
  const words = "--tenant _ --domain _ --users link --client-secret-file FILE";
  expect(flagWords(organizationProviderSettings, changes)).toEqual(
    words.split(" ").map((word) => (word === "_" ? "" : word)),
  );
  expect(flagWords(organizationProviderSettings, { roles: saved.roles })).toEqual(
    "--role cn=net,ou=groups=admin --role staff=member".split(" "),
  );
  expect(flagWords(leaverSettings, { revoke_nodes: true })).toEqual(["--revoke-nodes"]);
});

const api = await Promise.all(
  [...new Bun.Glob("src/api/**/*.ts").scanSync(".")].map((file) => import(join("../../..", file))),
);
const declared = api.flatMap((module) =>
  Object.entries<Record<string, Setting>>(module).filter(([name]) => name.endsWith("Settings")),
);

test("each declared setting has its words: a flag of its own, help, and a label where a page has it", () => {
  expect(declared.map(([name]) => name).sort()).toEqual([
    "leaverSettings",
    "nodeSettings",
    "organizationProviderSettings",
    "organizationSettings",
    "providerSettings",
    "userSettings",
    "webhookSettings",
  ]);
  for (const [name, settings] of declared) {
    const all = Object.entries(settings);
    expect([name, new Set(all.map(([, { flag }]) => flag)).size]).toEqual([name, all.length]);
    for (const [field, { flag, help, section, label = "", takes, initial, words, choices = words }] of all) {
      expect([name, field, /^[a-z0-9-]+$/.test(flag), help.length > 8]).toEqual([name, field, true, true]);
      if (section !== undefined) expect([name, field, label !== ""]).toEqual([name, field, true]);
      expect([name, field, choices?.length]).toEqual([name, field, words?.length]);
      if (initial !== undefined)
        expect([name, field, v.safeParse(takes, initial).success]).toEqual([name, field, true]);
    }
  }
});
