// An unconfirmed policy goes back in any case: what machines made impossible meanwhile is left out.

import { afterEach, beforeEach, expect, test } from "bun:test";
import * as v from "valibot";
import { Policy } from "../../../src/server/policy-files/answers.ts";
import { revertUnconfirmed } from "../../../src/server/policy-files/upkeep.ts";
import type { Organization } from "../../../src/server/policy/organizations.ts";
import { makeKeys, registerNode, registrationToken, sendRegistration } from "../../support/nodes.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";

let server: TestServer;
let org: Organization;
let admin: string;

beforeEach(async () => {
  server = await makeTestServer({ accessLifetimeS: 1_000_000 });
  admin = await server.person("admin@example.org");
  org = await server.organization("acme");
  await server.join(org, "admin@example.org", "admin");
});
afterEach(() => server[Symbol.asyncDispose]());

const api = (method: string, path: string, body?: object) =>
  server.send(method, `/api/org/acme/${path}`, { token: admin, ...(body === undefined ? {} : { body }) });
const apply = async (policy: string, more: object = {}) => {
  const { status, text } = await api("POST", "policy/apply/", { policy, prune: true, ...more });
  expect([status, text]).toEqual([200, text]);
};
const stateNow = async () => v.parse(Policy, (await api("GET", "policy/")).json);

const rules = (target: string) => `rules:
  - {direction: outbound, peer: any, target: any}
  - {protocol: tcp, ports: 22, peer: any, target: "${target}"}
`;
const before = `${rules("node:web1")}routes:
  - {network: 192.168.5.0/24, via: node:db1}
  - {network: 192.168.6.0/24, via: node:db1}
  - {network: 192.168.7.0/24, via: node:db1}
relays: [node:web1, node:db1]
aliases:
  - {name: wiki, node: node:web1}
  - {name: printer, node: node:db1, address: 192.168.5.20}
  - {name: camera, node: node:db1, address: 192.168.6.20}
`;

test("rules go back also when aliases, routes and relays of before are not possible any more", async () => {
  const web = await registerNode(server, org, "web1");
  await registerNode(server, org, "db1");
  await apply(before);
  await apply(`${rules("any")}routes: []\nrelays: []\naliases: []\n`, { confirm: 600 });
  // Who may register machines, or change their addresses, needs no right to the policy.
  const wiki = { name: "wiki", ...(await makeKeys("wiki")) };
  expect((await sendRegistration(server, "acme", wiki, { token: admin })).status).toBe(201);
  const registration_token = await registrationToken(server, org, { is_lighthouse: true });
  const lighthouse = { is_lighthouse: true, public_ip: "192.168.5.7", registration_token };
  await registerNode(server, org, "hub", lighthouse);
  expect((await api("PATCH", `nodes/${web.id}/`, { public_ip: "192.168.7.9" })).status).toBe(200);
  server.clock.ms += 600_000;
  await revertUnconfirmed(server.app.services);

  const { unconfirmed, policy } = await stateNow();
  expect(unconfirmed).toBeNull();
  const found = v.parse(
    v.looseObject({ rules: v.array(v.looseObject({ target: v.string() })) }),
    Bun.YAML.parse(policy),
  );
  expect(found.rules.map(({ target }) => target)).toEqual(["any", "node:web1"]);
  expect(found).toMatchObject({
    routes: [
      { network: "192.168.6.0/24", via: "node:db1" },
      { network: "192.168.7.0/24", via: "node:db1" },
    ],
    relays: ["node:db1", "node:hub"],
  });
  const aliases = (await api("GET", "names/")).json;
  expect(aliases).toMatchObject([
    { name: "wiki", node: web.id, is_shadowed: true },
    { name: "camera", is_shadowed: false },
  ]);
  const reverted = v
    .parse(
      v.array(v.looseObject({ type: v.string(), after: v.any() })),
      (await api("GET", "events/?limit=500")).json,
    )
    .find(({ type }) => type === "policy.reverted");
  expect(reverted?.after).toMatchObject({
    left_out: [
      expect.stringContaining("192.168.5.7"),
      expect.stringContaining("192.168.7.9"),
      expect.stringContaining("192.168.5.20"),
    ],
  });
});
