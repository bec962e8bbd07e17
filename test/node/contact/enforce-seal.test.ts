// Seals that are enforced: a real control plane, whose answers a thief changes, and a node that takes none of it. What real
// packets do then: test/e2e/sealed-red-team.test.ts.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { Event } from "../../../src/api/events.ts";
import { listOf, mergeYaml, stringifyYaml, valueAt, type YamlMap } from "../../../src/base/yaml.ts";
import { readYaml } from "../../../src/node/files/config/read-yaml.ts";
import { readSyncState, writeSyncState } from "../../../src/node/files/generations.ts";
import { isSealedExit } from "../../../src/node/files/granted/sealed-files.ts";
import { keyHash } from "../../../src/node/files/granted/sealed-node.ts";
import type { Organization } from "../../../src/node/files/organizations.ts";
import { decodeBundle, encodePem } from "../../../src/pki/bundle.ts";
import { publicOfHostKey } from "../../../src/pki/keys.ts";
import {
  decodeCaBundle,
  fingerprint,
  makeCa,
  signCertificate,
  type CertificateAuthority,
  type HostTemplate,
} from "../../../src/pki/nebula.ts";
import { sealHash } from "../../../src/pki/seal.ts";
import { DownloadAnswer } from "../../../src/protocol/download.ts";
import type { SealedNode, SealedState } from "../../../src/protocol/seals/seal.ts";
import { NodeConfig } from "../../../src/protocol/organization-files.ts";
import { makeNodeWorld, syncNow, type NodeWorld } from "../../support/node.ts";
import { nextSigned } from "../../support/seals.ts";
import { makeSshKey } from "../../support/ssh-keys.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

let world: NodeWorld;
let organization: Organization;
let keys: ReturnType<typeof temporaryDirectory>;
let offline: CertificateAuthority;
let ann: ReturnType<typeof makeSshKey>;
/** What a thief makes of each answer with files. */
let alter: (answer: DownloadAnswer) => DownloadAnswer = (answer) => answer;

const dayS = 86_400;
const nowS = () => Math.floor(world.server.clock.ms / 1000);
const authority = (name: string) =>
  makeCa({ version: 1, name, notBefore: nowS() - dayS, notAfter: nowS() + 400 * dayS });

beforeEach(async () => {
  keys = temporaryDirectory();
  world = await makeNodeWorld();
  ann = makeSshKey(join(keys.path, "ann"));
  alter = (answer) => answer;
  offline = authority("offline");
  const through = world.system.fetch;
  world.system.fetch = async (url, init) => {
    const isFiles = /download_config/.test(url);
    const isRegistration = /nodes\/register/.test(url) || /\/register\//.test(url);
    if (!isFiles && !isRegistration) return through(url, init);
    const headers = Object.entries(init?.headers ?? {});
    const plain = headers.filter(([name]) => name.toLowerCase() !== "if-none-match");
    const answer = await through(url, { ...init, headers: Object.fromEntries(plain) });
    if (!answer.ok) return answer;
    const body: unknown = await answer.json();
    const registered = v.safeParse(v.looseObject({ config: DownloadAnswer }), body);
    const changed = registered.success
      ? { ...registered.output, config: alter(registered.output.config) }
      : alter(v.parse(DownloadAnswer, body));
    const tag = { ETag: `"${Math.random()}"` };
    return Response.json(changed, { status: answer.status, headers: registered.success ? {} : tag });
  };
  organization = await world.register();
});
afterEach(async () => {
  await world[Symbol.asyncDispose]();
  keys[Symbol.dispose]();
});

const read = (name: string) => readFileSync(join(organization.directory, name), "utf8");
const config = () => readYaml(read("config.yml"), "config.yml");
const hostKey = () => publicOfHostKey(read("host.key"));
const sealOf = () => readSyncState(organization.directory)?.seal;
async function synced() {
  await syncNow(world, organization).catch((error: unknown) => String(error));
  const seal = sealOf();
  return { ...seal, told: seal?.objections.map(({ key, reason }) => `${key}: ${reason}`).join("\n") ?? "" };
}

type Change = { state?: Partial<SealedState>; mode?: "observe" | "enforce" };

/** Publishes the next seal, with the offline CA and the privileged group "admins". */
async function seal({ state = {}, mode = "enforce" }: Change = {}) {
  const shown = await world.api("GET", "/api/org/acme/seals/");
  const { seal: next } = nextSigned(shown, [ann]);
  const sealing = { offline: [fingerprint(offline.certificate)], privileged: ["admins"], revoked: [] };
  const all = [...next.state.authorities, ...sealing.offline].sort();
  const signed = nextSigned(shown, [ann], {
    change: { mode, state: { ...next.state, authorities: all, sealing, ...state } },
  });
  await world.api("POST", "/api/org/acme/seals/", signed.signed);
  return signed;
}

/** This node, sealed. */
const sealedNode = (change: Partial<SealedNode> = {}, groups = ["admins"]): SealedNode => ({
  name: "alpha",
  addresses: ["10.77.0.1"],
  lighthouse: false,
  relay: false,
  routes: [],
  exit: [],
  identity: { kind: "closed", key: keyHash(hostKey()), groups },
  ...change,
});

const certificate = (ca: CertificateAuthority, change: Partial<HostTemplate> = {}) =>
  encodePem(
    signCertificate(
      {
        version: 1,
        name: "alpha",
        networks: ["10.77.0.1/16"],
        unsafeNetworks: [],
        groups: ["admins"],
        notBefore: nowS() - 60,
        notAfter: nowS() + dayS,
        publicKey: hostKey(),
        ...change,
      },
      { certificate: { ...ca.certificate, networks: [], unsafeNetworks: [] }, privateKey: ca.privateKey },
    ),
  );

const withFiles = (answer: DownloadAnswer, files: Partial<DownloadAnswer["files"]>): DownloadAnswer => ({
  ...answer,
  files: { ...answer.files, ...files },
});
/** An honest control plane hands out what was signed offline. */
const handOut =
  (change: Partial<HostTemplate> = {}) =>
  (answer: DownloadAnswer) =>
    withFiles(answer, {
      "ca.crt": answer.files["ca.crt"] + encodePem(offline.certificate),
      "host.crt": certificate(offline, change),
    });
const withConfig = (answer: DownloadAnswer, change: YamlMap) =>
  withFiles(answer, {
    "config.yml": stringifyYaml(mergeYaml(readYaml(answer.files["config.yml"], "test"), change)),
  });
const withNode = (answer: DownloadAnswer, change: object) =>
  withFiles(answer, {
    "node-config.json": JSON.stringify({
      ...v.parse(NodeConfig, JSON.parse(answer.files["node-config.json"])),
      ...change,
    }),
  });

function withoutX509(answer: DownloadAnswer): DownloadAnswer {
  const { "node.crt": _, ...files } = answer.files;
  return { ...answer, files };
}

const everyone = { port: "any", proto: "any", host: "any" };
const lies: [string, (answer: DownloadAnswer) => DownloadAnswer, string][] = [
  ["opens a port", (a) => withConfig(a, { firewall: { inbound: [everyone] } }), "firewall.inbound any/any"],
  [
    "keeps flows open",
    (a) => withConfig(a, { firewall: { conntrack: { tcp_timeout: "168h" } } }),
    "firewall.conntrack.tcp_timeout 168h",
  ],
  [
    "adds a lighthouse",
    (a) =>
      withConfig(a, {
        static_host_map: { "10.77.9.9": ["198.51.100.7:4242"] },
        lighthouse: { hosts: ["10.77.9.9"] },
      }),
    "lighthouse.hosts 10.77.9.9",
  ],
  ["adds a relay", (a) => withConfig(a, { relay: { relays: ["10.77.9.9"] } }), "relay.relays 10.77.9.9"],
  ["makes it a relay", (a) => withConfig(a, { relay: { am_relay: true } }), "relay.am_relay"],
  [
    "makes it a lighthouse",
    (a) => withConfig(a, { lighthouse: { am_lighthouse: true } }),
    "lighthouse.am_lighthouse",
  ],
  [
    "turns a route",
    (a) => withConfig(a, { tun: { unsafe_routes: [{ route: "192.168.9.0/24", via: "10.77.9.9" }] } }),
    "tun.unsafe_routes 192.168.9.0/24",
  ],
  [
    "offers an exit",
    (a) => withNode(a, { exits: [{ name: "thief", ip_address: "10.77.9.9", ip_address6: null }] }),
    "the exit thief",
  ],
  [
    "adds a CA",
    (a) => withFiles(a, { "ca.crt": a.files["ca.crt"] + encodePem(authority("thief").certificate) }),
    "the seal has no such CA",
  ],
];

const files = ["config.yml", "ca.crt", "host.crt", "node-config.json"];
const inForce = () =>
  files.map((name) =>
    read(name)
      .replace(/"config_version": \d+/, "")
      .replaceAll(/generations\/\d+/g, ""),
  );

describe.each(["unprivileged", "closed"])("a thief's answer to a node that is %s", (kind) => {
  const honest = kind === "closed" ? handOut() : (answer: DownloadAnswer) => answer;
  const sealIt = () => seal(kind === "closed" ? { state: { nodes: [sealedNode()] } } : {});

  test.each(lies)("that %s is kept out and told", async (_, lie, expected) => {
    alter = honest;
    await sealIt();
    expect(await synced()).toMatchObject({ number: 1, enforced: true, told: "" });
    const before = inForce();
    alter = (answer) => lie(honest(answer));
    expect((await synced()).told).toContain(expected);
    expect(inForce()).toEqual(before);
    expect((await world.agent(["status"])).stdout).toContain("is enforced: it refuses");
    expect((await world.agent(["doctor"])).stdout).toContain("is enforced: it refuses");
    alter = honest;
    expect(await synced()).toMatchObject({ told: "" });
    expect(inForce()).toEqual(before);
  });

  test("that adds to the blocklist is taken: it only takes away", async () => {
    alter = honest;
    await sealIt();
    await synced();
    const blocked = "c".repeat(64);
    alter = (answer) => withConfig(honest(answer), { pki: { blocklist: [blocked] } });
    expect((await synced()).told).toBe("");
    expect(listOf(valueAt(config(), "pki.blocklist"))).toContain(blocked);
  });
});

test("an exit is sealed with each of its addresses", () => {
  const nodes = [sealedNode({ name: "exit", addresses: ["10.77.0.7", "fd77::7"], exit: ["any"] })];
  const isSealed = (ip_address: string, ip_address6: string | null, name = "exit") =>
    isSealedExit({ nodes }, { name, ip_address, ip_address6 });
  expect([isSealed("10.77.0.7", null), isSealed("10.77.0.7", "fd77::7")]).toEqual([true, true]);
  expect([isSealed("10.77.0.7", "fd77::9"), isSealed("10.77.0.9", null)]).toEqual([false, false]);
  expect(isSealed("10.77.0.7", null, "thief")).toBeFalse();
});

test("a refusal reaches the audit log with the next check-in, and no text of a thief is too long or moves a cursor", async () => {
  await seal();
  await synced();
  const name = `x\u001b[2J${"y".repeat(9000)}`;
  alter = (answer) =>
    withNode(answer, { exits: [{ name: "thief", ip_address: "10.77.9.9", ip_address6: null }] });
  expect((await synced()).told).toContain("the exit thief");
  expect((await world.agent(["checkin"])).status).toBe(0);
  expect((await world.agent(["checkin"])).status).toBe(0);
  const refused = async () => {
    const events = v.parse(v.array(Event), await world.api("GET", "/api/org/acme/events/?limit=1000"));
    return events.flatMap(({ type, after }) => (type === "node.seal_refused" ? [after] : []));
  };
  expect(await refused()).toEqual([
    { is_enforced: true, refused: [{ key: "the exit thief", reason: "the seal has no such exit" }] },
  ]);
  const online = authority("of a thief");
  alter = (answer) =>
    withFiles(answer, {
      "ca.crt": answer.files["ca.crt"] + encodePem(online.certificate),
      "host.crt": certificate(online, { groups: ["admins", name] }),
    });
  const { told, objections } = await synced();
  expect(told).toContain("the seal does not have its CA");
  expect(objections?.every(({ reason }) => reason.length <= 400 && /^[\x20-\x7e]*$/.test(reason))).toBeTrue();
});

/** Each with what the seal says of it. */
const wrongCertificates: [string, () => string, string][] = [
  ["of the online CA", () => certificate(onlineCa), "the seal does not have its CA"],
  [
    "with another group",
    () => certificate(offline, { groups: ["admins", "root"] }),
    "does not give alpha the group root",
  ],
  ["with a wider prefix", () => certificate(offline, { networks: ["10.77.0.1/8"] }), "10.77.0.1/8"],
  [
    "with a network behind it",
    () => certificate(offline, { unsafeNetworks: ["0.0.0.0/0"] }),
    "the network 0.0.0.0/0",
  ],
];
let onlineCa: CertificateAuthority;

describe("the own certificate", () => {
  beforeEach(() => void (onlineCa = authority("online of a thief")));

  test.each(wrongCertificates)("%s is refused by a closed node, and the former one stays", async (...row) => {
    const [, make, expected] = row;
    alter = handOut();
    await seal({ state: { nodes: [sealedNode()] } });
    await synced();
    const before = inForce();
    alter = (answer) => {
      const own = handOut()(answer);
      const bundle = own.files["ca.crt"] + encodePem(onlineCa.certificate);
      return withFiles(own, { "host.crt": make(), "ca.crt": bundle });
    };
    expect((await synced()).told).toContain(expected);
    expect(inForce()).toEqual(before);
  });

  test("of a closed node that was not signed offline leaves the node as it was, with the revocations", async () => {
    const before = inForce();
    await seal({ state: { nodes: [sealedNode()] } });
    const blocked = "c".repeat(64);
    alter = (answer) => withConfig(answer, { pki: { blocklist: [blocked] } });
    const { told } = await synced();
    expect(told).toContain("no offline CA of the seal has signed it for alpha");
    expect(inForce().slice(1)).toEqual(before.slice(1));
    expect(listOf(valueAt(config(), "pki.blocklist"))).toEqual([blocked]);
    expect((await world.agent(["status"])).stdout).toContain("no offline CA of the seal");
    alter = handOut();
    expect((await synced()).told).toBe("");
    expect(decodeCaBundle(read("ca.crt")).map(fingerprint)).toEqual([fingerprint(offline.certificate)]);
  });

  test("of an unprivileged node gets no privileged group, no network behind it, no sealed name or address", async () => {
    const online = authority("online");
    const rest = { identity: { kind: "closed" as const, key: "e".repeat(64), groups: ["admins"] } };
    const db = sealedNode({ name: "db", addresses: ["10.77.0.9"], ...rest });
    const own = (change: Partial<HostTemplate>) => (answer: DownloadAnswer) =>
      withFiles(change.name === undefined ? answer : withoutX509(withNode(answer, { name: change.name })), {
        "ca.crt": encodePem(online.certificate) + encodePem(offline.certificate),
        "host.crt": certificate(online, { groups: ["web"], ...change }),
      });
    alter = own({});
    const authorities = [online, offline].map((each) => fingerprint(each.certificate)).sort();
    await seal({ state: { nodes: [db], authorities } });
    expect((await synced()).told).toBe("");
    const before = inForce();
    const attempts: [Partial<HostTemplate>, string][] = [
      [{ groups: ["web", "admins"] }, "does not give alpha the group admins"],
      [{ unsafeNetworks: ["192.168.1.0/24"] }, "does not give alpha the network 192.168.1.0/24"],
      [{ networks: ["10.77.0.1/16", "10.77.0.9/16"] }, "10.77.0.9/16 is the address of a sealed node"],
      [{ networks: ["10.77.0.1/16", "192.168.0.1/24"] }, "the seal has no network 192.168.0.1/24"],
      [{ name: "db" }, "db is a sealed node with another key"],
    ];
    for (const [change, expected] of attempts) {
      alter = own(change);
      expect((await synced()).told).toContain(expected);
      expect(inForce()).toEqual(before);
    }
  });
});

describe("a rule about a privileged group or a sealed node", () => {
  test("demands the offline CA, and one about others does not", async () => {
    const [db, rest] = [sealedNode({ name: "db", addresses: ["10.77.0.9"] }), { target: { any: true } }];
    const key = "e".repeat(64);
    const rules = [
      { peer: { group: "admins" }, ports: "22" },
      { peer: { node: "db" }, ports: "23" },
      { peer: { group: "web" }, ports: "24" },
      { peer: { any: true }, ports: "25" },
      { peer: { group: "web" }, ports: "26", target: { group: "admins" } },
    ].map((rule) => ({ direction: "inbound", protocol: "tcp", ...rest, ...rule }));
    await seal({
      state: v.parse(
        v.custom<Partial<SealedState>>(() => true),
        {
          rules,
          nodes: [{ ...db, identity: { kind: "closed", key, groups: [] } }],
        },
      ),
    });
    expect(await synced()).toMatchObject({ enforced: true });
    const ca_sha = fingerprint(offline.certificate);
    expect(valueAt(config(), "firewall.inbound")).toEqual([
      { port: "22", proto: "tcp", group: "admins", ca_sha },
      { port: "23", proto: "tcp", host: "db", ca_sha },
      { port: "24", proto: "tcp", group: "web" },
      { port: "25", proto: "tcp", host: "any" },
    ]);
  });
});

describe("a node that enforces a seal stays sealed", () => {
  const damaged = (name: string) => join(organization.directory, name);
  const open = (answer: DownloadAnswer) => withConfig(answer, { firewall: { inbound: [everyone] } });
  const unsealed = (answer: DownloadAnswer): DownloadAnswer => {
    const { seals: _, ...rest } = open(answer);
    return rest;
  };

  test("if the control plane says nothing of seals any more, and if sync.json is lost", async () => {
    const { signed } = await seal();
    await synced();
    const before = inForce();
    alter = unsealed;
    expect((await synced()).told).toContain("firewall.inbound any/any");
    rmSync(join(organization.directory, "current", "sync.json"), { force: true });
    await synced();
    expect(inForce()).toEqual(before);
    expect(sealOf()).toMatchObject({ hash: sealHash(signed.text), enforced: true });
  });

  test("if seal.json is damaged or lost: its configuration stays, but for revocations", async () => {
    await seal();
    await synced();
    const whole = read("seal.json");
    const blocked = "c".repeat(64);
    alter = (answer) => withConfig(open(answer), { pki: { blocklist: [blocked] } });
    const before = inForce().slice(1);
    for (const damage of [
      () => writeFileSync(damaged("seal.json"), "{"),
      () => writeFileSync(damaged("seal.json"), whole.replace("10.77", "10.78")),
      () => rmSync(damaged("seal.json")),
    ]) {
      damage();
      expect(await synced()).toMatchObject({ hash: "damaged", enforced: true });
      expect(inForce().slice(1)).toEqual(before);
      expect(valueAt(config(), "firewall.inbound")).not.toContainEqual(everyone);
      expect(listOf(valueAt(config(), "pki.blocklist"))).toContain(blocked);
      expect((await world.agent(["status"])).stdout).toContain("no seal of the organization can be used");
      writeFileSync(damaged("seal.json"), whole);
      expect((await synced()).told).toContain("firewall.inbound any/any");
      expect(valueAt(config(), "firewall.inbound")).not.toContainEqual(everyone);
    }
  });

  test("if it registers again, also while seal.json is damaged", async () => {
    await seal();
    await synced();
    const whole = read("seal.json");
    alter = unsealed;
    organization = await world.register({ force: true });
    expect(read("seal.json")).toBe(whole);
    expect(valueAt(config(), "firewall.inbound")).not.toContainEqual(everyone);
    expect((await synced()).told).toContain("firewall.inbound any/any");
    writeFileSync(damaged("seal.json"), "{");
    const refused = world.register({ force: true });
    expect(await refused.then(String, String)).toContain("The seal of acme cannot be read");
    expect(valueAt(config(), "firewall.inbound")).not.toContainEqual(everyone);
  });

  test("and gets its certificate again if the file is damaged", async () => {
    await seal({ state: { nodes: [sealedNode()] } });
    const hostCrt = certificate(offline);
    alter = (answer) => {
      const own = handOut()(answer);
      return withFiles(own, { "host.crt": hostCrt });
    };
    await synced();
    expect(read("host.crt")).toBe(hostCrt);
    for (const name of ["host.crt", "ca.crt"]) writeFileSync(damaged(name), "damaged");
    await synced();
    expect(read("host.crt")).toBe(hostCrt);
    expect(decodeCaBundle(read("ca.crt")).map(fingerprint)).toEqual([fingerprint(offline.certificate)]);
  });

  test("if it registers in another mode, also with the certificate in force", async () => {
    await seal({ state: { nodes: [sealedNode()] } });
    alter = handOut();
    await synced();
    const before = read("host.crt");
    // Without the offline certificate.
    alter = (answer) => answer;
    organization = await world.register({ force: true, mode: "desktop" });
    expect(read("host.crt")).toBe(before);
    expect(organization.config.mode).toBe("desktop");
  });

  test("if it registers with other keys: the certificate in force is not for them", async () => {
    await seal({ state: { nodes: [sealedNode()] } });
    alter = handOut();
    await synced();
    const before = [read("host.key"), read("host.crt"), read("node-config.json")];
    const thief = authority("thief");
    alter = (answer) => {
      const [sent] = decodeBundle(answer.files["host.crt"]);
      const { name, networks, publicKey } = sent ?? expect.unreachable();
      return withFiles(answer, {
        "ca.crt": answer.files["ca.crt"] + encodePem(thief.certificate),
        "host.crt": certificate(thief, { name, networks, publicKey }),
      });
    };
    const credential = { registrationToken: await world.token() };
    const refused = world.register({ credential, newKeys: true, name: "beta" });
    expect(await refused.then(String, String)).toContain("cannot be put into force");
    expect([read("host.key"), read("host.crt"), read("node-config.json")]).toEqual(before);
  });

  test("after a kill between the seal and the configuration, and after an earlier version that ignored it", async () => {
    await seal({ mode: "observe" });
    alter = open;
    await synced();
    expect(valueAt(config(), "firewall.inbound")).toContainEqual(everyone);
    const { signed } = await seal();
    // The kill: the seal was written, and nothing else.
    writeFileSync(damaged("seal.json"), JSON.stringify(signed));
    await synced();
    expect(valueAt(config(), "firewall.inbound")).not.toContainEqual(everyone);
    // An earlier version takes what it is told, and another CA too.
    const strange = encodePem(authority("thief").certificate);
    writeFileSync(damaged("current/ca.crt"), read("ca.crt") + strange);
    writeFileSync(
      damaged("current/config.yml"),
      stringifyYaml(mergeYaml(config(), { firewall: { inbound: [everyone] } })),
    );
    const state = readSyncState(organization.directory);
    if (state === undefined) throw new Error("No state");
    const { seal: _, ...former } = state;
    writeSyncState(organization.directory, { ...former, rules: 9 });
    await synced();
    expect(valueAt(config(), "firewall.inbound")).not.toContainEqual(everyone);
    expect(decodeBundle(read("ca.crt")).map(fingerprint)).not.toContain(
      fingerprint(decodeBundle(strange)[0] ?? offline.certificate),
    );
  });

  test("until root ends the seal", async () => {
    await seal();
    alter = open;
    await synced();
    writeFileSync(damaged("seal.json"), "{");
    expect((await world.agent(["unseal", "acme", "--yes"])).stdout).toContain("is ended on this machine");
    alter = unsealed;
    await synced();
    expect(valueAt(config(), "firewall.inbound")).toContainEqual(everyone);
    expect(sealOf()).toBeUndefined();
  });

  test("until its signers say so", async () => {
    await seal();
    alter = open;
    await synced();
    expect(valueAt(config(), "firewall.inbound")).not.toContainEqual(everyone);
    await seal({ mode: "observe" });
    await synced();
    expect(valueAt(config(), "firewall.inbound")).toContainEqual(everyone);
    expect(existsSync(damaged("seal-enforced"))).toBeFalse();
  });
});

describe("a registration with the hash of a seal", () => {
  test("is refused if the control plane sends another one, or none", async () => {
    const { signed } = await seal();
    const pin = sealHash(signed.text);
    rmSync(join(world.root, "acme"), { recursive: true });
    await world.register({ name: "beta", seal: pin });
    expect(existsSync(join(world.root, "acme", "seal-enforced"))).toBeTrue();
    rmSync(join(world.root, "acme"), { recursive: true });
    for (const seals of [undefined, [{ ...signed, text: signed.text.replace("10.77", "10.78") }]]) {
      alter = (answer) => {
        const { seals: _, ...rest } = answer;
        return seals === undefined ? rest : { ...rest, seals };
      };
      const refused = world.register({ name: `gamma${String(seals?.length)}`, seal: pin });
      expect(await refused.then(String, String)).toContain("The registration is refused");
      expect(existsSync(join(world.root, "acme"))).toBeFalse();
    }
  });

  test("without one, an enforced seal counts only once its user has compared it", async () => {
    const { signed } = await seal();
    rmSync(join(world.root, "acme"), { recursive: true });
    const asked: string[] = [];
    const refuse = async (hash: string) => {
      asked.push(hash);
      throw new Error("not compared");
    };
    const refused = world.register({ name: "beta", confirmSeal: refuse });
    expect(await refused.then(String, String)).toContain("not compared");
    expect([asked, existsSync(join(world.root, "acme"))]).toEqual([[sealHash(signed.text)], false]);
    // By a join key of before: as such keys always did.
    await world.register({ name: "beta" });
    expect(existsSync(join(world.root, "acme", "seal-enforced"))).toBeTrue();
  });
});

test("a present node that registers again with a signer's hash goes on only if its seal belongs to that one", async () => {
  // A thief had this node begin with a seal of his own, before a signer made the first one.
  const eve = makeSshKey(join(keys.path, "eve"));
  const { signed: own } = nextSigned(await world.api("GET", "/api/org/acme/seals/"), [eve]);
  alter = (answer) => ({ ...answer, seals: [own] });
  expect(await synced()).toMatchObject({ number: 1, hash: sealHash(own.text) });
  alter = (answer) => answer;
  const first = await seal({ mode: "observe" });
  const pin = sealHash(first.signed.text);
  const again = () => world.register({ force: true, seal: pin });
  expect(await again().then(String, String)).toContain("which does not belong to");
  for (const seals of [undefined, [own]]) {
    alter = (answer) => {
      const { seals: _, ...rest } = answer;
      return seals === undefined ? rest : { ...rest, seals };
    };
    expect(await again().then(String, String)).toContain("The registration is refused");
  }
  // Root ends it.
  alter = (answer) => answer;
  expect((await world.agent(["unseal", "acme", "--yes"])).status).toBe(0);
  organization = await again();
  expect(await synced()).toMatchObject({ hash: pin });
  // A key that is older than the seal of the node is still of its line.
  const second = await seal();
  expect(await synced()).toMatchObject({ number: 2, enforced: true });
  organization = await again();
  expect(await synced()).toMatchObject({ hash: sealHash(second.signed.text), enforced: true });
});
