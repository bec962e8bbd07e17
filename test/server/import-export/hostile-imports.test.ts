// Random hostile directories: an import is refused and stores nothing, or all that it stored is what the API accepts too. Then
// `policy get` plans no change, an export works, nodes take the configuration, and machines can register.

import { expect, test } from "bun:test";
import * as v from "valibot";
import { allowedConfig } from "../../../src/engine/filter-config.ts";
import { encodePem } from "../../../src/pki/bundle.ts";
import { fingerprint, type NebulaCertificate } from "../../../src/pki/nebula.ts";
import { Node } from "../../../src/protocol/node.ts";
import { readYaml } from "../../../src/node/files/config/read-yaml.ts";
import { NodeRequest } from "../../../src/api/nodes.ts";
import { checkPublicAddress, checkSubnets } from "../../../src/server/nodes/subnets.ts";
import { readIssuingOrg } from "../../../src/server/certificates/issue.ts";
import { Plan, Policy } from "../../../src/api/policy.ts";
import { exportOrganization } from "../../../src/server/import-export/export.ts";
import { importNetwork } from "../../../src/server/import-export/import.ts";
import { day, handMade } from "../../support/hand-made.ts";
import { makeKeys, sendRegistration } from "../../support/nodes.ts";
import { makeRandom } from "../../support/random.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const names = [
  "web",
  "Web",
  "any",
  "a b",
  "größe",
  "x".repeat(63),
  "y".repeat(200),
  "hub.example.org",
  "-",
  "node",
  "db\n1",
];
const groups = ["web", "db", "a b", "größe", "z".repeat(120), "user:one", "IDP:x", "any", "g:1"];
const subnets = [
  "0.0.0.0/0",
  "10.0.0.0/8",
  "192.168.7.0/24",
  "192.168.7.5/24",
  "127.0.0.0/8",
  "198.51.100.0/24",
  "172.16.0.0/12",
];
const places = [
  "198.51.100.7:4242",
  "192.168.1.5:4242",
  "[2001:db8::5]:4242",
  "hub.example.org:4300",
  "10.42.0.9:4242",
  "127.0.0.1:1",
  "1.2.3.4.5:1",
  "hub:99999",
  "é.example:1",
  "[::ffff:10.42.0.1]:1",
  "",
];
const prints = ["ab".repeat(32), "AB".repeat(32), ` ${"cd".repeat(32)} `, "", "nonsense"];

function makeDirectory(
  random: () => number,
  { file, makeNetwork }: ReturnType<typeof handMade>,
  nowS: number,
): void {
  const one = <T>(list: readonly [T, ...T[]] | readonly T[]): T =>
    list[Math.floor(random() * list.length)] as T;
  const some = <T>(list: readonly T[]): T[] => list.filter(() => random() < 0.3);
  const version = random() < 0.3 ? 2 : 1;
  const { sign } = makeNetwork(version);
  const made: NebulaCertificate[] = [];
  const count = 1 + Math.floor(random() * 6);
  for (let at = 1; at <= count; at++) {
    const networks = [`10.42.0.${random() < 0.03 ? 0 : at}/${random() < 0.05 ? 24 : 16}`];
    if (version === 2 && random() < 0.7) networks.push(`fd42::${random() < 0.1 ? 9 : at}/64`);
    const certificate = sign({
      name: one(names),
      version,
      networks,
      groups: random() < 0.1 ? Array.from({ length: 70 }, (_, each) => `g${each}`) : some(groups),
      unsafeNetworks: some(subnets),
      ...(random() < 0.1 ? { notAfter: nowS - day } : {}),
      ...(random() < 0.1 ? { notBefore: nowS - 2 * day } : {}),
    });
    made.push(certificate);
    file(`h${at}/host.crt`, encodePem(certificate));
    const address = () => `10.42.0.${1 + Math.floor(random() * (count + 1))}`;
    const blocked = some(random() < 0.8 ? prints.slice(0, 4) : prints);
    const config = {
      pki: { cert: "host.crt", blocklist: random() < 0.15 ? [...blocked, fingerprint(one(made))] : blocked },
      static_host_map: Object.fromEntries([
        [address(), some(places)],
        [address(), one(places)],
      ]),
      lighthouse: { am_lighthouse: random() < 0.2, hosts: [address(), null] },
      relay: { am_relay: one([true, "no", "perhaps"]), relays: address() },
      tun: {
        unsafe_routes: subnets.map((route) => ({
          route,
          via: random() < 0.5 ? address() : [{ gateway: address() }],
        })),
      },
      [one(["firewall", "__proto__x", "constructor"])]: { inbound: [] },
    };
    file(`h${at}/${one(["config.yml", "config.d/10.yaml"])}`, JSON.stringify(config));
  }
}

async function requireAccepted(server: TestServer, owner: string): Promise<void> {
  const call = (method: string, path: string, body?: unknown) =>
    server.send(method, `/api/org/acme/${path}`, { token: owner, ...(body === undefined ? {} : { body }) });
  const shown = await call("GET", "policy/");
  const { policy } = v.parse(Policy, shown.json);
  const answer = await call("POST", "policy/plan/", { policy, prune: true });
  expect([
    answer.status,
    answer.status === 200 ? v.parse(Plan, answer.json).is_empty : answer.text,
    policy,
  ]).toEqual([200, true, policy]);
  const issuing = await readIssuingOrg(server.db, 1);
  const nodes = v.parse(v.array(Node), (await call("GET", "nodes/")).json);
  for (const {
    id,
    name,
    ip_address,
    groups: own,
    subnets: routed,
    is_lighthouse,
    is_relay,
    public_ip,
    external_port,
  } of nodes) {
    const fields = { groups: own, subnets: routed, is_lighthouse, is_relay, public_ip, external_port };
    expect(v.parse(NodeRequest, { name, ip_address, ...fields })).toMatchObject(fields);
    await checkSubnets(server.db, issuing, routed, { id, name, subnets: routed });
    checkPublicAddress(issuing, public_ip);
    expect((await call("PATCH", `nodes/${id}/`, fields)).status).toBe(200);
  }
  const files = await exportOrganization(server.app.services, { id: 1, slug: "acme" });
  for (const { path, content } of files.filter(({ path: each }) => each.endsWith("config.yml"))) {
    const leftOut: string[] = [];
    allowedConfig(readYaml(content, path), (key, reason) => leftOut.push(`${key}: ${reason}`));
    expect([path, leftOut]).toEqual([path, []]);
  }
  for (const { name } of nodes) {
    const made = await sendRegistration(
      server,
      "acme",
      { name, ...(await makeKeys(name)) },
      { token: owner },
    );
    expect([name, made.status]).toEqual([name, 201]);
  }
}

test.each(Array.from({ length: 30 }, (_, seed) => seed))("directory %d", async (seed) => {
  await using server = await makeTestServer();
  const owner = await server.person("owner@example.org");
  using directory = temporaryDirectory();
  const nowS = Math.floor(server.clock.ms / 1000);
  makeDirectory(
    makeRandom(seed),
    handMade(
      () => directory.path,
      () => nowS,
    ),
    nowS,
  );
  const options = { network: undefined, owner: { email: "owner@example.org" }, passphrase: async () => "" };
  const bring = (isPlan: boolean) =>
    importNetwork(server.app.services, "acme", directory.path, { ...options, isPlan }).then(
      () => "done",
      String,
    );
  const planned = await bring(true);
  expect(await bring(false)).toBe(planned);
  if (planned === "done") return await requireAccepted(server, owner);
  expect(planned).toMatch(/^AppError: .{20}/);
  for (const table of ["organizations", "nodes", "authorities", "node_groups", "certificates", "addresses"])
    expect(await server.db.all(`SELECT * FROM ${table}`)).toEqual([]);
});
