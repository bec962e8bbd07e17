// The scene of the red team against sealed nodes: a control plane of which a thief has everything, real nodes, and his machine.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { stringifyYaml, type YamlMap } from "../../src/base/yaml.ts";
import { keyHash } from "../../src/node/files/granted/sealed-node.ts";
import { makeHostKey, publicOfHostKey } from "../../src/pki/keys.ts";
import { fingerprint, type CertificateAuthority, type HostTemplate } from "../../src/pki/nebula.ts";
import { sealHash } from "../../src/pki/seal.ts";
import type { Seal, SealedNode, SealedState, SignedSeal } from "../../src/protocol/seals/seal.ts";
import { startControlPlane } from "./agent.ts";
import { statusOf } from "./daemon.ts";
import type { Engine } from "./engines.ts";
import { joinMember, type Member } from "./members.ts";
import { makeLan, type Lan } from "./namespaces.ts";
import { makeOrganization, startEngine, type Organization, type RunningEngine } from "./overlay.ts";
import { nextSigned, signedBy } from "./seals.ts";
import { sealedAddressOf, sealedNetworkOf } from "./sealed-network.ts";
import { makeSshKey } from "./ssh-keys.ts";
import {
  authority,
  caPem,
  mint,
  startStolenPlane,
  withConfig,
  withFiles,
  withNode,
  withSeals,
  type Alter,
} from "./stolen-plane.ts";
import { until } from "./until.ts";

/** Closed: hub (their lighthouse), db, admin. Unprivileged: web, which is a lighthouse too. */
export const closed = ["hub", "db", "admin"];
export const agents = ["hub", "web", "db", "admin"];
export const thiefAt = "10.77.0.66";
/** Behind db, where nodes are open. */
export const behindDb = { network: "192.168.9.0/24", address: "192.168.9.5" };
/** group: administrators on any node. name: the node admin on any node. web: anyone on web. none: no rule has it. */
export const ports = { group: 5002, name: 5005, web: 5003, none: 5004 };
/** By TCP, where nodes are open. group: administrators on db. */
export const streams = { group: 5006 };

const listener = (file: string) => `
  const { appendFileSync } = require("node:fs");
  for (const port of [${Object.values(ports).join()}])
    await Bun.udpSocket({ hostname: "::", port, socket: { data(socket, data) {
      appendFileSync(${JSON.stringify(file)}, port + " " + data.toString() + "\\n");
    } } });
  setInterval(() => {}, 1000);`;

export const sender = (targets: readonly [string, number][], text: string) => `
  const socket = await Bun.udpSocket({ hostname: "::" });
  for (;;) { for (const [to, port] of ${JSON.stringify(targets)}) {
    try { socket.send(${JSON.stringify(text)}, port, to); } catch {} } await Bun.sleep(40); }`;

/** As a control plane renders the rules of the seal. */
const rulesOf = (node: string): YamlMap[] => [
  { port: String(ports.group), proto: "udp", group: "admins" },
  { port: String(ports.name), proto: "udp", host: "admin" },
  ...(node === "web" ? [{ port: String(ports.web), proto: "udp", host: "any" }] : []),
  { port: "any", proto: "icmp", host: "any" },
];

const streamRules = [
  {
    direction: "inbound",
    protocol: "tcp",
    ports: String(streams.group),
    peer: { group: "admins" },
    target: { node: "db" },
  },
] as const;

export type Identity = Pick<HostTemplate, "name" | "networks"> & Partial<HostTemplate>;

export class Scene implements AsyncDisposable {
  readonly lan: Lan = makeLan([...agents, "thief"]);
  readonly members = new Map<string, Member>();
  readonly offline = authority("offline");
  readonly online = authority("online", { networks: ["10.77.0.0/16"], unsafeNetworks: ["0.0.0.0/32"] });
  /** That the thief made. */
  readonly foreign = authority("foreign");
  readonly stack = new AsyncDisposableStack();
  acme!: Organization;
  plane!: ReturnType<typeof startStolenPlane>;
  seals: SignedSeal[] = [];
  seal!: Seal;
  signer!: { file: string; line: string };
  eve!: { file: string; line: string };
  #thief: RunningEngine | undefined;
  #as = "";
  #changes = 0;
  /** Administrators may use it as an exit. */
  #exit = "";
  readonly engine: Engine;
  readonly root: string;
  /** These are open, in a sealed network, and none is closed: hub is lighthouse and relay, db a router. Empty: `closed` are. */
  readonly inside: readonly string[];
  readonly network6: string;
  constructor(engine: Engine, root: string, inside: readonly string[] = []) {
    this.engine = engine;
    this.root = root;
    this.inside = inside;
    this.network6 = sealedNetworkOf(fingerprint(this.offline.certificate));
  }

  member(name: string): Member {
    const found = this.members.get(name);
    if (found === undefined) throw new Error(name);
    return found;
  }

  async open(): Promise<void> {
    const { lan, root, stack } = this;
    stack.defer(() => lan.remove());
    const plane = stack.use(await startControlPlane(join(root, "server")));
    this.plane = stack.use(startStolenPlane(plane.url));
    this.acme = await makeOrganization(plane);
    const throughThief = { ...this.acme, plane: { ...plane, url: this.plane.url } };
    const token = await this.acme.makeToken(["--uses", "9", "--lighthouse"]);
    for (const name of agents) {
      const host = lan.host(name);
      const hub = ["--is-lighthouse", "--public-ip", host.address];
      const flags = this.#isHub(name) ? hub : ["--listen-port", "4242"];
      const joined = await joinMember(throughThief, host, root, this.engine.nebula, token, flags);
      this.members.set(name, stack.use(joined));
    }
    for (const { name } of lan.hosts) {
      writeFileSync(this.heardBy(name), "");
      lan.host(name).spawn([process.execPath, "-e", listener(this.heardBy(name))]);
    }
    await this.acme.api("POST", "/api/org/acme/groups/", { name: "nobody" });
    [this.signer, this.eve] = ["ann", "eve"].map((each) => makeSshKey(join(root, each))) as [
      { file: string; line: string },
      { file: string; line: string },
    ];
    await this.sign("observe");
  }

  heardBy(name: string): string {
    return join(this.root, `heard-${name}`);
  }

  #key(name: string): Uint8Array {
    const { places } = this.member(name);
    return publicOfHostKey(readFileSync(join(places.configRoot, "acme/host.key"), "utf8"));
  }

  /** An honest control plane: offline certificates for closed nodes, both CAs, all seals. */
  readonly honest: Alter = (answer, name) => {
    const hostCrt = this.#certificates.get(name) ?? this.#signed(name);
    this.#certificates.set(name, hostCrt);
    const files = { "ca.crt": caPem(this.offline) + caPem(this.online), "host.crt": hostCrt };
    const told = withConfig(withFiles(answer, files), { firewall: { inbound: rulesOf(name) } });
    const exits = name === "admin" && this.#exit !== "" ? [this.#exit] : [];
    const known = exits.map((each) => ({ name: each, ip_address: this.addressOf(each), ip_address6: null }));
    return withSeals(withNode(told, { exits: known }), this.seals);
  };
  /** From the next seal on. */
  makeExit(name: string): void {
    this.#exit = name;
    this.#certificates.delete(name);
  }
  #signed(name: string): string {
    const isSealed = this.#isSealed(name);
    const networks = [`${this.member(name).ip}/16`];
    const identity = {
      name,
      networks,
      unsafeNetworks: [...this.#routesOf(name), ...(name === this.#exit ? ["0.0.0.0/0", "::/0"] : [])],
      groups: name === "admin" ? ["admins"] : [],
      publicKey: this.#key(name),
    };
    if (!this.inside.includes(name)) return mint(isSealed ? this.offline : this.online, identity);
    // Not of version 1 beside: a lighthouse that first hears a node by that one never learns its other address.
    const both = [...networks, `${this.insideOf(name)}/64`];
    return mint(this.offline, { ...identity, version: 2, networks: both });
  }
  readonly #isHub = (name: string) => name === "hub" || (name === "web" && this.inside.length === 0);
  readonly #isSealed = (name: string) => (this.inside.length > 0 ? this.inside : closed).includes(name);
  readonly #routesOf = (name: string) =>
    name === "db" && this.inside.includes(name) ? [behindDb.network] : [];
  readonly #certificates = new Map<string, string>();
  /** The address in the sealed network. */
  insideOf = (name: string) => sealedAddressOf(this.network6, keyHash(this.#key(name)));
  certificateOf = (name: string) => this.#certificates.get(name) ?? "";

  /** The next seal. */
  async sign(mode: Seal["mode"], sealing: { revoked: string[] } = { revoked: [] }): Promise<void> {
    const shown: unknown = await (await this.acme.api("GET", "/api/org/acme/seals/")).json();
    const now = nextSigned(shown, [this.signer]).seal;
    const isOpen = this.inside.length > 0;
    const nodes: SealedNode[] = agents.map((name) => ({
      name,
      addresses: [this.member(name).ip],
      lighthouse: this.#isHub(name),
      relay: this.#isHub(name),
      routes: this.#routesOf(name),
      exit: name === this.#exit ? ["admins"] : [],
      ...(this.#isSealed(name)
        ? {
            identity: {
              kind: isOpen ? "open" : "closed",
              key: keyHash(this.#key(name)),
              groups: name === "admin" ? ["admins"] : [],
              ...(isOpen ? { address6: this.insideOf(name) } : {}),
            },
          }
        : {}),
    }));
    const udp = { direction: "inbound", protocol: "udp", target: { any: true } } as const;
    const any = { ports: "any", peer: { any: true }, target: { any: true } } as const;
    const state: SealedState = {
      ...now.state,
      authorities: [this.offline, this.online].map((each) => fingerprint(each.certificate)).sort(),
      nodes,
      rules: [
        { ...udp, ports: String(ports.group), peer: { group: "admins" } },
        { ...udp, ports: String(ports.name), peer: { node: "admin" } },
        { ...udp, ports: String(ports.web), peer: { any: true }, target: { node: "web" } },
        { direction: "inbound", protocol: "icmp", ...any },
        { direction: "outbound", protocol: "any", ...any },
        ...(isOpen ? streamRules : []),
      ],
      sealing: {
        offline: [fingerprint(this.offline.certificate)],
        privileged: ["admins"],
        ...(isOpen ? { network6: this.network6 } : {}),
        ...sealing,
      },
    };
    const last = this.seals.at(-1);
    const links =
      last === undefined
        ? {}
        : {
            number: this.seal.number + 1,
            first: this.seal.first ?? sealHash(last.text),
            previous: sealHash(last.text),
          };
    this.seal = { ...now, ...links, mode, state };
    this.seals = [...this.seals, signedBy(this.seal, [this.signer])];
  }

  /** A change for which all nodes come, and which is none for them. */
  async send(alter: Alter): Promise<void> {
    this.plane.alter = alter;
    const made = await this.acme.api("POST", "/api/org/acme/firewall_rules/", {
      direction: "inbound",
      protocol: "tcp",
      ports: String(1000 + ++this.#changes),
      peer: { any: true },
      target: { group: "nobody" },
    });
    if (!made.ok) throw new Error(await made.text());
  }

  /** Until each of these nodes tells this of its seal. */
  async told(names: readonly string[], text: string, ms = 30_000): Promise<void> {
    for (const name of names) {
      let said = "";
      await until(
        async () => {
          const { seal } = await statusOf(this.member(name).places, "acme");
          said = JSON.stringify(seal ?? null);
          return text === "" ? seal?.objections.length === 0 && seal.hash === this.hash : said.includes(text);
        },
        { ms, everyMs: 50 },
      ).catch(() => {
        throw new Error(
          `${name} does not tell "${text}", but ${said}\n${this.member(name).daemon.log().slice(-3000)}`,
        );
      });
    }
  }

  get hash(): string {
    return sealHash(this.seals.at(-1)?.text ?? "");
  }

  /** The thief's machine, with a certificate that he minted. */
  async startThief(ca: CertificateAuthority, identity: Identity, settings: YamlMap = {}): Promise<void> {
    const { privatePem } = makeHostKey();
    await this.runThief(
      mint(ca, { ...identity, publicKey: publicOfHostKey(privatePem) }),
      privatePem,
      identity,
      settings,
    );
  }

  async runThief(certificate: string, key: string, as: unknown, settings: YamlMap = {}): Promise<void> {
    const wanted = JSON.stringify([as, settings]);
    if (wanted === this.#as) return;
    this.#as = wanted;
    this.#thief?.[Symbol.dispose]();
    await this.#thief?.exited;
    const directory = join(this.root, `thief${++this.#changes}`, "thief");
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    const trusted = [this.offline, this.online, this.foreign].map(caPem).join("");
    for (const [name, text] of Object.entries({
      "ca.crt": trusted,
      "host.crt": certificate,
      "host.key": key,
    }))
      writeFileSync(join(directory, name), text);
    const at = (name: string) => join(directory, name);
    const known = [...this.members.values()].map(({ ip, host }) => [ip, [`${host.address}:4242`]]);
    const everything = [{ port: "any", proto: "any", host: "any" }];
    const config: YamlMap = {
      pki: { ca: at("ca.crt"), cert: at("host.crt"), key: at("host.key") },
      static_host_map: Object.fromEntries(known),
      lighthouse: { am_lighthouse: true, interval: 1, hosts: [] },
      listen: { host: "0.0.0.0", port: 4242 },
      tun: { dev: `thief${this.#changes}`, mtu: 1300 },
      firewall: { outbound: everything, inbound: everything },
      logging: { level: "info", format: "json" },
      ...settings,
    };
    writeFileSync(at("config.yml"), stringifyYaml(config));
    this.#thief = await startEngine(this.lan.host("thief"), this.engine.nebula, directory);
  }

  /** Sends to these until one of `arriving` has arrived three times, or for `ms`; those that arrived. */
  async packets(
    from: string,
    targets: readonly Target[],
    { ms = 8000, enough = (all: string[]) => all.length > 0, at = this.addressOf } = {},
  ) {
    const text = `${from}-${++this.#changes}`;
    const list = targets.map(([name, port]): [string, number] => [at(name), ports[port]]);
    const child = this.lan.host(from).spawn([process.execPath, "-e", sender(list, text)]);
    const arrived = () =>
      targets
        .filter(([name, port]) =>
          readFileSync(this.heardBy(name), "utf8").includes(`${ports[port]} ${text}\n`),
        )
        .map(([name, port]) => `${name} ${port}`);
    try {
      for (const end = performance.now() + ms; performance.now() < end && !enough(arrived());)
        await Bun.sleep(30);
      return arrived();
    } finally {
      child.kill("SIGKILL");
      await child.exited;
    }
  }

  addressOf = (name: string) => this.members.get(name)?.ip ?? thiefAt;

  async [Symbol.asyncDispose](): Promise<void> {
    this.#thief?.[Symbol.dispose]();
    await this.stack.disposeAsync();
  }
}

export type Target = readonly [node: string, port: keyof typeof ports];
