// Groups named like users and groups of sign-in providers are refused when they are new, on every way that creates groups.
// Those of earlier versions keep working.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { expect, test } from "bun:test";
import { atOnce } from "../../../src/server/http/heavy-work.ts";
import { importPolicy } from "../../../src/server/policy-files/import-policy.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { codeOf, registerNode, registrationToken } from "../../support/nodes.ts";
import { useNumbered } from "../../support/numbered.ts";
import type { TestServer } from "../../support/server.ts";

let server: TestServer;
let org: Organization;
let admin = "";
useNumbered((made) => ({ server, org, admin } = made));

const send = (method: string, path: string, body: object) =>
  server.send(method, `/api/org/${org.slug}/${path}`, { token: admin, body });
const rule = (group: string) => ({
  direction: "inbound",
  protocol: "tcp",
  ports: "22",
  peer: { group },
  target: { any: true },
});
const file = (group: string) => ({ policy: `groups:\n  "${group}": {}\n` });

test.each(["user:7", "idp:staff", "autogroup:member", "User:7"])(
  "a new group %s is refused",
  async (name) => {
    const { id } = await registerNode(server, org, "web");
    const answers = [
      await send("POST", "groups/", { name }),
      await send("POST", "registration_tokens/", { groups: [name] }),
      await send("POST", "nodes/", { name: "planned", groups: [name] }),
      await send("PATCH", `nodes/${id}/`, { groups: [name] }),
      await send("POST", "firewall_rules/", rule(name)),
      await send("POST", "policy/plan/", file(name)),
      await send("POST", "policy/apply/", file(name)),
    ];
    for (const answer of answers) {
      expect(codeOf(answer)).toEqual([400, "validation_failed"]);
      expect(answer.text).toContain("are reserved");
    }
    expect(await server.db.all("SELECT name FROM node_groups WHERE org_id = $1", [org.id])).toEqual([]);
  },
);

test("a group of an earlier version keeps working", async () => {
  const name = "user:old";
  await server.db.write((tx) =>
    tx.run("INSERT INTO node_groups (org_id, name, created_at) VALUES ($1, $2, 1)", [org.id, name]),
  );
  const registration_token = await registrationToken(server, org, { groups: [name] });
  const { id } = await registerNode(server, org, "web", { registration_token });
  expect((await send("PATCH", `nodes/${id}/`, { groups: [name, "web"] })).status).toBe(200);
  expect((await send("POST", "firewall_rules/", rule(name))).status).toBe(201);
  const listed = await server.send("GET", `/api/org/${org.slug}/groups/`, { token: admin });
  expect(listed.text).toContain(name);
});

test("an imported policy gives such a group another name", () => {
  const text =
    '{"groups": {"group:user:dev": []}, "acls": [{"action": "accept", "src": ["group:user:dev"], "dst": ["*:*"]}]}';
  const { policy } = atOnce(importPolicy(text));
  expect(policy).toContain("user-dev");
  expect(policy).not.toContain("user:dev");
});
