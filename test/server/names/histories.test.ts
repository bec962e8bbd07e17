// After random histories, with restarts of the control plane and of nodes in between, the names that each node has are
// those that are computed from the rows alone.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { expect, test } from "bun:test";
import { operator } from "../../../src/server/audit/record.ts";
import { createAlias, deleteAlias } from "../../../src/server/names/aliases.ts";
import { makeNames } from "../../../src/server/names/names-cache.ts";
import { publishLateNames } from "../../../src/server/names/publish.ts";
import { createRule, deleteRule } from "../../../src/server/policy/rules.ts";
import { listRules } from "../../../src/server/policy/stored-rules.ts";
import { AppError } from "../../../src/base/errors.ts";
import { selfGroup } from "../../../src/protocol/users-groups.ts";
import { NamesAnswer, type HostsFile } from "../../../src/protocol/names.ts";
import { applyNames } from "../../../src/node/contact/fetch-names.ts";
import * as v from "valibot";
import { expectedNames, noHosts, shownNames } from "../../support/names.ts";
import { registerNode } from "../../support/nodes.ts";
import { makeRandom } from "../../support/random.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";
import { untested } from "../../support/untested.ts";
import { nameAliases } from "../../../src/server/store/tables/nodes.ts";
import type { Organization } from "../../../src/api/organizations.ts";

/** No organization of this test has tests of its policy. */
const groups = ["web", "db", "ops"];
const words = ["alpha", "beta", "gamma", "delta", "10", "n-10", "db", "printer", "7up", "www"];

type World = {
  server: TestServer;
  org: Organization;
  admin: string;
  ids: number[];
  pick: <T>(from: readonly T[]) => T;
};

async function send({ server, admin }: World, method: string, path: string, body?: unknown) {
  const answer = await server.send(method, `/api/org/acme/${path}`, {
    token: admin,
    ...(body === undefined ? {} : { body }),
  });
  // Names and addresses that are taken, nodes that are revoked already: part of a history.
  if (answer.status >= 500) throw new Error(answer.text);
}

async function tolerant(work: Promise<unknown>): Promise<void> {
  await work.catch((error: unknown) => {
    if (!(error instanceof AppError) || error.code === "internal") throw error;
  });
}

function side({ pick, ids }: World) {
  return pick([{ any: true } as const, { group: pick(groups) }, { node: pick(ids) }]);
}

/** One random change. */
async function change(world: World, kind: number): Promise<void> {
  const { server, org, pick, ids } = world;
  const { services } = server.app;
  const node = `nodes/${pick(ids)}/`;
  if (kind < 3) return send(world, "PATCH", node, { name: pick(words) });
  if (kind < 5) return send(world, "PATCH", node, { groups: groups.filter(() => pick([true, false])) });
  if (kind < 6) return send(world, "PATCH", node, { ip_address: `10.77.0.${pick([20, 21, 22, 23, 24])}` });
  if (kind < 7) return send(world, "DELETE", node);
  if (kind < 9) return send(world, "POST", `${node}restore/`, {});
  if (kind < 10) {
    const peer = pick([side(world), { cidr: "10.77.0.20/31" }, { group: selfGroup }]);
    const rule = {
      direction: pick(["inbound", "outbound"] as const),
      protocol: pick(["tcp", "any"] as const),
    };
    const request = { ...rule, ports: pick(["any", "22-80", "443"]), peer, target: side(world) };
    return tolerant(createRule({ ...services, testing: untested }, org, request, operator));
  }
  if (kind < 12) {
    const rules = await listRules(server.db, org);
    return rules.length === 0
      ? undefined
      : deleteRule({ ...services, testing: untested }, org, pick(rules).id, operator);
  }
  if (kind < 14)
    return tolerant(createAlias(services, org, { name: pick(words), node: pick(ids) }, operator));
  if (kind < 15) {
    const aliases = await nameAliases.all(server.db, { orgId: org.id, deletedAt: null });
    return aliases.length === 0 ? undefined : deleteAlias(services, org, pick(aliases).id, operator);
  }
  if (kind < 17) {
    const owner = pick([null, "admin@example.org", "ada@example.org"]);
    return send(world, "POST", `${node}transfer/`, { owner });
  }
  // As an older release changes a node: without publishing it.
  await server.db.writeFor({ org: org.id }, (tx) =>
    tx.run("UPDATE nodes SET groups = $2 WHERE id = $1", [pick(ids), JSON.stringify([pick(groups)])]),
  );
  await publishLateNames(services);
}

test.each([1, 2, 3, 4])(
  "history %d",
  async (seed) => {
    await using server = await makeTestServer();
    const org = await server.organization("acme");
    const admin = await server.person("admin@example.org");
    await server.join(org, "admin@example.org", "admin");
    await server.person("ada@example.org");
    await server.join(org, "ada@example.org", "member");
    const random = makeRandom(seed);
    const pick = <T>(from: readonly T[]): T => {
      const found = from[Math.floor(random() * from.length)];
      if (found === undefined) throw new Error("nothing to pick from");
      return found;
    };
    const ids: number[] = [];
    for (let at = 1; at <= 8; at++) ids.push((await registerNode(server, org, `node-${at}`)).id);
    const world = { server, org, admin, ids, pick };
    const lists = new Map<number, HostsFile>(ids.map((id) => [id, noHosts]));
    let names = makeNames(server);
    const catchUp = async (id: number) => {
      for (let part = false; ; part = true) {
        const hosts = lists.get(id) ?? noHosts;
        const news = await names.news(org.id, id, { version: hosts.version, view: hosts.view, part });
        if (news === undefined) return;
        const answer: NamesAnswer = v.parse(NamesAnswer, news);
        lists.set(id, applyNames(hosts, answer));
        if (!answer.more) return;
      }
    };
    let compared = 0;
    for (let step = 0; step < 120; step++) {
      await change(world, Math.floor(random() * 18));
      // A restart: the new process knows nothing of what changed before.
      if (random() < 0.05) names = makeNames(server);
      // Another setting of the organization.
      if (random() < 0.03) {
        await server.db.writeFor({ org: org.id }, async (tx) => {
          await tx.run("UPDATE organizations SET names_to_all = 1 - names_to_all WHERE id = $1", [org.id]);
          await tx.notify("names", String(org.id));
        });
      }
      const id = pick(ids);
      // A node that lost its list asks for all of it.
      if (random() < 0.05) lists.set(id, noHosts);
      await catchUp(id);
      const expected = await expectedNames(server, org.id, id);
      // A revoked node gets no names any more: it keeps what it had.
      if (expected.length === 0) continue;
      compared++;
      expect([step, ...shownNames(lists.get(id) ?? noHosts)]).toEqual([step, ...expected]);
    }
    expect(compared).toBeGreaterThan(20);
  },
  120_000,
);
