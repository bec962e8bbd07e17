// `agent admin oidc …` on the data of this machine, with a provider that answers.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Event as AuditEvent } from "../../src/api/events.ts";
import { organizationProviderSettings, providerSettings } from "../../src/api/providers/providers.ts";
import { readableChanges } from "../../src/console/activity/event-words.ts";
import type { Setting } from "../../src/protocol/settings.ts";
import { adminJson, runAdmin } from "../support/admin.ts";
import { startHostileProvider, type HostileProvider } from "../support/hostile-provider.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const directory = temporaryDirectory();
const data = join(directory.path, "data");
const secretFile = join(directory.path, "secret");
const certificate = join(directory.path, "ca.pem");
let provider: HostileProvider;

const admin = (...args: string[]) => runAdmin(data, args);
const must = (...args: string[]) => adminJson(data, args);

beforeAll(async () => {
  provider = await startHostileProvider();
  writeFileSync(secretFile, "a secret of the client\n");
  writeFileSync(certificate, "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n");
  await must("org", "create", "acme", "--network", "10.77.0.0/16");
});
afterAll(async () => {
  await provider[Symbol.asyncDispose]();
  directory[Symbol.dispose]();
});

test("a provider is created, listed, changed and deleted, and its secret is never printed", async () => {
  const settings = ["--client-id", "agent", "--client-secret-file", secretFile, "--domain", "Example.org"];
  const roles = ["--role", "net=admins=acme:admin", "--role", "staff=acme:member", "--users", "create"];
  const made = await admin("oidc", "create", "Company", provider.issuer, ...settings, ...roles);
  expect([made.status, made.out]).toEqual([
    0,
    "Users can sign in with Company now. Register this redirect URI at the provider:\n  http://127.0.0.1:8420/api/session/oidc/1/callback/\n",
  ]);
  const listed = await must("oidc", "list");
  expect(listed).toMatchObject({
    providers: [
      {
        id: 1,
        issuer: provider.issuer,
        has_secret: true,
        domains: ["example.org"],
        creates_users: true,
        roles: [
          { group: "net=admins", organization: "acme", role: "admin" },
          { group: "staff", organization: "acme", role: "member" },
        ],
      },
    ],
  });
  const none = ["--domain", "", "--role", "", "--users", "link"];
  const changed = await must("oidc", "update", "Company", "--require-group", "vpn", ...none);
  expect(changed).toMatchObject({ domains: [], roles: [], required_groups: ["vpn"], creates_users: false });
  expect(JSON.stringify([made, listed, changed])).not.toContain("secret of the client");
  await must("oidc", "delete", "1");
  expect(await must("oidc", "list")).toEqual({ providers: [] });
});

test("a provider is created before it is registered there, for its redirect URI, and gets its client later", async () => {
  const made = await admin("oidc", "create", "Later", provider.issuer);
  expect([made.status, made.out]).toEqual([
    0,
    expect.stringMatching(
      /^Nobody can sign in with Later yet: .*\n {2}http:\S+\/api\/session\/oidc\/\d+\/callback\/\n$/,
    ),
  ]);
  const { out } = await admin("oidc", "list");
  expect(out).toContain("not registered yet");
  expect(await must("oidc", "update", "Later", "--client-id", "agent")).toMatchObject({ client_id: "agent" });
  await must("oidc", "delete", "Later");
});

test.each([
  [["--client-id", "a", "--role", "x"], "GROUP=ORG:member"],
  [["--client-id", "a", "--role", "x=acme:owner"], "GROUP=ORG:member"],
  [["--client-id", "a", "--node-group", "x=office"], "GROUP=ORG:NODE_GROUP"],
  [["--client-id", "a", "--node-group", "x=acme:user:id.1"], "reserved"],
  [["--client-id", "a", "--users", "all"], "--users must be one of link, create"],
  [["--client-id", "a", "--domain", "@"], "domain such as example.org"],
  [["--client-id", "a", "--role", "x=beta:member"], "no organization beta"],
])("wrong settings are refused: %p", async (settings, sentence) => {
  const { status, err } = await admin("oidc", "create", "Company", provider.issuer, ...settings);
  expect([status === 0, err]).toEqual([false, expect.stringContaining(sentence)]);
  expect(await must("oidc", "list")).toEqual({ providers: [] });
});

/** A value of each setting, as words of its flag and as the API answers it. */
const given: Record<keyof typeof providerSettings, (own: boolean) => [words: string[], value: unknown]> = {
  name: () => [["Other"], "Other"],
  client_id: () => [["client-2"], "client-2"],
  client_secret: () => [["s3cret"], undefined],
  scopes: () => [["openid groups"], "openid groups"],
  groups_claim: () => [["realm_access.roles"], "realm_access.roles"],
  domains: () => [
    ["example.org", "example.com"],
    ["example.org", "example.com"],
  ],
  required_groups: () => [["cn=vpn,ou=groups"], ["cn=vpn,ou=groups"]],
  tenant: () => [["hd=example.org"], "hd=example.org"],
  roles: (own) => [
    [own ? "cn=net=admin" : "cn=net=acme:admin"],
    [{ group: "cn=net", organization: "acme", role: "admin" }],
  ],
  node_groups: (own) => [
    [own ? "dev=a:b" : "dev=acme:a:b"],
    [{ group: "dev", organization: "acme", node_group: "a:b" }],
  ],
  creates_users: () => [["create"], true],
  trust: () => [[certificate], expect.stringContaining("BEGIN CERTIFICATE")],
};

test.each([
  ["the installation", [], providerSettings],
  ["an organization", ["--org", "acme"], organizationProviderSettings],
] as const)(
  "each setting of a provider of %s is changed by its flag, and its event has the page's words",
  async (_, scope, settings) => {
    const own = scope.length > 0;
    for (const domain of own ? ["example.org", "example.com"] : [])
      await must("domain", "vouch", "acme", domain);
    const { id } = Object(
      await must("oidc", "create", "Each", provider.issuer, "--client-id", "agent", ...scope),
    );
    for (const [field, setting] of Object.entries<Setting>(settings)) {
      const [words, value] = given[field as keyof typeof given](own);
      const flags = words.flatMap((word) => [`--${setting.flag}`, word]);
      const update = (more: readonly string[]) => must("oidc", "update", `${id}`, ...more, ...scope);
      const stored = Object(await update(flags));
      expect([field, stored[field]]).toEqual([field, value]);
      const log = Object(await must("events", ...(own ? ["acme"] : []), "--lines", "1"));
      const known = {
        names: new Map(),
        things: new Map(),
        words: new Map(),
        settings: { "provider.updated": organizationProviderSettings },
      };
      const changes = (log.events as AuditEvent[]).flatMap((event) => readableChanges(event, known));
      // The event names what is neither a name nor secret; roles and groups of the installation lose their organization there.
      const added = typeof value === "string" ? [value] : setting.whole === true && own ? words : undefined;
      if (added !== undefined && field !== "name")
        expect([field, changes]).toEqual([field, [expect.objectContaining({ field: setting.flag, added })]]);
      if (setting.whole !== true && setting.none === undefined) continue;
      expect(Object(await update([`--${setting.flag}`, ""]))[field]).toEqual(setting.initial);
    }
    await must("oidc", "delete", `${id}`, ...scope);
  },
);

test("a rule takes a group of a provider by its name there, and the list shows its word", async () => {
  const rule = ["rule", "create", "acme", "--protocol", "tcp", "--ports", "22", "--peer", "idp:On call"];
  const early = await admin(...rule);
  expect([early.status, early.err]).toEqual([
    1,
    expect.stringContaining("There is no provider of identities by which members sign in."),
  ]);
  await must("oidc", "create", "Directory", provider.issuer, "--client-id", "agent");
  const made = await must(...rule);
  expect(made).toMatchObject({ peer: { group: expect.stringMatching(/^idp:\d+\./) }, new_groups: [] });
  expect((await admin("rule", "list", "acme")).out).toMatch(/tcp +22 +idp:On call +any/);
  await must("oidc", "delete", "Directory");
  expect((await admin("rule", "list", "acme")).out).toMatch(/tcp +22 +idp:#\d+\.[0-9a-f]+ +any/);
});
