// A node in the sealed IPv6 network: its certificates, and what it renders from the seal. What packets do then:
// test/e2e/sealed-open-nodes.test.ts.

import { describe, expect, test } from "bun:test";
import * as v from "valibot";
import { valueAt, type YamlMap } from "../../../../src/base/yaml.ts";
import { grantExit } from "../../../../src/node/files/granted/exits.ts";
import { sealedConfig } from "../../../../src/node/files/granted/sealed-config.ts";
import { sealedFiles } from "../../../../src/node/files/granted/sealed-files.ts";
import { keyHash, sealedSelf, type EnforcedState } from "../../../../src/node/files/granted/sealed-node.ts";
import { objectionsOf } from "../../../../src/node/files/granted/seal-objections.ts";
import { recordsIn } from "../../../../src/node/names/name-records.ts";
import { encodePem } from "../../../../src/pki/bundle.ts";
import { makeHostKey, publicOfHostKey } from "../../../../src/pki/keys.ts";
import { fingerprint, makeCa, signCertificate, type HostTemplate } from "../../../../src/pki/nebula.ts";
import { Seal, type SealedNode } from "../../../../src/protocol/seals/seal.ts";
import { mostTcpWays, NodeConfig } from "../../../../src/protocol/organization-files.ts";
import { sealedAddressOf, sealedNetworkOf } from "../../../support/sealed-network.ts";
import { sealOf } from "../../../support/seals.ts";

const nowS = Math.floor(Date.now() / 1000);
const authority = (name: string) =>
  makeCa({ version: 1, name, notBefore: nowS - 600, notAfter: nowS + 86_400 });
const [offline, online] = [authority("offline"), authority("online")];
const print = fingerprint(offline.certificate);
const network6 = sealedNetworkOf(print);
const key = publicOfHostKey(makeHostKey().privatePem);
const address6 = sealedAddressOf(network6, keyHash(key));

const sealed = (
  name: string,
  address: string,
  hash: string,
  change: Partial<SealedNode> = {},
): SealedNode => ({
  name,
  addresses: [address],
  lighthouse: false,
  relay: false,
  routes: [],
  exit: [],
  identity: { kind: "open", key: hash, groups: ["admins"], address6: sealedAddressOf(network6, hash) },
  ...change,
});
const own = sealed("db", "10.77.0.5", keyHash(key), { routes: ["192.168.9.0/24"] });
const hub = sealed("hub", "10.77.0.1", "1".repeat(64), { lighthouse: true, relay: true });
const router = sealed("router", "10.77.0.2", "2".repeat(64), { routes: ["192.168.5.0/24"] });
const exit = sealed("exit", "10.77.0.3", "3".repeat(64), { exit: ["any"] });
const hub6 = hub.identity?.address6 ?? "";
const router6 = router.identity?.address6 ?? "";

const inbound = { direction: "inbound", protocol: "tcp", target: { any: true } } as const;
const state: EnforcedState = {
  ...sealOf({ signers: [] }).state,
  authorities: [print, fingerprint(online.certificate)].sort(),
  nodes: [own, exit, hub, router],
  rules: [
    { ...inbound, ports: "22", peer: { group: "admins" } },
    { ...inbound, ports: "23", peer: { node: "hub" } },
    { ...inbound, ports: "80", peer: { any: true } },
  ],
  sealing: { offline: [print], privileged: ["admins"], revoked: [], network6 },
};

const sign = (change: Partial<HostTemplate> = {}, ca = offline) =>
  encodePem(
    signCertificate(
      {
        version: 1,
        name: "db",
        networks: ["10.77.0.5/16"],
        unsafeNetworks: ["192.168.9.0/24"],
        groups: ["admins"],
        notBefore: nowS - 60,
        notAfter: nowS + 3600,
        publicKey: key,
        ...change,
      },
      ca,
    ),
  );
const second = { version: 2, networks: ["10.77.0.5/16", `${address6}/64`] } as const;
const bundle = sign(second);

const facts = {
  schema: 1,
  node_id: 5,
  name: "db",
  org_slug: "acme",
  ip_address: "10.77.0.5",
  ip_address6: null,
  network: "10.77.0.0/16",
  mode: "server",
  is_lighthouse: false,
  is_relay: false,
  config_version: 7,
  registered_at: "2026-11-28T00:00:00Z",
  exits: [{ name: "exit", ip_address: "10.77.0.3", ip_address6: null }],
  tcp: { "10.77.0.1": { at: "plane", port: 4242 } },
};
const files = (hostCrt: string) => ({
  "config.yml": "{}",
  "ca.crt": encodePem(offline.certificate) + encodePem(online.certificate),
  "host.crt": hostCrt,
  "node-config.json": JSON.stringify(facts),
});
const factsOf = (hostCrt: string) =>
  v.parse(NodeConfig, JSON.parse(sealedFiles(state, files(hostCrt))["node-config.json"]));

const sent: YamlMap = {
  static_host_map: { "10.77.0.1": ["192.0.2.1:4242"] },
  lighthouse: { am_lighthouse: false, hosts: ["10.77.0.1"] },
  relay: { am_relay: false, relays: ["10.77.0.1"], use_relays: true },
  tun: { unsafe_routes: [{ route: "192.168.5.0/24", via: "10.77.0.2" }] },
};
const rendered = (engine = "1.12.0") => sealedConfig(sent, sealedSelf(state, bundle), engine);

describe("the certificates of an open node", () => {
  test("have the sealed address, beside one of version 1 or without it", () => {
    for (const each of [bundle, sign() + bundle])
      expect(sealedFiles(state, files(each))["host.crt"]).toBe(each);
  });

  test("are kept when the control plane sends those of before, without the sealed address", () => {
    const taken = sealedFiles(state, files(sign()), files(bundle));
    expect(taken["host.crt"]).toBe(bundle);
    // Its X.509 certificate is of the refused name and address.
    const withX509 = { ...files(sign()), "node.crt": "sent" };
    expect(sealedFiles(state, withX509, files(bundle))).not.toContainKey("node.crt");
    expect(sealedFiles(state, withX509, { ...files(bundle), "node.crt": "in force" })["node.crt"]).toBe(
      "in force",
    );
    expect(sealedFiles(state, { ...files(bundle), "node.crt": "sent" })["node.crt"]).toBe("sent");
    expect(() => sealedFiles(state, files(sign()))).toThrow(`db lacks its sealed address ${address6}`);
    const told = { config: {}, caCrt: encodePem(offline.certificate), hostCrt: sign(), node: { name: "db" } };
    expect(objectionsOf(state, told)).toEqual([
      { key: "the certificate of db", reason: `db lacks its sealed address ${address6}` },
    ]);
  });

  test("take the place of damaged files in force, which never stay", () => {
    for (const damaged of ["", "damaged", bundle.slice(0, -40)]) {
      const inForce = { ...files(bundle), "host.crt": damaged, "ca.crt": damaged };
      expect(sealedFiles(state, files(bundle), inForce)["host.crt"]).toBe(bundle);
      expect(() => sealedFiles(state, files(sign()), inForce)).toThrow("lacks its sealed address");
    }
  });

  test.each([
    ["of another node", sign({ ...second, networks: ["10.77.0.5/16", `${hub6}/64`] })],
    ["with a wider prefix", sign({ ...second, networks: ["10.77.0.5/16", `${address6}/48`] })],
    ["of the control plane", sign(second, online)],
  ])("are not those with a sealed address %s", (_, wrong) => {
    expect(() => sealedFiles(state, files(sign() + wrong))).toThrow("cannot be put into force");
  });

  test("of an unprivileged node have no address there", () => {
    const stranger = { name: "web", publicKey: publicOfHostKey(makeHostKey().privatePem), groups: [] };
    const networks = ["10.77.0.9/16", `${sealedAddressOf(network6, "9".repeat(64))}/64`];
    const wrong = sign({ ...stranger, version: 2, networks, unsafeNetworks: [] }, online);
    expect(() => sealedFiles(state, files(wrong))).toThrow("the seal has no network");
  });
});

describe("an open node", () => {
  test("finds lighthouses, relays and routers by their sealed addresses", () => {
    expect(rendered()).toMatchObject({
      static_host_map: { [hub6]: ["192.0.2.1:4242"], "10.77.0.1": ["192.0.2.1:4242"] },
      lighthouse: { hosts: [hub6] },
      relay: { relays: [hub6, "10.77.0.1"] },
      tun: { unsafe_routes: [{ route: "192.168.5.0/24", via: router6 }] },
    });
  });

  test("lets privileged peers in at its sealed address and the networks behind it alone", () => {
    expect(valueAt(rendered(), "firewall.inbound")).toEqual([
      { port: "22", proto: "tcp", group: "admins", ca_sha: print, local_cidr: `${address6}/128` },
      { port: "22", proto: "tcp", group: "admins", ca_sha: print, local_cidr: "192.168.9.0/24" },
      { port: "23", proto: "tcp", host: "hub", ca_sha: print, local_cidr: `${address6}/128` },
      { port: "23", proto: "tcp", host: "hub", ca_sha: print, local_cidr: "192.168.9.0/24" },
      { port: "80", proto: "tcp", host: "any", local_cidr: "any" },
    ]);
  });

  test("that is closed instead lets them in at each address: peers with older engines have no other one", () => {
    const nodes = state.nodes.map((node) =>
      node === own && node.identity !== undefined
        ? { ...node, identity: { ...node.identity, kind: "closed" as const } }
        : node,
    );
    const config = sealedConfig(sent, sealedSelf({ ...state, nodes }, bundle), "1.12.0");
    expect(JSON.stringify(valueAt(config, "firewall.inbound"))).not.toContain("/128");
    expect(config).toMatchObject({ lighthouse: { hosts: [hub6] } });
  });

  test("follows the same seal without the sealed network on an engine that reads no such certificate", () => {
    const before = rendered("1.9.7");
    expect(before).toMatchObject({ lighthouse: { hosts: ["10.77.0.1"] }, relay: { relays: ["10.77.0.1"] } });
    expect(JSON.stringify(before)).not.toContain(network6.slice(0, 12));
  });

  test("follows a seal that has no sealed network", () => {
    const { network6: _, ...sealing } = state.sealing;
    const nodes = state.nodes.map(({ identity, ...node }): SealedNode => {
      const { address6: __, ...rest } = identity ?? { kind: "open", key: "", groups: [] };
      return { ...node, identity: rest };
    });
    const former = { ...state, nodes, sealing };
    expect(v.is(Seal, { ...sealOf({ signers: [{ name: "ann", key: "k" }] }), state: former })).toBeTrue();
    expect(sealedFiles(former, files(sign()))["host.crt"]).toBe(sign());
    const config = sealedConfig(sent, sealedSelf(former, sign()), "1.12.0");
    expect(config).toMatchObject({ lighthouse: { hosts: ["10.77.0.1"] } });
    expect(JSON.stringify(config)).not.toContain("/128");
  });

  test("knows its address, those of sealed nodes, and the way by TCP to both addresses of a lighthouse", () => {
    expect(factsOf(bundle)).toMatchObject({
      ip_address6: address6,
      sealed_names: { hub: [hub6, "10.77.0.1"], db: [address6, "10.77.0.5"] },
      tcp: { "10.77.0.1": { at: "plane" }, [hub6]: { at: "plane" } },
    });
  });

  test("knows the way by TCP to each sealed address, though the control plane sent as many ways as there may be", () => {
    const way = { at: "plane", port: 4242 };
    const others = Array.from({ length: mostTcpWays - 1 }, (_, at) => [`10.77.1.${at}`, way]);
    const tcp = { ...Object.fromEntries(others), "10.77.0.1": way };
    const text = JSON.stringify({ ...facts, tcp });
    const sealed = sealedFiles(state, { ...files(bundle), "node-config.json": text });
    const ways = v.parse(NodeConfig, JSON.parse(sealed["node-config.json"])).tcp ?? {};
    expect(Object.keys(ways)).toHaveLength(mostTcpWays);
    expect(Object.keys(ways)).toContain(hub6);
  });

  test("uses an exit by its sealed address", () => {
    const use = grantExit({ exit: { use: "exit", strict: false, lan: false } }, factsOf(bundle), undefined);
    expect(use?.exit).toMatchObject({ ip: "10.77.0.3", via: exit.identity?.address6 });
  });

  test("resolves the names of sealed nodes to their sealed addresses, and gives them to no other node", () => {
    const names = new Map([
      ["hub", [hub6]],
      ["10", [router6]],
    ]);
    const hosts = {
      nodes: [
        { id: 1, name: "hub", ip: "10.77.0.66" },
        { id: 2, name: "web", ip: "10.77.0.9" },
        { id: 3, name: "n-10", ip: "10.77.0.66" },
      ],
      aliases: [
        { id: 1, name: "lighthouse", node_id: 1 },
        { id: 2, name: "10", node_id: 2 },
      ],
    };
    const found = recordsIn(hosts, { slug: "acme", networks: ["10.77.0.0/16", network6], sealed: names });
    expect(found.map(({ names: [name], addresses }) => [name, addresses])).toEqual([
      ["hub.acme.internal", [hub6]],
      ["web.acme.internal", ["10.77.0.9"]],
      ["lighthouse.acme.internal", [hub6]],
    ]);
  });
});
