// Seals in observe mode: a real control plane, whose database a thief changes, and a node that tells what its seal would
// refuse.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { readYaml } from "../../../src/node/files/config/read-yaml.ts";
import { readSyncState } from "../../../src/node/files/generations.ts";
import { sealedConfig, sealedSettings } from "../../../src/node/files/granted/sealed-config.ts";
import { sealedSelf } from "../../../src/node/files/granted/sealed-node.ts";
import { engineSettings } from "../../support/engine-settings.ts";
import { allowedConfig } from "../../../src/engine/filter-config.ts";
import { isMap, type YamlValue } from "../../../src/base/yaml.ts";
import { objectionsOf } from "../../../src/node/files/granted/seal-objections.ts";
import { openOrganization, type Organization } from "../../../src/node/files/organizations.ts";
import { sealHash } from "../../../src/pki/seal.ts";
import type { SealedState, SignedSeal } from "../../../src/protocol/seals/seal.ts";
import { DownloadAnswer } from "../../../src/protocol/download.ts";
import { NodeConfig } from "../../../src/protocol/organization-files.ts";
import { operator } from "../../../src/server/audit/record.ts";
import { sealedStateOf } from "../../../src/server/config/seals.ts";
import { createOrganization } from "../../../src/server/organizations/organizations.ts";
import { organizations } from "../../../src/server/store/tables/organizations.ts";
import { policies } from "../../../src/server/store/tables/policies.ts";
import { raiseConfigVersion } from "../../../src/server/store/versions.ts";
import type { Organization as ApiOrganization } from "../../../src/api/organizations.ts";
import { makeNodeWorld, syncNow, type NodeWorld } from "../../support/node.ts";
import { registerNode, type RegisteredNode } from "../../support/nodes.ts";
import { publishNext, signedBy } from "../../support/seals.ts";
import { makeSshKey } from "../../support/ssh-keys.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

let world: NodeWorld;
let organization: Organization;
let keys: ReturnType<typeof temporaryDirectory>;
const key = (name: string) => makeSshKey(join(keys.path, name));
let org: ApiOrganization;

beforeEach(async () => {
  keys = temporaryDirectory();
  world = await makeNodeWorld();
  organization = await world.register();
  org = v.parse(
    v.custom<ApiOrganization>(() => true),
    await world.api("GET", "/api/org/acme/"),
  );
});
afterEach(async () => {
  await world[Symbol.asyncDispose]();
  keys[Symbol.dispose]();
});

const at = (path: string) => `/api/org/acme/${path}`;
async function synced() {
  const { result } = await syncNow(world, organization);
  const { seal } = readSyncState(organization.directory) ?? {};
  return { result, ...seal, told: seal?.objections.map(({ key, reason }) => `${key}: ${reason}`) };
}
const create = async (path: string, body: object) =>
  v.parse(v.object({ id: v.number() }), await world.api("POST", at(path), body)).id;
const rule = (fields: object) =>
  create("firewall_rules/", {
    direction: "inbound",
    protocol: "tcp",
    ports: "22",
    peer: { any: true },
    target: { any: true },
    ...fields,
  });

describe("an organization whose control plane is honest", () => {
  test("has no objections on nodes of any kind", async () => {
    for (const name of ["admins", "web"]) await world.api("POST", at("groups/"), { name });
    const server = world.server;
    const hub = await registerNode(server, org, "hub", {
      is_lighthouse: true,
      is_relay: true,
      public_ip: "203.0.113.9",
    });
    const router = await registerNode(server, org, "router");
    const exit = await registerNode(server, org, "exit");
    const web = await registerNode(server, org, "web");
    await world.api("PATCH", at(`nodes/${router.id}/`), { subnets: ["192.168.5.0/24"] });
    await world.api("PATCH", at(`nodes/${exit.id}/`), { exit_groups: ["admins"] });
    await world.api("PATCH", at(`nodes/${web.id}/`), { groups: ["web"] });
    await rule({ peer: { group: "admins" }, target: { group: "web" } });
    await rule({ peer: { node: web.id }, target: { node: router.id }, ports: "any", protocol: "any" });
    await rule({ peer: { cidr: "10.77.0.0/24" }, protocol: "udp", ports: "53-60" });
    await rule({ peer: { group: "user:self" }, target: { any: true }, ports: "443" });
    await rule({ peer: { group: "admins" }, target: { group: "network:192.168.5.0-24" }, ports: "445" });
    const { seal } = await publishNext(world.api, [key("ann")]);
    for (const version of ["1.6.1", "1.11.0", "1.12.0"])
      for (const node of [hub, router, exit, web]) {
        await node.checkin({ overlay_version: version });
        expect([version, node.name, await objections(seal.state, node)]).toEqual([version, node.name, []]);
        await expectSameWithSeal(seal.state, node, version);
      }
  });

  test("has none with IPv6, and for a node that is router, exit and relay at once", async () => {
    const { server } = world;
    const { services } = server.app;
    const wanted = { slug: "six", name: "six", network: "10.79.0.0/16", network6: "fd79::/64" };
    const by = { ownerId: null, ownerEmail: null, actor: operator };
    const six = await createOrganization(services, { ...wanted, certificateVersion: 2 }, by);
    await server.join(six, "owner@company.example", "owner");
    const all = await registerNode(server, six, "all", {
      is_lighthouse: true,
      is_relay: true,
      public_ip: "203.0.113.9",
      overlay_version: "1.12.0",
    });
    const plain = await registerNode(server, six, "plain", { overlay_version: "1.12.0" });
    await world.api("PATCH", `/api/org/six/nodes/${all.id}/`, {
      subnets: ["192.168.5.0/24", "fd05::/64"],
      exit_groups: ["any"],
    });
    const state = await sealedStateOf(server.db, await services.views.of(server.db, six.id));
    expect(state.nodes[0]?.routes).toEqual(["192.168.5.0/24", "fd05::/64"]);
    for (const node of [all, plain]) {
      expect(await objections(state, node)).toEqual([]);
      await expectSameWithSeal(state, node, "1.12.0");
    }
  });

  test("follows its signers: each node holds the newest seal, and keeps it when it registers again", async () => {
    const [ann, bob] = [key("ann"), key("bob")];
    const first = await publishNext(world.api, [ann]);
    expect(await synced()).toMatchObject({ number: 1, hash: sealHash(first.signed.text), told: [] });
    await publishNext(world.api, [ann]);
    await publishNext(world.api, [ann, bob], { signers: [bob] });
    const last = await publishNext(world.api, [bob]);
    // The node was away meanwhile.
    expect(await synced()).toMatchObject({ number: 4, hash: sealHash(last.signed.text), told: [] });
    const held = readFileSync(join(organization.directory, "seal.json"), "utf8");
    organization = await world.register({ force: true });
    expect(readFileSync(join(organization.directory, "seal.json"), "utf8")).toBe(held);
  });

  test("sends a seal once: not again with each change of something else", async () => {
    const [ann, bob] = [key("ann"), key("bob")];
    const { signed } = await publishNext(world.api, [ann]);
    const hash = sealHash(signed.text);
    await synced();
    await rule({});
    expect((await synced()).told).toHaveLength(1);
    const node = await registerNode(world.server, org, "beta");
    const sealsIn = async (tags?: string) => v.parse(DownloadAnswer, (await node.download(tags)).json).seals;
    expect(await sealsIn()).toEqual([signed]);
    expect(await sealsIn(`"former", "seal-${"0".repeat(64)}"`)).toEqual([signed]);
    expect(await sealsIn(`"former", "seal-${hash}"`)).toBeUndefined();
    // Another signer signs, so the control plane keeps both seals. A node that holds the first one gets the second alone.
    const second = await publishNext(world.api, [ann, bob], { signers: [bob] });
    expect(await sealsIn()).toEqual([signed, second.signed]);
    expect(await sealsIn(`"former", "seal-${hash}"`)).toEqual([second.signed]);
    expect(await synced()).toMatchObject({ number: 2, hash: sealHash(second.signed.text), told: [] });
  });

  test("is sealed for a node that joins later", async () => {
    const { signed } = await publishNext(world.api, [key("ann")]);
    organization = await world.register({ force: true, name: "alpha" });
    expect(existsSync(join(organization.directory, "seal.json"))).toBeTrue();
    expect(await synced()).toMatchObject({ number: 1, hash: sealHash(signed.text), told: [] });
  });

  test("shows the seal in status, and what it would refuse in status and doctor", async () => {
    const { signed } = await publishNext(world.api, [key("ann")]);
    await synced();
    const line = `hash ${sealHash(signed.text).slice(0, 16)}, is observed`;
    expect((await world.agent(["status"])).stdout).toContain(line);
    await rule({});
    await synced();
    const refused = `${line}: it would refuse firewall.inbound tcp/22, host any (no rule of the seal permits it)`;
    expect((await world.agent(["status"])).stdout).toContain(refused);
    expect((await world.agent(["doctor"])).stdout).toContain(refused);
    expect(world.logged.filter((each) => each.includes("would refuse what"))).toHaveLength(1);
    expect(openOrganization(world.root, "acme").config.name).toBe("alpha");
  });
});

/** What the seal renders is what an honest control plane sends: enforcement changes nothing for its nodes. */
async function expectSameWithSeal(
  state: SealedState,
  node: Pick<RegisteredNode, "download">,
  engine: string,
) {
  const { files } = v.parse(DownloadAnswer, (await node.download()).json);
  const sent = allowedConfig(readYaml(files["config.yml"], "test"), () => undefined);
  const sealing = { offline: ["f".repeat(64)], privileged: [], revoked: [] };
  const self = sealedSelf({ ...state, sealing }, files["host.crt"]);
  expect(sorted(sealedConfig(sent, self, engine))).toEqual(sorted(sent));
}

/** The order of rules, and of nodes with a role, makes no difference. */
function sorted(value: YamlValue): YamlValue {
  if (Array.isArray(value)) {
    const text = (each: YamlValue) => JSON.stringify(each);
    return value.map(sorted).sort((a, b) => (text(a) < text(b) ? -1 : 1));
  }
  if (!isMap(value)) return value;
  return Object.fromEntries(
    Object.entries(value)
      .map(([key, each]): [string, YamlValue] => [key, sorted(each)])
      .sort(([a], [b]) => (a < b ? -1 : 1)),
  );
}

async function objections(state: SealedState, node: Pick<RegisteredNode, "download">) {
  const answer = v.parse(DownloadAnswer, (await node.download()).json);
  return objectionsOf(state, {
    config: readYaml(answer.files["config.yml"], "test"),
    caCrt: answer.files["ca.crt"],
    hostCrt: answer.files["host.crt"],
    node: v.parse(NodeConfig, JSON.parse(answer.files["node-config.json"])),
  });
}

test("a rule that is a part of a sealed one is permitted, and one that is more is not", async () => {
  await rule({ protocol: "any", ports: "1000-2000", peer: { node: organization.config.node_id } });
  const { seal } = await publishNext(world.api, [key("ann")]);
  const read = (name: string) => readFileSync(join(organization.directory, name), "utf8");
  const told = { caCrt: read("ca.crt"), hostCrt: read("host.crt") };
  const isPermitted = (proto: string, port: string | number) => {
    const inbound = [{ proto, port, host: organization.config.name }];
    const config = { firewall: { inbound } };
    return !objectionsOf(seal.state, { ...told, config, node: { name: "beta", exits: [] } }).some(({ key }) =>
      key.startsWith("firewall"),
    );
  };
  const parts: [string, string | number][] = [
    ["any", "1000-2000"],
    ["tcp", "1000-2000"],
    ["udp", 1000],
    ["tcp", "1500-1600"],
    ["any", "2000"],
  ];
  const more: [string, string | number][] = [
    ["icmp", "1500"],
    ["tcp", "any"],
    ["tcp", 0],
    ["tcp", "0-1500"],
    ["tcp", "999-1500"],
    ["tcp", "1500-2001"],
    ["tcp", "1600-1500"],
    ["tcp", "1500-1600-9"],
    ["tcp", "fragment"],
    ["tcp", ""],
    ["TCP", "1500"],
  ];
  for (const each of parts) expect([each, isPermitted(...each)]).toEqual([each, true]);
  for (const each of more) expect([each, isPermitted(...each)]).toEqual([each, false]);
});

test("each setting that a control plane may write is the seal's, or opens no way", () => {
  const own = engineSettings().filter(
    (path) => !sealedSettings.some((each) => path === each || path.startsWith(`${each}.`)),
  );
  // A new setting belongs to one of the two lists. Those here may deny service; what they take of the machine, grants.ts decides.
  expect([...new Set(own.map((path) => path.split(".")[0] ?? ""))].sort()).toEqual([
    "cipher",
    "handshakes",
    "lighthouse",
    "listen",
    "logging",
    "pki",
    "preferred_ranges",
    "punchy",
    "relay",
    "routines",
    "sshd",
    "static_map",
    "stats",
    "timers",
    "tun",
    "tunnels",
  ]);
  const within = (section: string) => own.filter((path) => path.startsWith(`${section}.`)).sort();
  expect(within("pki")).toEqual(["pki.blocklist", "pki.ca", "pki.cert", "pki.initiating_version", "pki.key"]);
  expect(within("relay")).toEqual(["relay.use_relays"]);
  expect(within("lighthouse")).toEqual([
    "lighthouse.advertise_addrs",
    "lighthouse.dns.host",
    "lighthouse.dns.port",
    "lighthouse.interval",
    "lighthouse.local_allow_list",
    "lighthouse.remote_allow_list",
    "lighthouse.serve_dns",
  ]);
  expect(within("tun")).toEqual([
    "tun.dev",
    "tun.disabled",
    "tun.drop_local_broadcast",
    "tun.drop_multicast",
    "tun.mtu",
    "tun.tx_queue",
    "tun.use_offloads",
  ]);
});

/** What a thief with database and server can do by the server's own means. */
const thefts: [string, () => Promise<unknown>, string][] = [
  [
    "a port",
    () => rule({ ports: "3389" }),
    "firewall.inbound tcp/3389, host any: no rule of the seal permits it",
  ],
  [
    "a way out",
    () => rule({ direction: "outbound", peer: { cidr: "10.77.9.0/24" } }),
    "firewall.outbound tcp/22, cidr 10.77.9.0/24: no rule of the seal permits it",
  ],
  [
    "a port by overrides",
    () =>
      world.server.db.writeFor({ org: org.id }, async (tx) => {
        const everyone = { firewall: { inbound: [{ port: "any", proto: "any", host: "any" }] } };
        await organizations.update(tx, { id: org.id }, { configOverrides: everyone });
        await raiseConfigVersion(tx, org.id);
      }),
    "firewall.inbound any/any, host any: no rule of the seal permits it",
  ],
  [
    "a lighthouse",
    () => registerNode(world.server, org, "thief", { is_lighthouse: true, public_ip: "198.51.100.7" }),
    "lighthouse.hosts 10.77.0.2: the seal has no such lighthouse",
  ],
  [
    "a relay",
    () => registerNode(world.server, org, "thief", { is_relay: true, public_ip: "198.51.100.7" }),
    "relay.relays 10.77.0.2: the seal has no such relay",
  ],
  [
    "a router",
    async () => {
      const { id } = await registerNode(world.server, org, "thief");
      await world.api("PATCH", at(`nodes/${id}/`), { subnets: ["192.168.9.0/24"] });
    },
    "tun.unsafe_routes 192.168.9.0/24 via 10.77.0.2: the seal has no such router",
  ],
  [
    "an exit",
    async () => {
      const { id } = await registerNode(world.server, org, "thief");
      await world.api("PATCH", at(`nodes/${id}/`), { exit_groups: ["any"] });
    },
    "the exit thief: the seal has no such exit",
  ],
  [
    "a role for this node",
    () =>
      world.api("PATCH", at(`nodes/${organization.config.node_id}/`), {
        is_relay: true,
        public_ip: "203.0.113.1",
      }),
    "relay.am_relay: by the seal this node is no relay",
  ],
  ["a CA", () => world.api("POST", at("ca/rotate/"), { action: "start" }), "the seal has no such CA"],
];

describe("a thief", () => {
  test.each(thefts)("who adds %s is told of", async (_, steal, expected) => {
    await publishNext(world.api, [key("ann")]);
    expect(await synced()).toMatchObject({ told: [] });
    await steal();
    const { told = [] } = await synced();
    expect(told.join("\n")).toContain(expected);
  });

  const replaceSeals = (seals: SignedSeal[]) =>
    world.server.db.writeFor({ org: org.id }, async (tx) => {
      await policies.update(tx, { orgId: org.id }, { seals });
      await raiseConfigVersion(tx, org.id);
    });

  test("who publishes a seal of his own, an older one or none changes nothing, and is told of", async () => {
    const [ann, eve] = [key("ann"), key("eve")];
    const first = await publishNext(world.api, [ann]);
    const second = await publishNext(world.api, [ann], { change: { made_at: first.seal.made_at + 1 } });
    const held = sealHash(second.signed.text);
    expect(await synced()).toMatchObject({ hash: held, told: [] });
    const next = { ...second.seal, number: 3, previous: held };
    const own = signedBy({ ...next, signers: [{ name: "eve", key: eve.line }] }, [eve]);
    const attempts: [SignedSeal[], string][] = [
      [[own], "no signer of the seal before"],
      [[signedBy(next, [ann], "file")], "no signer of the seal before"],
      [
        [signedBy({ ...first.seal, signers: [{ name: "eve", key: eve.line }] }, [eve])],
        "no signer of the seal before",
      ],
      [[first.signed], "its number is 1, and 2 is known"],
      [[signedBy({ ...second.seal, made_at: second.seal.made_at + 9 }, [ann])], "another seal 2"],
      [[{ text: "{", signatures: ["x"] }], "no signer of the seal before"],
      [Array.from({ length: 17 }, () => own), "cannot be read"],
    ];
    for (const [seals, reason] of attempts) {
      await replaceSeals(seals);
      const { hash, told = [] } = await synced();
      expect([reason, hash, told.join()]).toEqual([reason, held, expect.stringContaining(reason)]);
    }
    // A downgrade: the node goes on with what it holds.
    await replaceSeals([]);
    await rule({});
    expect(await synced()).toMatchObject({ hash: held, told: [expect.stringContaining("tcp/22")] });
  });

  test("gains nothing from a damaged seal: it stays and is told, until root deletes it", async () => {
    const [ann, eve] = [key("ann"), key("eve")];
    const first = await publishNext(world.api, [ann]);
    await synced();
    const path = join(organization.directory, "seal.json");
    const whole = readFileSync(path, "utf8");
    const own = signedBy({ ...first.seal, signers: [{ name: "eve", key: eve.line }] }, [eve]);
    await replaceSeals([own]);
    for (const garbled of ["", "{", whole.replace("10.77.0.0", "10.78.0.0"), whole.slice(0, 300), "\0\0"]) {
      writeFileSync(path, garbled);
      expect(await synced()).toMatchObject({
        number: 0,
        hash: "damaged",
        told: [expect.stringMatching(/^seal\.json: .*No other seal takes its place/)],
      });
      expect(readFileSync(path, "utf8")).toBe(garbled);
      // Nothing changed: it is still told.
      expect(await synced()).toMatchObject({ number: 0 });
    }
    organization = await world.register({ force: true });
    expect(readFileSync(path, "utf8")).toBe("\0\0");
    await synced();
    for (const command of ["status", "doctor"])
      expect((await world.agent([command])).stdout).toContain(
        "no seal of the organization can be used: seal.json (",
      );
    // Root puts the file back, or deletes it.
    writeFileSync(path, whole);
    expect(await synced()).toMatchObject({
      hash: sealHash(first.signed.text),
      told: [expect.stringContaining("no signer of the seal before")],
    });
    rmSync(path);
    expect(await synced()).toMatchObject({ hash: sealHash(own.text), told: [] });
  });

  test("cannot make a node take a seal of the future", async () => {
    const [ann] = [key("ann")];
    const first = await publishNext(world.api, [ann]);
    const { hash: held } = await synced();
    const previous = sealHash(first.signed.text);
    const change = { number: 2, first: previous, previous, made_at: 253_402_300_799 };
    await replaceSeals([signedBy({ ...first.seal, ...change }, [ann])]);
    const { hash, told } = await synced();
    expect([hash, told?.join()]).toEqual([held, expect.stringContaining("compare the clocks")]);
  });

  test("cannot publish what nodes would refuse", async () => {
    const [ann, eve] = [key("ann"), key("eve")];
    const first = await publishNext(world.api, [ann]);
    const refused = publishNext(world.api, [eve]);
    expect(await refused.catch(String)).toContain("no signer of the seal before");
    const other = publishNext(world.api, [ann], {
      change: { state: { ...first.seal.state, organization: "other" } },
    });
    expect(await other.catch(String)).toContain("another organization");
    const far = publishNext(world.api, [ann], { change: { number: 10 ** 15 } });
    expect(await far.catch(String)).toContain("the next one is 2");
    const late = publishNext(world.api, [ann], { change: { made_at: 253_402_300_799 } });
    expect(await late.catch(String)).toContain("compare the clocks");
  });
});
