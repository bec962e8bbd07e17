// Aliases: who gets a name, and what a list shows.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { expect, test } from "bun:test";
import * as v from "valibot";
import { maxAliases } from "../../../src/api/names.ts";
import { Alias } from "../../../src/api/names.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { fetchNames } from "../../support/names.ts";
import { RegisterAnswer } from "../../../src/protocol/registration.ts";
import { signInBrowser } from "../../support/browser-session.ts";
import { codeOf, makeKeys, registerNode, registrationToken, sendRegistration } from "../../support/nodes.ts";
import { useNumbered } from "../../support/numbered.ts";
import { numberedEmail } from "../../support/people.ts";
import type { TestServer } from "../../support/server.ts";

let server: TestServer;
let org: Organization;
let admin = "";
let email = "";
const { call } = useNumbered((made) => {
  ({ server, org, admin } = made);
  email = numberedEmail(made.count);
});

const create = (body: unknown) => call("POST", "names/", body);
const list = async () => v.parse(v.array(Alias), (await call("GET", "names/")).json);

/** An administrator may give a machine the name of an alias. */
async function byAdministrator(name: string): Promise<{ id: number }> {
  const answer = await sendRegistration(
    server,
    org.slug,
    { name, ...(await makeKeys(name)) },
    { token: admin },
  );
  return v.parse(RegisterAnswer, answer.json).node;
}

test("an alias never takes the name of a node, also of one that is not registered yet, or its stated form", async () => {
  const beta = await registerNode(server, org, "beta");
  await registerNode(server, org, "10");
  await call("POST", "nodes/", { name: "planned" });
  for (const name of ["beta", "planned", "n-10"]) {
    expect([name, ...codeOf(await create({ name, node: beta.id }))]).toEqual([name, 409, "name_taken"]);
  }
});

test("the search for nodes finds them by an alias, until it is deleted", async () => {
  const [beta] = [await registerNode(server, org, "beta"), await registerNode(server, org, "gamma")];
  const { id } = v.parse(Alias, (await create({ name: "intranet", node: beta.id })).json);
  const found = async () => (await call("GET", "nodes/?search=trane")).json;
  expect(await found()).toMatchObject([{ name: "beta" }]);
  await call("DELETE", `names/${id}/`);
  expect(await found()).toEqual([]);
});

test("two aliases cannot have one name, until the first is deleted", async () => {
  const beta = await registerNode(server, org, "beta");
  const first = await create({ name: "db", node: beta.id });
  expect(first.status).toBe(201);
  expect(codeOf(await create({ name: "db", node: beta.id }))).toEqual([409, "name_taken"]);
  expect((await call("DELETE", `names/${v.parse(Alias, first.json).id}/`)).status).toBe(204);
  expect((await create({ name: "db", node: beta.id })).status).toBe(201);
});

test.each([["10"], ["Db"], ["db.corp"], ["-db"], [""], ["a".repeat(64)], ["any"], ["data base"]])(
  "%p is no alias",
  async (name) => {
    const beta = await registerNode(server, org, "beta");
    expect(codeOf(await create({ name, node: beta.id }))).toEqual([400, "validation_failed"]);
  },
);

test("an alias names an address only within a subnet of its node", async () => {
  const gateway = await registerNode(server, org, "gateway");
  await call("PATCH", `nodes/${gateway.id}/`, { subnets: ["192.168.1.0/24"] });
  for (const address of ["192.168.2.1", "10.77.0.1", "192.168.1", "192.168.1.0/24", "localhost", "::1"]) {
    const refused = await create({ name: "printer", node: gateway.id, address });
    expect([address, ...codeOf(refused)]).toEqual([address, 400, "validation_failed"]);
  }
  expect((await create({ name: "printer", node: gateway.id, address: "192.168.1.9" })).status).toBe(201);
  const { hosts } = await fetchNames(gateway);
  expect(hosts.aliases).toMatchObject([{ name: "printer", node_id: gateway.id, address: "192.168.1.9" }]);
});

test("an alias needs a node of the organization that is not revoked", async () => {
  const beta = await registerNode(server, org, "beta");
  await call("DELETE", `nodes/${beta.id}/`);
  for (const node of [beta.id, 999_999])
    expect(codeOf(await create({ name: "db", node }))).toEqual([400, "validation_failed"]);
});

test("an alias gives way to a node that gets its name, and returns with the node's end", async () => {
  const alpha = await registerNode(server, org, "alpha");
  await create({ name: "db", node: alpha.id });
  const first = await fetchNames(alpha);
  expect(first.hosts.aliases).toMatchObject([{ name: "db" }]);
  const db = await byAdministrator("db");
  expect(await list()).toMatchObject([{ name: "db", is_shadowed: true }]);
  const second = await fetchNames(alpha, first.hosts);
  expect(second.hosts).toMatchObject({ nodes: [{ name: "alpha" }, { name: "db" }], aliases: [] });
  await call("PATCH", `nodes/${db.id}/`, { name: "database" });
  expect(await list()).toMatchObject([{ name: "db", is_shadowed: false }]);
  expect((await fetchNames(alpha, second.hosts)).hosts.aliases).toMatchObject([{ name: "db" }]);
});

test("a machine that no administrator registers takes no alias, whichever way it joins", async () => {
  const alpha = await registerNode(server, org, "alpha");
  for (const name of ["db", "n-10"]) await create({ name, node: alpha.id });
  const registration_token = await registrationToken(server, org);
  for (const name of ["db", "10"]) {
    const keys = await makeKeys(name);
    const refused = await sendRegistration(server, org.slug, { name, ...keys, registration_token });
    expect([name, ...codeOf(refused)]).toEqual([name, 409, "name_taken"]);
  }
  await call("PATCH", "", { self_enrollment: "members" });
  const browser = await signInBrowser(server, email);
  const { host_public_key } = await makeKeys("db");
  const body = { name: "db", system: "ios", host_public_key };
  const phone = await browser.send("POST", `/api/org/${org.slug}/phones/`, { body });
  expect(codeOf(phone)).toEqual([409, "name_taken"]);
  expect(await list()).toMatchObject([{ is_shadowed: false }, { is_shadowed: false }]);
});

test("an organization has a maximum of aliases", async () => {
  const beta = await registerNode(server, org, "beta");
  const numbers = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${maxAliases})`;
  await server.db.writeFor({ org: org.id }, (tx) =>
    tx.run(
      `INSERT INTO name_aliases (org_id, name, node_id, names_version, created_at)
       ${numbers} SELECT CAST($1 AS INTEGER), 'alias-' || i, CAST($2 AS INTEGER), 1, 0 FROM n`,
      [org.id, beta.id],
    ),
  );
  expect(codeOf(await create({ name: "db", node: beta.id }))).toEqual([409, "conflict"]);
});
