// Random histories of nodes, names, rules and time. In all of them: a node gets what a fresh rendering would contain,
// each change of it has a new version, firewall_rules/test agrees with the rendered rules, and an ordinary token never
// assigns a name that other nodes still grant to its former node.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { X509Certificate } from "node:crypto";
import { expect, test } from "bun:test";
import * as v from "valibot";
import { RegisterAnswer } from "../../../src/protocol/registration.ts";
import { runDueUpkeep } from "../../../src/server/nodes/lifecycle/upkeep.ts";
import { makeViews } from "../../../src/server/config/organization-views.ts";
import { findNode, type NodeRecord } from "../../../src/server/store/nodes.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import {
  downloadOf,
  makeKeys,
  nodeOf,
  registrationToken,
  sendRegistration,
  type RegisteredNode,
} from "../../support/nodes.ts";
import { makeRandom } from "../../support/random.ts";
import { makeTestServer, onPostgres, type TestServer } from "../../support/server.ts";
import { renderConfig } from "../../support/config-source.ts";

const names = ["alpha", "beta", "gamma"];
const minute = 60_000;
const day = 86_400_000;

const EngineRule = v.looseObject({
  port: v.string(),
  proto: v.string(),
  host: v.optional(v.string()),
  group: v.optional(v.string()),
});
const Config = v.looseObject({
  pki: v.looseObject({ blocklist: v.array(v.string()) }),
  firewall: v.looseObject({ inbound: v.array(EngineRule) }),
});
type Config = v.InferOutput<typeof Config>;

/** The state of a machine: when its certificate expires, and the node of each name in its rules when it fetched them. */
type Machine = { node: RegisteredNode; until: number; meant: Map<string, number>; version: number };

type World = {
  server: TestServer;
  org: Organization;
  admin(): Promise<string>;
  machines: Machine[];
  /** Nodes whose current name came from an ordinary token. */
  ordinary: Map<number, string>;
  /** The last files of each node. */
  sent: Map<number, { version: number; config: string }>;
  pick<T>(from: readonly T[]): T | undefined;
};

const call = async (world: World, method: string, path: string, body?: unknown) =>
  world.server.send(method, `/api/org/${world.org.slug}/${path}`, { token: await world.admin(), body });

const nodesIn = async ({ server, org }: World, states: readonly string[]): Promise<NodeRecord[]> => {
  const rows = await server.db.all("SELECT id, state FROM nodes WHERE org_id = $1 ORDER BY id", [org.id]);
  const wanted = rows.filter((row) => states.includes(String(row["state"])));
  return Promise.all(wanted.map((row) => findNode(server.db, org.id, Number(row["id"]))));
};

async function registerAs(
  world: World,
  fields: Record<string, unknown>,
  token?: string,
): Promise<number | undefined> {
  const { server, org, machines } = world;
  const keys = await makeKeys();
  const answer = await sendRegistration(
    server,
    org.slug,
    { ...keys, ...fields },
    token === undefined ? {} : { token },
  );
  expect([201, 409]).toContain(answer.status);
  if (answer.status !== 201) return undefined;
  const node = nodeOf(server, org, keys, v.parse(RegisterAnswer, answer.json));
  const machine = { node, until: 0, meant: new Map<string, number>(), version: 0 };
  machines.push(machine);
  await fetchConfig(world, machine);
  return node.id;
}

async function fetchConfig({ server, org }: World, machine: Machine): Promise<void> {
  const answer = await machine.node.download();
  if (answer.status !== 200) return;
  const { files, config_version, node } = downloadOf(answer);
  const hosts = v
    .parse(Config, Bun.YAML.parse(files["config.yml"]))
    .firewall.inbound.flatMap(({ host }) => host ?? []);
  const rows = await server.db.all("SELECT id, name FROM nodes WHERE org_id = $1 AND state = 'active'", [
    org.id,
  ]);
  const ids = new Map(rows.map((row) => [String(row["name"]), Number(row["id"])]));
  machine.meant = new Map(hosts.filter((host) => host !== "any").map((host) => [host, ids.get(host) ?? 0]));
  machine.until = Date.parse(node.certificate?.not_after ?? "");
  machine.version = config_version;
}

async function makeRule(world: World, node: { id: number } | undefined): Promise<void> {
  const peer = node === undefined ? { group: "staff" } : { node: node.id };
  const body = { direction: "inbound", protocol: "tcp", ports: "443", peer, target: { any: true } };
  expect((await call(world, "POST", "firewall_rules/", body)).status).toBe(201);
}

type Step = (world: World) => Promise<unknown>;

const steps: Record<string, Step> = {
  async ordinary(world) {
    const name = world.pick(names) ?? "";
    // Some machines request no node.crt: then the name waits for confirmations only.
    const wishes = world.pick([{}, { node_csr: undefined }]);
    const registration_token = await registrationToken(world.server, world.org);
    const id = await registerAs(world, { name, registration_token, ...wishes });
    if (id === undefined) return;
    world.ordinary.set(id, name);
    await checkNodeCertificates(world, id, name);
  },
  administrator: async (world) =>
    registerAs(world, { name: world.pick(names), is_relay: true }, await world.admin()),
  async bound(world) {
    const node_name = world.pick(names);
    const pending = await nodesIn(world, ["active"]);
    if (pending.some(({ name }) => name === node_name)) return;
    const registration_token = await registrationToken(world.server, world.org, { node_name });
    await registerAs(world, { name: "other", registration_token });
  },
  pending: (world) => call(world, "POST", "nodes/", { name: world.pick(names) }),
  async remove(world) {
    const node = world.pick(await nodesIn(world, ["pending", "active"]));
    if (node !== undefined) expect((await call(world, "DELETE", `nodes/${node.id}/`)).status).toBe(204);
  },
  async rename(world) {
    const node = world.pick(await nodesIn(world, ["pending", "active"]));
    const name = world.pick([...names, "delta"]) ?? "";
    if (node === undefined || node.name === name) return;
    if ((await call(world, "PATCH", `nodes/${node.id}/`, { name })).status === 200)
      world.ordinary.delete(node.id);
  },
  async change(world) {
    const node = world.pick(await nodesIn(world, ["pending", "active"]));
    const bodies = [{ is_relay: true }, { is_relay: false }, { groups: ["staff"] }, { groups: [] }];
    if (node !== undefined) await call(world, "PATCH", `nodes/${node.id}/`, world.pick(bodies));
  },
  async restore(world) {
    const node = world.pick(await nodesIn(world, ["revoked"]));
    if (node === undefined) return;
    const answer = await call(world, "POST", `nodes/${node.id}/restore/`, {});
    if (answer.status === 200) world.ordinary.delete(node.id);
  },
  async rule(world) {
    const node = world.pick(await nodesIn(world, ["pending", "active"]));
    await makeRule(world, node);
  },
  /** Creates a rule about a node before its machine registers. */
  async planned(world) {
    const answer = await call(world, "POST", "nodes/", { name: world.pick(names) });
    if (answer.status !== 201) return;
    const { id } = v.parse(v.looseObject({ id: v.number() }), answer.json);
    await makeRule(world, { id });
    await check(world);
    if (world.pick([true, false]) === true) return;
    const registration_token = await registrationToken(world.server, world.org, { node_id: id });
    await registerAs(world, { name: "other", registration_token });
  },
  /** Deletes a node in a rule after its certificate has expired. */
  async away(world) {
    const node = world.pick(await nodesIn(world, ["active"]));
    const machine = world.pick(world.machines);
    if (node === undefined || machine === undefined) return;
    await makeRule(world, node);
    await fetchConfig(world, machine);
    world.server.clock.ms += 95 * day;
    await call(world, "DELETE", `nodes/${node.id}/`);
    await fetchConfig(world, machine);
  },
  async forget(world) {
    const rows = await world.server.db.all(
      "SELECT id FROM firewall_rules WHERE org_id = $1 AND ports = '443'",
      [world.org.id],
    );
    const row = world.pick(rows);
    if (row !== undefined) await call(world, "DELETE", `firewall_rules/${Number(row["id"])}/`);
  },
  async fetch(world) {
    const machine = world.pick(world.machines);
    if (machine !== undefined) await fetchConfig(world, machine);
  },
  async confirm(world) {
    const machine = world.pick(world.machines);
    if (machine === undefined) return;
    const { version } = machine;
    await machine.node.checkin({ config_version: version, confirmed_config_version: version });
  },
  async everybody(world) {
    for (const machine of world.machines) {
      await fetchConfig(world, machine);
      const { version } = machine;
      await machine.node.checkin({ config_version: version, confirmed_config_version: version });
    }
  },
  async wait({ server, pick }) {
    server.clock.ms += pick([minute, 11 * minute, 4 * day, 8 * day, 95 * day]) ?? 0;
    await runDueUpkeep(server.app.services);
  },
};

/** Whether no other node has a valid node.crt of this name. */
async function checkNodeCertificates({ server, org }: World, id: number, name: string): Promise<void> {
  const rows = await server.db.all(
    "SELECT pem FROM certificates WHERE org_id = $1 AND node_id <> $2 AND kind = 'x509' AND not_after > $3",
    [org.id, id, server.clock.ms],
  );
  const subjects = rows.map((row) => new X509Certificate(String(row["pem"])).subject);
  expect(subjects.filter((subject) => subject.split("\n").includes(`CN=${name}`))).toEqual([]);
}

async function check(world: World): Promise<void> {
  const all = await nodesIn(world, ["active"]);
  const away = await world.server.db.all(
    `SELECT node_id FROM certificates WHERE org_id = $1 AND kind = 'overlay' AND state = 'current' AND not_after <= $2`,
    [world.org.id, world.server.clock.ms],
  );
  // Reading the configuration of an offline node would renew its certificate.
  const ended = new Set(away.map((row) => Number(row["node_id"])));
  const active = all.filter(({ id }) => !ended.has(id));
  const configs = new Map<number, Config>();
  for (const node of active) configs.set(node.id, await checkRendered(world, node));
  const named = [...configs.values()].flatMap(({ firewall }) =>
    firewall.inbound.flatMap(({ host }) => host ?? []),
  );
  const known = ["any", ...all.map(({ name }) => name)];
  expect(named.filter((name) => !known.includes(name))).toEqual([]);
  for (const to of active) {
    for (const from of active) {
      if (from.id !== to.id) await checkVerdict(world, from, to, configs.get(to.id));
    }
  }
  for (const { node, until, meant } of world.machines) {
    if (until <= world.server.clock.ms || !configs.has(node.id)) continue;
    for (const [name, id] of meant) {
      const rival = active.find((each) => each.name === name && world.ordinary.get(each.id) === name);
      const taken = rival !== undefined && rival.id !== id;
      expect(`${node.name} takes ${name} for another: ${taken}`).toBe(
        `${node.name} takes ${name} for another: false`,
      );
    }
  }
}

async function checkRendered(world: World, node: NodeRecord): Promise<Config> {
  const { server, org, sent } = world;
  const answer = await call(world, "GET", `nodes/${node.id}/config/`);
  const { config_version: version, config_yml: text } = v.parse(
    v.looseObject({ config_version: v.number(), config_yml: v.string() }),
    answer.json,
  );
  const view = await makeViews(server.app.services.system.now).of(server.db, org.id);
  const present = await findNode(server.db, org.id, node.id);
  const scratch = renderConfig(view.config, present).text;
  const ended = await server.db.all(
    "SELECT fingerprint FROM certificates WHERE org_id = $1 AND not_after <= $2",
    [org.id, server.clock.ms],
  );
  // An expired certificate may still be on a list, without effect.
  const dead = new Set(ended.map((row) => String(row["fingerprint"])));
  const read = (yaml: string) => {
    const config = v.parse(Config, Bun.YAML.parse(yaml));
    config.pki.blocklist = config.pki.blocklist.filter((print) => !dead.has(print));
    return config;
  };
  const config = read(text);
  expect(config).toEqual(read(scratch));
  const before = sent.get(node.id);
  const { pki: _, ...rest } = config;
  const said = JSON.stringify(rest);
  if (before !== undefined && before.config !== said) expect(version).toBeGreaterThan(before.version);
  sent.set(node.id, { version, config: said });
  return config;
}

async function checkVerdict(world: World, from: NodeRecord, to: NodeRecord, config: Config | undefined) {
  const isLetIn = config?.firewall.inbound.some(
    ({ proto, port, host, group }) =>
      proto === "tcp" &&
      port === "443" &&
      (host === "any" || host === from.name || (group !== undefined && from.groups.includes(group))),
  );
  const body = { from: from.id, to: to.id, protocol: "tcp", port: 443 };
  const answer = await call(world, "POST", "firewall_rules/test/", body);
  expect(answer.json).toMatchObject({ allowed: isLetIn === true });
}

async function makeWorld(seed: number, server: TestServer): Promise<World> {
  const random = makeRandom(seed);
  const org = await server.organization(`org-${seed}`);
  const email = `admin-${seed}@example.org`;
  await server.person(email);
  await server.join(org, email, "admin");
  const row = await server.db.get("SELECT id FROM users WHERE email = $1", [email]);
  return {
    server,
    org,
    // Signs in each time: a session expires within the simulated days.
    admin: async () => (await server.app.services.sessions.start(Number(row?.["id"]))).access,
    machines: [],
    ordinary: new Map(),
    sent: new Map(),
    pick: (from) => from[Math.floor(random() * from.length)],
  };
}

/** A quarter on PostgreSQL: they test decisions that are the same there, and each takes seconds. */
const histories = onPostgres ? 4 : 16;
const seeds = Array.from({ length: histories }, (_, at) => at + 1);

test.each(seeds)(
  "history %i: what is rendered, its version and the test of rules agree",
  async (seed) => {
    await using server = await makeTestServer();
    const world = await makeWorld(seed, server);
    const done: string[] = [];
    const often = ["ordinary", "ordinary", "ordinary", "remove", "rule", "rename", "fetch", "confirm"];
    const kinds = [...often, ...Object.keys(steps)];
    try {
      for (let step = 0; step < 45; step++) {
        const kind = world.pick(kinds) ?? "";
        done.push(kind);
        await steps[kind]?.(world);
        await check(world);
      }
    } catch (error) {
      throw new Error(`History ${seed}: ${done.join(" ")}`, { cause: error });
    }
  },
  120_000,
);
