// What `agent admin restore --replace` does with the ways in which users sign in, and with what an organization
// demands of them.

import { Database as Sqlite } from "bun:sqlite";
import { expect, test } from "bun:test";
import { join } from "node:path";
import { realSystem } from "../../../src/base/system.ts";
import { sealSecret } from "../../../src/pki/secrets.ts";
import { openSecretKeys } from "../../../src/server/store/secret-keys.ts";
import { totpContext } from "../../../src/server/users/factors/second-factor.ts";
import { must, place, populate, stop, useControlPlane } from "../../support/restoring.ts";

useControlPlane();

/** Changes or reads a database that no server uses. */
function sql(text: string, ...values: (string | number | null)[]): unknown[] {
  using sqlite = new Sqlite(join(place.data, "control.db"));
  return sqlite.query(text).all(...values);
}
const idOf = (email: string) => {
  const [row] = sql("SELECT id FROM users WHERE email = ?", email);
  return Number(Object(row)["id"]);
};

function addPasskey(user: number, name: string): void {
  sql(
    `INSERT INTO passkeys (user_id, credential_id, public_key, counter, transports, name, rp_id, created_at)
     VALUES (?, ?, '', 0, '', ?, 'localhost', 1)`,
    user,
    name,
    name,
  );
}

function setApp(user: number, secret: string): void {
  const keys = openSecretKeys({ dataDirectory: place.data, isUsed: true }, realSystem());
  sql("DELETE FROM totp_secrets WHERE user_id = ?", user);
  sql(
    "INSERT INTO totp_secrets (user_id, secret_sealed, confirmed_at, created_at) VALUES (?, ?, 1, 1)",
    user,
    sealSecret(keys, secret, totpContext(user)),
  );
}

test("second factors are those of before the restore: a removed passkey and a used code do not count again", async () => {
  await populate();
  await stop();
  const [ada, bob] = [idOf("ada@example.org"), idOf("bob@example.org")];
  for (const name of ["stolen", "kept"]) addPasskey(ada, name);
  addPasskey(bob, "given away");
  setApp(ada, "former");
  for (const code of ["used", "left"])
    sql("INSERT INTO recovery_codes (user_id, code_hash) VALUES (?, ?)", ada, code);
  await must(`backup ${place.backup}`);
  sql("DELETE FROM passkeys WHERE name IN ('stolen', 'given away')");
  addPasskey(ada, "given away");
  setApp(ada, "present");
  const apps = sql("SELECT secret_sealed FROM totp_secrets");
  sql("UPDATE recovery_codes SET used_at = 2 WHERE code_hash = 'used'");
  await must(`restore ${place.backup} --replace`);
  expect(sql("SELECT user_id, name FROM passkeys ORDER BY name")).toEqual([
    { user_id: ada, name: "given away" },
    { user_id: ada, name: "kept" },
  ]);
  expect(sql("SELECT secret_sealed FROM totp_secrets")).toEqual(apps);
  expect(sql("SELECT code_hash, used_at FROM recovery_codes ORDER BY 1")).toEqual([
    { code_hash: "left", used_at: null },
    { code_hash: "used", used_at: 2 },
  ]);
}, 120_000);

test("an identity that was unlinked does not come back, nor do the groups that it gave, and renamed users stay disabled", async () => {
  await populate();
  await stop();
  const ada = idOf("ada@example.org");
  sql(
    `INSERT INTO identity_providers (id, name, issuer, client_id, secret_sealed, scopes, groups_claim, domains,
       required_groups, roles, created_at) VALUES (1, 'P', 'https://p.example', 'agent', '', 'openid', 'groups', '[]', '[]', '[]', 1)`,
  );
  sql(
    `INSERT INTO provider_groups (org_id, provider_id, name, people, created_at) VALUES (1, 1, 'eng', 'idp:1.eng', 1)`,
  );
  const identity = `INSERT INTO identities (user_id, provider_id, issuer, subject, groups, created_at)
    VALUES (?, 1, 'https://p.example', ?, '["eng"]', 1)`;
  for (const subject of ["gone", "kept"]) sql(identity, ada, subject);
  sql("INSERT INTO users (email, password_hash, bound_org_id, created_at) VALUES ('x@acme;9', '', 1, 9)");
  sql(`UPDATE nodes SET owner_id = ?, owner_groups = '["idp:1.eng"]' WHERE name = 'a'`, ada);
  await must(`backup ${place.backup}`);
  sql("UPDATE nodes SET owner_groups = '[]'");
  sql("DELETE FROM identities WHERE subject = 'gone'");
  sql("UPDATE identities SET groups = '[]'");
  sql("UPDATE identity_providers SET groups_claim = 'roles'");
  sql("UPDATE users SET email = 'y@acme;9', is_active = 0 WHERE email = 'x@acme;9'");
  await must(`restore ${place.backup} --replace`);
  expect(sql("SELECT subject, groups FROM identities")).toEqual([{ subject: "kept", groups: "[]" }]);
  expect(sql("SELECT groups_claim FROM identity_providers")).toEqual([{ groups_claim: "roles" }]);
  expect(sql("SELECT owner_groups FROM nodes WHERE name = 'a'")).toEqual([{ owner_groups: "[]" }]);
  expect(sql("SELECT is_active FROM users WHERE created_at = 9")).toEqual([{ is_active: 0 }]);
}, 120_000);

test("what an organization demanded last stays, and a webhook keeps its newest form", async () => {
  await populate();
  await stop();
  sql(
    `INSERT INTO webhooks (org_id, url, events, secret_sealed, created_at) VALUES (1, 'https://9.9.9.9/', '["*"]', ?, 1)`,
    sealSecret(
      openSecretKeys({ dataDirectory: place.data, isUsed: true }, realSystem()),
      "whsec_",
      "webhook 1",
    ),
  );
  sql("UPDATE organizations SET names_to_all = 1, flows = 1");
  await must(`backup ${place.backup}`);
  sql(`UPDATE organizations SET second_factor = 1, device_codes = 0, self_enrollment = 'off', node_approval = 'all',
    revoke_leaver_nodes = 1, reauthenticate_days = 30, reauthenticate_from = 7, names_to_all = 0, flows = 0`);
  sql("INSERT INTO meta (key, value) VALUES ('staff_second_factor', '1')");
  sql("UPDATE webhooks SET url = 'mailto:ops@example.org', format = 'mail', events = '[\"alarm.*\"]'");
  await must(`restore ${place.backup} --replace`);
  const demanded = `SELECT second_factor, device_codes, self_enrollment, node_approval, revoke_leaver_nodes,
    reauthenticate_days, reauthenticate_from, names_to_all, flows FROM organizations`;
  expect(sql(demanded)).toEqual([
    {
      second_factor: 1,
      device_codes: 0,
      self_enrollment: "off",
      node_approval: "all",
      revoke_leaver_nodes: 1,
      reauthenticate_days: 30,
      reauthenticate_from: 7,
      names_to_all: 0,
      flows: 0,
    },
  ]);
  expect(sql("SELECT value FROM meta WHERE key = 'staff_second_factor'")).toEqual([{ value: "1" }]);
  expect(sql("SELECT url, format, events FROM webhooks")).toEqual([
    { url: "mailto:ops@example.org", format: "mail", events: '["alarm.*"]' },
  ]);
}, 120_000);
