// Policy as code over the API: an organization for each test, with its admin, the node web1, and db1 in the group db.

import { afterAll, beforeAll, beforeEach, expect } from "bun:test";
import * as v from "valibot";
import { ErrorBody } from "../../src/protocol/error-body.ts";
import { Plan, Policy } from "../../src/api/policy.ts";
import type { Organization } from "../../src/api/organizations.ts";
import { registerNode, registrationToken, type RegisteredNode } from "./nodes.ts";
import { makeTestServer, type Answer, type TestServer } from "./server.ts";

type Made = { server: TestServer; org: Organization; web: RegisteredNode; db: RegisteredNode };

export const Events = v.array(v.looseObject({ type: v.string(), after: v.any() }));

export const base = `# The network of acme.
groups:
  web:
    description: web servers
    members: [node:web1]
  db: {}
rules:
  - {direction: outbound, peer: any, target: any}
  - {protocol: icmp, peer: any, target: any}
  - protocol: tcp
    ports: 5432
    peer: group:web
    target: group:db
    description: the application
tests:
  - accept: {from: group:web, to: group:db, protocol: tcp, port: 5432}
  - deny: {from: group:db, to: group:web, protocol: tcp}
`;

/** Makes a server for the file and, before each test, another organization. */
export function usePolicyFiles(take: (made: Made) => void) {
  let server: TestServer;
  let admin: string;
  let count = 0;
  let slug = "";
  beforeAll(async () => {
    server = await makeTestServer({ accessLifetimeS: 1_000_000 });
    admin = await server.person("admin@example.org");
  });
  beforeEach(async () => {
    count++;
    const org = await server.organization(`acme-${count}`, `10.${count}.0.0/16`);
    ({ slug } = org);
    await server.join(org, "admin@example.org", "admin");
    const web = await registerNode(server, org, "web1");
    const registration_token = await registrationToken(server, org, { groups: ["db"] });
    take({ server, org, web, db: await registerNode(server, org, "db1", { registration_token }) });
  });
  afterAll(() => server[Symbol.asyncDispose]());

  const api = (method: string, path: string, body?: unknown): Promise<Answer> =>
    server.send(method, `/api/org/${slug}/${path}`, {
      token: admin,
      ...(body === undefined ? {} : { body }),
    });
  const good = async <T>(schema: v.GenericSchema<unknown, T>, answer: Promise<Answer>): Promise<T> => {
    const { status, text, json } = await answer;
    expect(`${status} ${status === 200 ? "" : text}`).toBe("200 ");
    return v.parse(schema, json);
  };
  const apply = (policy: string, more: object = {}) =>
    api("POST", "policy/apply/", { policy, prune: true, ...more });
  return {
    api,
    good,
    apply,
    /** The same, which must succeed. */
    applied: (policy: string, more: object = {}) => good(Plan, apply(policy, more)),
    show: () => good(Policy, api("GET", "policy/")),
    plan: (policy: string, prune = true, more: object = {}) =>
      good(Plan, api("POST", "policy/plan/", { policy, prune, ...more })),
    failure: async (answer: Promise<Answer>) => {
      const { json } = await answer;
      const { code, detail, errors } = v.parse(v.looseObject(ErrorBody.entries), json);
      return { code, detail, errors };
    },
    events: async (type: string) =>
      v.parse(Events, (await api("GET", "events/?limit=500")).json).filter((event) => event.type === type),
  };
}
