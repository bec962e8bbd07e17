// `agent admin domain …` and `agent admin oidc … --org` on the data of this machine.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { adminJson, runAdmin } from "../support/admin.ts";
import { startHostileProvider, type HostileProvider } from "../support/hostile-provider.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const directory = temporaryDirectory();
const data = join(directory.path, "data");
let provider: HostileProvider;

const admin = (...args: string[]) => runAdmin(data, args);
const must = (...args: string[]) => adminJson(data, args);

beforeAll(async () => {
  provider = await startHostileProvider();
  await must("org", "create", "acme", "--network", "10.77.0.0/16");
});
afterAll(async () => {
  await provider[Symbol.asyncDispose]();
  directory[Symbol.dispose]();
});

test("a domain is claimed, not found in DNS, vouched for, listed and given up", async () => {
  const made = await admin("domain", "create", "acme", "Domain.Invalid");
  expect([made.status, made.out]).toEqual([
    0,
    expect.stringMatching(
      /^Publish this TXT record, then run `agent admin domain check acme domain\.invalid`:\n {2}_overlay-agent\.domain\.invalid {2}overlay-agent-domain=[\w-]{43}\n$/,
    ),
  ]);
  const missing = await admin("domain", "check", "acme", "domain.invalid");
  expect([missing.status, missing.err]).toEqual([1, expect.stringContaining("admin domain list")]);
  expect(await must("domain", "vouch", "acme", "domain.invalid")).toMatchObject({ verified_by: "staff" });
  expect(await must("domain", "list", "acme")).toMatchObject({ domains: [{ domain: "domain.invalid" }] });
  await must("domain", "delete", "acme", "domain.invalid");
  expect(await must("domain", "list", "acme")).toEqual({ domains: [] });
  const wrong = await admin("domain", "create", "acme", "@");
  expect([wrong.status === 0, wrong.err]).toEqual([
    false,
    expect.stringContaining("domain such as example.org"),
  ]);
});

test("a plan of a change changes nothing", async () => {
  const plan = await admin("domain", "vouch", "acme", "example.org", "--dry-run");
  expect([plan.status, plan.out]).toEqual([0, expect.stringContaining("control.db")]);
  expect(await must("domain", "list", "acme")).toEqual({ domains: [] });
});

test("a provider of an organization is apart from those of the installation", async () => {
  const own = ["--org", "acme", "--client-id", "agent"];
  const given = ["--role", "net=admins=admin", "--node-group", "staff=office"];
  const made = await must("oidc", "create", "Company", provider.issuer, ...own, ...given);
  expect(made).toMatchObject({
    organization: "acme",
    roles: [{ group: "net=admins", organization: "acme", role: "admin" }],
    node_groups: [{ group: "staff", organization: "acme", node_group: "office" }],
  });
  expect(await must("oidc", "list")).toEqual({ providers: [] });
  expect(await must("oidc", "list", "--org", "acme")).toMatchObject({ providers: [{ name: "Company" }] });
  expect(await must("oidc", "update", "Company", "--org", "acme", "--users", "create")).toMatchObject({
    creates_users: true,
  });
  const foreign = ["--org", "acme", "--client-id", "agent", "--role", "x=beta:member"];
  const { status, err } = await admin("oidc", "create", "Other", provider.issuer, ...foreign);
  expect([status === 0, err]).toEqual([false, expect.stringContaining("GROUP=member")]);
  await must("oidc", "delete", "Company", "--org", "acme");
  expect(await must("oidc", "list", "--org", "acme")).toEqual({ providers: [] });
});
