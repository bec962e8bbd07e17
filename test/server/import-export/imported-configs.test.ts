// What an import takes from configurations: roles, addresses, routes and the blocklist, each as the API would accept it. The
// rest is named with file and line, or the import is refused and stores nothing.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { mkdirSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { encodePem } from "../../../src/pki/bundle.ts";
import { makeHostKey, readHostPublicKey } from "../../../src/pki/keys.ts";
import { encodeDetailsV1, encodeV1 } from "../../../src/pki/nebula-v1.ts";
import { fingerprint } from "../../../src/pki/nebula.ts";
import { formatPem } from "../../../src/pki/pem.ts";
import { signBytes } from "../../../src/pki/signature.ts";
import { parseAddressInNetwork } from "../../../src/base/ip.ts";
import { Node } from "../../../src/protocol/node.ts";
import { importNetwork } from "../../../src/server/import-export/import.ts";
import { handMade } from "../../support/hand-made.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

let server: TestServer;
let owner: string;
let directory: ReturnType<typeof temporaryDirectory>;

beforeEach(async () => {
  server = await makeTestServer();
  owner = await server.person("owner@example.org");
  directory = temporaryDirectory();
});
afterEach(async () => {
  directory[Symbol.dispose]();
  await server[Symbol.asyncDispose]();
});

const { file, makeNetwork } = handMade(
  () => directory.path,
  () => Math.floor(server.clock.ms / 1000),
);
const bring = async (network?: string) => {
  const done = await importNetwork(server.app.services, "acme", directory.path, {
    network,
    owner: { email: "owner@example.org" },
    passphrase: async () => "",
    isPlan: false,
  });
  return "plan" in done ? done.plan : done;
};
/** The refusal, after which nothing is stored. */
async function refusal(network?: string): Promise<string> {
  const said = await bring(network).then(() => "done", String);
  for (const table of ["organizations", "nodes", "authorities", "node_groups", "certificates"])
    expect([table, await server.db.all(`SELECT id FROM ${table}`)]).toEqual([table, []]);
  return said;
}
const nodes = async () =>
  v.parse(v.array(Node), (await server.send("GET", "/api/org/acme/nodes/", { token: owner })).json);
const roles = async () =>
  (await nodes()).map(
    (each) => `${each.name} ${each.is_lighthouse ? "lighthouse " : ""}${each.is_relay ? "relay" : ""}`,
  );

describe("roles", () => {
  const own = "am_lighthouse: true\n";
  test("come from a lighthouse's own directory", async () => {
    const { host } = makeNetwork();
    host("hub/host.crt", { name: "hub", networks: ["10.42.0.1/16"] });
    host("web/host.crt", { name: "web", networks: ["10.42.0.2/16"] });
    file(
      "hub/config.yml",
      `pki: {ca: /etc/nebula/ca.crt, cert: /etc/nebula/host.crt, key: /etc/nebula/host.key}
lighthouse:
  ${own}  advertise_addrs: ["198.51.100.7:4300"]
relay: {am_relay: yes}
`,
    );
    const { notes } = await bring();
    expect(notes).toEqual([]);
    expect(await roles()).toEqual(["hub lighthouse relay", "web "]);
    expect((await nodes())[0]).toMatchObject({ public_ip: "198.51.100.7", external_port: 4300 });
  });

  test.each([
    [
      "in the configuration",
      (pem: string) => `pki:\n  cert: |\n    ${pem.trim().replaceAll("\n", "\n    ")}\n`,
    ],
    ["at its path in the directory", () => `pki: {cert: "${directory.path}/certs/one.crt"}\n`],
    ["by a relative path", () => "pki: {cert: ../certs/one.crt}\n"],
    ["by the only file of this name", () => "pki: {cert: /opt/n/one.crt}\n"],
    ["with Windows line ends and a byte order mark", () => "\ufeffpki:\r\n  cert: ../certs/one.crt\r\n"],
  ])("are those of the host whose certificate is %s", async (_, config) => {
    const { sign } = makeNetwork();
    const pem = encodePem(sign({ name: "one", networks: ["10.42.0.1/16"] }));
    file("certs/one.crt", pem);
    file("certs/two.crt", encodePem(sign({ name: "two", networks: ["10.42.0.2/16"] })));
    file("conf/config.yaml", `${config(pem)}lighthouse: {am_lighthouse: true}\n`);
    await bring();
    expect(await roles()).toEqual(["one lighthouse ", "two "]);
  });

  test("come from a configuration that is spread over files, of which the last one holds", async () => {
    const { host } = makeNetwork();
    host("hub/host.crt", { name: "hub", networks: ["10.42.0.1/16"] });
    host("web/host.crt", { name: "web", networks: ["10.42.0.2/16"] });
    file(
      "hub/config.d/10-pki.yml",
      "pki: {cert: /etc/nebula/host.crt}\nlighthouse: {am_lighthouse: false}\n",
    );
    file("hub/config.d/20-lighthouse.yml", `lighthouse:\n  ${own}relay: {am_relay: true}\n`);
    file("hub/config.d/90-local.yml", "relay: {am_relay: false}\n");
    file("hub/config.d/more/95.yml", "static_host_map: {10.42.0.1: hub.example.org:4242}\n");
    file("web/config.yml", "pki: {cert: host.crt}\n");
    const plan = await bring();
    // Two files are called host.crt; the nearest one counts.
    expect(plan.notes).toEqual([]);
    expect(await roles()).toEqual(["hub lighthouse ", "web "]);
    expect((await nodes())[0]).toMatchObject({ public_ip: "hub.example.org", external_port: 4242 });
  });

  test("of a configuration of no known host are named", async () => {
    const { host } = makeNetwork();
    host("one.crt", { name: "one", networks: ["10.42.0.1/16"] });
    file("hub/config.yml", `pki: {cert: other.crt}\nlighthouse:\n  ${own}`);
    file("none/config.yml", `lighthouse:\n  ${own}`);
    file("odd.yml", "lighthouse: {am_lighthouse: maybe, hosts: [10.42.0.9]}\n");
    const { notes } = await bring();
    expect(notes.map((each) => each.split(":").slice(0, 2).join(":"))).toEqual([
      "odd.yml:1",
      "odd.yml:1",
      "hub/config.yml:3",
      "none/config.yml:2",
    ]);
    expect(await roles()).toEqual(["one "]);
  });

  test("are found by IPv6 addresses of the overlay", async () => {
    const { host } = makeNetwork(2);
    host("one.crt", { name: "one", version: 2, networks: ["10.42.0.1/24", "fd42::1/64"] });
    host("two.crt", { name: "two", version: 2, networks: ["10.42.0.2/24", "fd42::2/64"] });
    file(
      "two.yml",
      'pki: {cert: two.crt}\nstatic_host_map: {"FD42:0::1": ["192.0.2.4:4242"]}\nlighthouse: {hosts: [fd42::1]}\n',
    );
    expect((await bring()).notes).toEqual([]);
    expect((await nodes())[0]).toMatchObject({ is_lighthouse: true, public_ip: "192.0.2.4" });
  });
});

test("of several underlay addresses the one that most nodes reach is taken, and the others are named", async () => {
  const { host } = makeNetwork();
  host("one.crt", { name: "one", networks: ["10.42.0.1/16"] });
  file(
    "web.yml",
    `lighthouse: {hosts: "10.42.0.1"}
static_host_map:
  10.42.0.1:
    - 192.168.1.5:4242
    - "[2001:db8::5]:4242"
    - 198.51.100.4:4300
    -
    - 10.42.0.1:4242
    - 2001:db8::7:4242
`,
  );
  const { notes } = await bring();
  expect((await nodes())[0]).toMatchObject({ public_ip: "198.51.100.4", external_port: 4300 });
  expect(notes.map((each) => each.slice(0, 42))).toEqual([
    "web.yml:7: static_host_map has an entry th",
    'web.yml:8: "10.42.0.1:4242" is no address ',
    'web.yml:9: "2001:db8::7:4242" is no addres',
    'web.yml:5: "[2001:db8::5]:4242" of one is ',
    'web.yml:4: "192.168.1.5:4242" of one is no',
  ]);
});

describe("routes", () => {
  const route = (...routes: string[]) =>
    file("laptop.yml", `tun:\n  unsafe_routes:\n${routes.map((each) => `    - ${each}\n`).join("")}`);
  const subnets = async () => (await nodes()).map((each) => each.subnets);

  test("are those that a configuration installs and a certificate permits, as the API accepts them", async () => {
    const { host } = makeNetwork();
    const unsafeNetworks = ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/8"];
    host("gw.crt", { name: "gw", networks: ["10.42.0.1/16"], unsafeNetworks });
    host("gw2.crt", { name: "gw2", networks: ["10.42.0.2/16"], unsafeNetworks: ["192.168.7.0/24"] });
    route(
      "{route: 0.0.0.0/0, via: 10.42.0.1}",
      "{route: 10.0.0.0/8, via: 10.42.0.1}",
      "{route: 192.168.7.0/24, via: [{gateway: 10.42.0.1, weight: 1}, {gateway: 10.42.0.2}], mtu: 1300}",
      "{route: 192.168.7.0/24, via: 10.42.0.2}",
      "{route: 192.168.7.9/24, via: 10.42.0.1}",
      "{route: 192.168.8.0/24, via: 10.42.0.2}",
      "{route: 192.168.9.0/24, via: 10.42.0.1, install: false}",
      "{route: 192.168.10.0/24, via: 10.42.9.9}",
      "{route: 127.0.0.0/8, via: 10.42.0.1}",
      "{route: 172.16.0.0/12}",
    );
    const { notes } = await bring();
    expect(await subnets()).toEqual([["192.168.7.0/24"], []]);
    expect(notes).toEqual([
      'laptop.yml:5: mtu of the route "192.168.7.0/24": not imported.',
      expect.stringMatching(/^laptop.yml:9: .* is not installed by this machine; not imported/),
      expect.stringMatching(/^laptop.yml:12: .* has no route or no via; not imported/),
      expect.stringMatching(/^laptop.yml:3: .*not imported: .* would route all traffic/),
      expect.stringMatching(/^laptop.yml:4: .*not imported: .*overlay's own network/),
      expect.stringMatching(/^laptop.yml:5: .*"10.42.0.2" is not imported: The node gw already routes/),
      expect.stringMatching(/^laptop.yml:7: .*not imported: Enter a network/),
      expect.stringMatching(/^laptop.yml:8: .*not imported: the certificate of gw2 does not permit it/),
      expect.stringMatching(/^laptop.yml:10: .*not imported: its gateway is no imported host/),
      expect.stringMatching(/^laptop.yml:11: .*not imported: 127.0.0.0\/8 overlaps/),
      expect.stringMatching(
        /^gw.crt: the certificate of gw permits 0.0.0.0\/0, 10.0.0.0\/8, 10.1.0.0\/8, but no/,
      ),
      expect.stringMatching(
        /^gw2.crt: the certificate of gw2 permits 192.168.7.0\/24, but no configuration routes that/,
      ),
    ]);
  });

  test("that hold the control plane or a lighthouse are left out", async () => {
    await server.db.write((tx) =>
      tx.run("INSERT INTO meta (key, value) VALUES ('public_url', 'https://203.0.113.9')"),
    );
    const { host } = makeNetwork();
    host("gw.crt", { name: "gw", networks: ["10.42.0.1/16"], unsafeNetworks: ["128.0.0.0/1"] });
    route("{route: 203.0.113.0/24, via: 10.42.0.1}", "{route: 198.51.100.0/24, via: 10.42.0.1}");
    file("hub.yml", "lighthouse: {hosts: [10.42.0.1]}\nstatic_host_map: {10.42.0.1: 198.51.100.1:4242}\n");
    const { notes } = await bring();
    expect(await subnets()).toEqual([[]]);
    expect(notes.slice(0, 2)).toEqual([
      expect.stringMatching(/laptop.yml:3.*holds the address of this control plane/),
      expect.stringMatching(/laptop.yml:4.*holds 198.51.100.1/),
    ]);
  });
});

describe("the blocklist", () => {
  let print: string;
  beforeEach(() => {
    const { host } = makeNetwork();
    print = fingerprint(host("bad.crt", { name: "bad", networks: ["10.42.0.2/16"] }));
    host("good.crt", { name: "good", networks: ["10.42.0.3/16"] });
  });
  const revoked = async () => server.db.all("SELECT name FROM nodes WHERE state = 'revoked'");

  test.each([
    ["beside an empty item", (hex: string) => `pki:\n  blocklist:\n    -\n    - ""\n    - ${hex}\n`],
    ["padded", (hex: string) => `pki: {blocklist: ["  ${hex}\\n"]}\n`],
    ["in upper case", (hex: string) => `pki: {blocklist: [${hex.toUpperCase()}]}\n`],
    ["with colons", (hex: string) => `pki: {blocklist: ["${hex.replace(/..(?!$)/g, "$&:")}"]}\n`],
    ["under the former key", (hex: string) => `pki: {blacklist: [${hex}]}\n`],
    ["as a text without a list", (hex: string) => `pki: {blocklist: ${hex}}\n`],
    ["in a file of its own, without anything else", (hex: string) => `pki:\n  blocklist: [${hex}]\n`],
    ["by an anchor", (hex: string) => `x: &list [${hex}]\npki: {blocklist: *list}\n`],
    ["by a merge", (hex: string) => `x: &pki {blocklist: [${hex}]}\npki: {<<: *pki, ca: ca.crt}\n`],
  ])("revokes a host that is named %s", async (_, config) => {
    file("conf.d/90-blocked.yml", config(print));
    file("conf.d/10.yml", "pki: {cert: good.crt}\n");
    await bring();
    expect(await revoked()).toEqual([{ name: "bad" }]);
  });

  test.each([
    ["a short fingerprint", (hex: string) => `[${hex.slice(1)}]`],
    ["a name", () => "[bad]"],
    ["a number", () => "[12345]"],
    ["a list in it", (hex: string) => `[[${hex}]]`],
    ["a map", (hex: string) => `{${hex}: true}`],
  ])("with %s is refused with file and line", async (_, list) => {
    file("web.yml", `pki:\n  cert: good.crt\n  blocklist: ${list(print)}\n`);
    expect(await refusal()).toMatch(/web\.yml:3: .* in pki\.blocklist is not a fingerprint/);
  });

  test.each([
    ["invalid YAML", "pki: {blocklist: [\n", /Cannot read web\.yml:\d+/],
    ["a key twice", "pki: {ca: a}\npki: {blocklist: []}\n", /Cannot read web\.yml:2/],
    [
      "endless aliases",
      `a: &a [x]\n${Array.from({ length: 30 }, (_, at) => `b${at}: &b${at} [*${at === 0 ? "a" : `b${at - 1}`}, *${at === 0 ? "a" : `b${at - 1}`}]\n`).join("")}pki: {x: *b29}\n`,
      /Cannot read web\.yml/,
    ],
    ["deep nesting", `pki: ${"[".repeat(20_000)}`, /Cannot read web\.yml:1: it is nested too deep/],
    ["another cipher", "cipher: chachapoly\n", /web\.yml:1: the network uses the cipher "chachapoly"/],
  ])("%s is refused", async (_, text, why) => {
    file("web.yml", text);
    expect(await refusal()).toMatch(why);
  });

  test("a file that is too large to be read is refused, not passed over", async () => {
    file("web.yml", `pki: {blocklist: [${print}]} #${"x".repeat(8 * 1024 * 1024)}`);
    expect(await refusal()).toContain("larger than 8 MiB");
  });

  test("a long blocklist is read whole", async () => {
    const many = Array.from({ length: 20_000 }, (_, at) => at.toString(16).padStart(64, "0"));
    file("web.yml", `pki:\n  blocklist:\n${many.map((each) => `    - ${each}\n`).join("")}    - ${print}\n`);
    const { blocklist } = await bring();
    expect(blocklist.size).toBe(20_001);
    expect(await revoked()).toHaveLength(2);
  });
});

describe("groups", () => {
  test("that the API would not accept are left out and named", async () => {
    const { host } = makeNetwork();
    const groups = ["a b", "größe", "x".repeat(120), "any", "user:three", "idp:x", "web", "web"];
    host("one.crt", { name: "one", networks: ["10.42.0.1/16"], groups });
    const { notes } = await bring();
    expect((await nodes()).map((each) => each.groups)).toEqual([["web"]]);
    expect(notes).toHaveLength(6);
    expect(notes[0]).toContain('one.crt: the group "a b" is not imported');
  });
});

test.each([
  ...["user:id.1", "user:self", `idp:1.${"ab".repeat(16)}`].map(
    (group) => [`is in the group ${group}`, ["web", group]] as const,
  ),
  ["has over 64 groups", Array.from({ length: 65 }, (_, at) => `g${at}`)] as const,
])(
  "a certificate that %s, which rules would admit by what its node does not show, is refused unless it is blocked",
  async (reason, groups) => {
    const { host } = makeNetwork();
    host("web.crt", { name: "web", networks: ["10.42.0.2/16"] });
    const foreign = host("old.crt", { name: "old", networks: ["10.42.0.1/16"], groups: [...groups] });
    expect(await refusal()).toContain(`old.crt: the certificate of "old" ${reason}`);
    file("web.yml", `pki: {blocklist: [${fingerprint(foreign)}]}`);
    await bring();
    expect((await nodes()).map(({ name }) => name)).toEqual(["web"]);
  },
);

test("further addresses of a host are named", async () => {
  const { host } = makeNetwork(2);
  host("one.crt", { name: "one", version: 2, networks: ["10.42.0.1/24", "172.16.0.1/24", "fd42::1/64"] });
  expect((await bring()).notes).toEqual([
    "one.crt: further addresses of the host are not imported: 172.16.0.1/24. A node has one of each family.",
  ]);
});

describe("is refused without storing anything", () => {
  test("an IPv6-only network, with or without --network", async () => {
    const { host } = makeNetwork(2);
    host("one.crt", { name: "one", version: 2, networks: ["fd42::1/64"] });
    expect(await refusal()).toContain("IPv6 addresses only (fd42::/64)");
    expect(await refusal("10.42.0.0/16")).toMatch(
      /"one" has the address fd42::1, but none in 10\.42\.0\.0\/16/,
    );
  });

  test("a network without any of the hosts", async () => {
    const { host } = makeNetwork();
    host("one.crt", { name: "one", networks: ["10.42.0.1/16"] });
    expect(await refusal("10.77.0.0/16")).toContain("No host has an address in 10.77.0.0/16");
    expect(await refusal("10.77.1.0/16")).toContain("The request is not valid");
  });

  test("a host with the network's own address, crossed addresses, and too narrow an IPv6 network", async () => {
    const { host } = makeNetwork(2);
    host("one.crt", { name: "one", networks: ["10.42.0.0/16"] });
    expect(await refusal()).toContain("which is the first or the last of 10.42.0.0/16");
    host("one.crt", { name: "one", version: 2, networks: ["10.42.0.5/16", "fd42::6/64"] });
    host("two.crt", { name: "two", version: 2, networks: ["10.42.0.6/16", "fd42::5/64"] });
    expect(await refusal()).toMatch(/one \(10\.42\.0\.5, fd42::6\) and two .* have crossed addresses/);
    host("two.crt", { name: "two", version: 2, networks: ["10.42.0.6/16", "fd42::6/120"] });
    host("one.crt", { name: "one", version: 2, networks: ["10.42.0.5/16", "fd42::5/120"] });
    expect(await refusal()).toContain("room for fewer nodes");
  });
});

test("a certificate that engines accept and nodes cannot have is refused, because its address stays in use", async () => {
  const { ca } = makeNetwork();
  const fields = { version: 1, name: "one", networks: [], groups: [], isCa: false, curve: "25519" } as const;
  const life = { notBefore: ca.certificate.notBefore, notAfter: ca.certificate.notAfter };
  const parsed = (text: string) => parseAddressInNetwork(text) ?? expect.unreachable();
  const certificate = (subnets: string[], publicKey: Uint8Array) => {
    const lists = { networks: [parsed("10.42.0.1/16")], unsafeNetworks: subnets.map(parsed) };
    const own = {
      ...fields,
      ...life,
      issuer: fingerprint(ca.certificate),
      publicKey,
      unsafeNetworks: subnets,
    };
    const details = encodeDetailsV1(own, lists);
    const bytes = encodeV1(details, signBytes("25519", ca.privateKey, details));
    return formatPem("NEBULA CERTIFICATE", bytes);
  };
  const publicKey = readHostPublicKey(makeHostKey().publicPem);
  file("one.crt", certificate(["10.0.0.0/8", "10.0.0.0/8"], publicKey));
  expect(await refusal()).toMatch(/one\.crt: .*10\.0\.0\.0\/8 twice/);
  file("one.crt", certificate([], new Uint8Array(32)));
  expect(await refusal()).toMatch(/one\.crt: .*not a usable X25519 key/);
});

test("a CA without any host is imported with --network, but not beside hosts that cannot be nodes", async () => {
  const { host } = makeNetwork();
  host("old.crt", {
    name: "old",
    networks: ["10.42.0.1/16"],
    notAfter: Math.floor(server.clock.ms / 1000) - 1,
  });
  expect(await refusal("10.42.0.0/16")).toContain("no host certificate that is valid now");
  rmSync(join(directory.path, "old.crt"));
  expect(await refusal()).toContain("no host certificate that is valid now");
  expect((await bring("10.42.0.0/16")).hosts).toEqual([]);
});

test("links to directories, loops and what is no file are named, and neither followed nor opened", async () => {
  const { host } = makeNetwork();
  host("one.crt", { name: "one", networks: ["10.42.0.1/16"] });
  mkdirSync(join(directory.path, "real"));
  symlinkSync("real", join(directory.path, "linked"));
  symlinkSync("loop", join(directory.path, "loop"));
  Bun.spawnSync(["mkfifo", join(directory.path, "pipe.yml")]);
  file("nebula.conf", "# by hand\npki:\n  blocklist: []\n");
  file("other.crt", "-----BEGIN CERTIFICATE-----\n");
  expect((await bring()).notes).toEqual([
    '"linked" is a link to a directory; not read.',
    '"loop" is a link to nothing; not read.',
    '"pipe.yml" is not a file; not read.',
    '"nebula.conf" looks like a configuration, but its name does not end in .yml or .yaml; not read.',
    '"other.crt" holds no certificate of Nebula; not read.',
  ]);
});
