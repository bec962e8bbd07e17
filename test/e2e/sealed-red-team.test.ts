// The red team against sealed nodes: a control plane of which a thief has everything, real nodes, and real packets. Each row
// of the table is an attack: what the thief sends to nodes, the certificate of his own machine, and the packets that must not
// arrive, while a packet of an administrator does. Before the seal is enforced the same packets arrive.

import { expect, test } from "bun:test";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { stringifyYaml, type YamlMap } from "../../src/base/yaml.ts";
import { keyHash } from "../../src/node/files/granted/sealed-node.ts";
import { makeHostKey, publicOfHostKey } from "../../src/pki/keys.ts";
import { decodeBundle } from "../../src/pki/bundle.ts";
import { fingerprint, type CertificateAuthority, type HostTemplate } from "../../src/pki/nebula.ts";
import { sealHash } from "../../src/pki/seal.ts";
import type { Seal, SealedNode, SealedState, SignedSeal } from "../../src/protocol/seals/seal.ts";
import { buildAgent, startControlPlane } from "../support/agent.ts";
import { statusOf } from "../support/daemon.ts";
import { asRoot, describeEngines, type Engine } from "../support/engines.ts";
import { joinMember, nodesOf, type Member } from "../support/members.ts";
import { makeLan, type Lan } from "../support/namespaces.ts";
import { inFull } from "../support/soak.ts";
import { makeOrganization, startEngine, type Organization, type RunningEngine } from "../support/overlay.ts";
import { nextSigned, signedBy } from "../support/seals.ts";
import { makeSshKey } from "../support/ssh-keys.ts";
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
} from "../support/stolen-plane.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { until } from "../support/until.ts";

buildAgent();

/** Closed: hub (their lighthouse), db, admin. Unprivileged: web, which is a lighthouse too. */
const closed = ["hub", "db", "admin"];
const agents = ["hub", "web", "db", "admin"];
const thiefAt = "10.77.0.66";
/** The median of all attacks: a busy machine has single ones wait. */
const toldWithinMs = 5000;
/** group: administrators on any node. name: the node admin on any node. web: anyone on web. none: no rule has it. */
const ports = { group: 5002, name: 5005, web: 5003, none: 5004 };

const listener = (file: string) => `
  const { appendFileSync } = require("node:fs");
  for (const port of [${Object.values(ports).join()}])
    await Bun.udpSocket({ hostname: "0.0.0.0", port, socket: { data(socket, data) {
      appendFileSync(${JSON.stringify(file)}, port + " " + data.toString() + "\\n");
    } } });
  setInterval(() => {}, 1000);`;

const sender = (targets: readonly [string, number][], text: string) => `
  const socket = await Bun.udpSocket({ hostname: "0.0.0.0" });
  for (;;) { for (const [to, port] of ${JSON.stringify(targets)}) {
    try { socket.send(${JSON.stringify(text)}, port, to); } catch {} } await Bun.sleep(40); }`;

/** As a control plane renders the rules of the seal. */
const rulesOf = (node: string): YamlMap[] => [
  { port: String(ports.group), proto: "udp", group: "admins" },
  { port: String(ports.name), proto: "udp", host: "admin" },
  ...(node === "web" ? [{ port: String(ports.web), proto: "udp", host: "any" }] : []),
  { port: "any", proto: "icmp", host: "any" },
];

type Identity = Pick<HostTemplate, "name" | "networks"> & Partial<HostTemplate>;

class Scene implements AsyncDisposable {
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
  readonly engine: Engine;
  readonly root: string;
  constructor(engine: Engine, root: string) {
    this.engine = engine;
    this.root = root;
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
      const flags = name === "hub" || name === "web" ? hub : ["--listen-port", "4242"];
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
    const isClosed = closed.includes(name);
    const identity = {
      name,
      networks: [`${this.member(name).ip}/16`],
      groups: name === "admin" ? ["admins"] : [],
      publicKey: this.#key(name),
    };
    const hostCrt = this.#certificates.get(name) ?? mint(isClosed ? this.offline : this.online, identity);
    this.#certificates.set(name, hostCrt);
    const files = { "ca.crt": caPem(this.offline) + caPem(this.online), "host.crt": hostCrt };
    const told = withConfig(withFiles(answer, files), { firewall: { inbound: rulesOf(name) } });
    return withSeals(told, this.seals);
  };
  readonly #certificates = new Map<string, string>();
  certificateOf = (name: string) => this.#certificates.get(name) ?? "";

  /** The next seal. */
  async sign(mode: Seal["mode"], sealing: { revoked: string[] } = { revoked: [] }): Promise<void> {
    const shown: unknown = await (await this.acme.api("GET", "/api/org/acme/seals/")).json();
    const now = nextSigned(shown, [this.signer]).seal;
    const nodes: SealedNode[] = agents.map((name) => ({
      name,
      addresses: [this.member(name).ip],
      lighthouse: name === "hub" || name === "web",
      relay: name === "hub" || name === "web",
      routes: [],
      exit: [],
      ...(closed.includes(name)
        ? {
            identity: {
              kind: "closed",
              key: keyHash(this.#key(name)),
              groups: name === "admin" ? ["admins"] : [],
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
      ],
      sealing: { offline: [fingerprint(this.offline.certificate)], privileged: ["admins"], ...sealing },
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
    { ms = 8000, enough = (all: string[]) => all.length > 0 } = {},
  ) {
    const text = `${from}-${++this.#changes}`;
    const list = targets.map(([name, port]): [string, number] => [this.addressOf(name), ports[port]]);
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

type Target = readonly [node: string, port: keyof typeof ports];
const privileged: Target[] = [
  ["db", "group"],
  ["web", "group"],
  ["db", "name"],
  ["web", "name"],
  ["db", "none"],
  ["web", "none"],
];

type Attack = {
  what: string;
  /** The thief's machine; the former one if not given. */
  machine?: (scene: Scene) => Promise<void>;
  /** What nodes are sent; the honest answer if not given. */
  alter?: (scene: Scene) => Alter;
  /** What these nodes tell of it. */
  told?: readonly [nodes: readonly string[], text: string];
  /** His packets to what anyone may do on web: true, pass; false, do not. */
  reachesWeb?: boolean;
  /** Packets of other nodes that must not come to the thief's machine. */
  astray?: readonly string[];
  /** The same packets arrive at these, before the seal is enforced. */
  before?: readonly string[];
};

const plain: Identity = { name: "thief", networks: [`${thiefAt}/16`] };
const as =
  (change: Partial<Identity>, ca: "online" | "foreign" = "online", settings?: YamlMap) =>
  (scene: Scene) =>
    scene.startThief(scene[ca], { ...plain, ...change }, settings);
const copyOfAdmin = (scene: Scene) =>
  scene.startThief(scene.online, {
    name: "admin",
    networks: [`${scene.addressOf("admin")}/16`],
    groups: ["admins"],
  });
const everyone = { port: "any", proto: "any", host: "any" };
const open = { firewall: { inbound: [everyone] } };
const opened =
  (change: YamlMap = open) =>
  (scene: Scene): Alter =>
  (answer, name) =>
    withConfig(scene.honest(answer, name), change);

/** A seal of the thief's, by which everyone may do everything. */
const ownSeal =
  (make: (seal: Seal, scene: Scene) => SignedSeal[]) =>
  (scene: Scene): Alter =>
  (answer, name) => {
    const { seal, hash } = scene;
    const rules = [
      ...seal.state.rules,
      { ...anyRule, peer: { any: true as const }, target: { any: true as const } },
    ];
    const next = { ...seal, number: seal.number + 1, previous: hash, state: { ...seal.state, rules } };
    return withSeals(withConfig(scene.honest(answer, name), open), make(next, scene));
  };
const anyRule = { direction: "inbound", protocol: "any", ports: "any" } as const;
const byEve = (seal: Seal, { eve }: Scene) => ({ ...seal, signers: [{ name: "eve", key: eve.line }] });
const all = agents;
const refusedSeal = "the newest seal";

const attacks: Attack[] = [
  {
    what: "a certificate with a privileged group",
    machine: as({ groups: ["admins"] }),
    reachesWeb: true,
    before: ["web group"],
  },
  {
    what: "the name of a sealed node",
    machine: as({ name: "admin" }),
    reachesWeb: true,
    before: ["web name"],
  },
  {
    what: "name, address and groups of a sealed node",
    machine: copyOfAdmin,
    reachesWeb: true,
    before: ["db group", "db name"],
  },
  { what: "an address outside of the pool", machine: as({ networks: ["10.99.0.66/8"] }), reachesWeb: false },
  {
    what: "a certificate that outlives its CA",
    machine: as({ notAfter: Math.floor(Date.now() / 1000) + 400 * 86_400 }),
    reachesWeb: false,
  },
  { what: "networks behind his node", machine: as({ unsafeNetworks: ["0.0.0.0/0"] }), reachesWeb: false },
  {
    what: "a foreign CA",
    machine: as({ groups: ["admins"] }, "foreign"),
    alter: (scene) => (answer, name) => {
      const own = scene.honest(answer, name);
      return withFiles(own, { "ca.crt": own.files["ca.crt"] + caPem(scene.foreign) });
    },
    told: [all, "the seal has no such CA"],
    reachesWeb: false,
    before: ["web group", "db group"],
  },
  {
    what: "a port in config.yml",
    machine: as({}),
    alter: opened(),
    told: [all, "firewall.inbound any/any"],
    reachesWeb: true,
    before: ["web none", "db none"],
  },
  {
    what: "long flows, as by overrides",
    alter: opened({ firewall: { conntrack: { tcp_timeout: "168h" } } }),
    told: [all, "firewall.conntrack.tcp_timeout"],
    reachesWeb: true,
  },
  {
    what: "a route through his node",
    alter: opened({ tun: { unsafe_routes: [{ route: "192.168.9.0/24", via: thiefAt }] } }),
    told: [all, "tun.unsafe_routes 192.168.9.0/24"],
    reachesWeb: true,
    astray: ["192.168.9.5"],
  },
  {
    what: "an exit of his own",
    alter: (scene) => (answer, name) =>
      withNode(scene.honest(answer, name), {
        exits: [{ name: "thief", ip_address: thiefAt, ip_address6: null }],
      }),
    told: [all, "the exit thief"],
    reachesWeb: true,
  },
  {
    what: "a lighthouse of his own",
    alter: opened({
      static_host_map: { [thiefAt]: ["192.0.2.5:4242"] },
      lighthouse: { hosts: [thiefAt] },
    }),
    told: [all, `lighthouse.hosts ${thiefAt}`],
    reachesWeb: true,
    astray: [thiefAt],
  },
  {
    what: "a relay of his own",
    alter: opened({ static_host_map: { [thiefAt]: ["192.0.2.5:4242"] }, relay: { relays: [thiefAt] } }),
    told: [all, `relay.relays ${thiefAt}`],
    reachesWeb: true,
    astray: [thiefAt],
  },
  {
    what: "a certificate of the online CA for a sealed node",
    alter: (scene) => (answer, name) => {
      const own = scene.honest(answer, name);
      if (!closed.includes(name)) return own;
      const [present] = decodeBundle(own.files["host.crt"]);
      if (present === undefined) return own;
      return withFiles(own, { "host.crt": mint(scene.online, { ...present }) });
    },
    told: [closed, "no offline CA of the seal has signed it"],
    reachesWeb: true,
  },
  {
    what: "a wide prefix in a node's own certificate",
    alter: (scene) => (answer, name) => {
      const own = scene.honest(answer, name);
      const [present] = decodeBundle(own.files["host.crt"]);
      if (name !== "web" || present === undefined) return own;
      const networks = [`${scene.addressOf("web")}/8`];
      return withFiles(own, { "host.crt": mint(scene.online, { ...present, networks }) });
    },
    told: [["web"], "the new configuration"],
    reachesWeb: true,
  },
  {
    what: "another network in a node's own certificate",
    alter: (scene) => (answer, name) => {
      const own = scene.honest(answer, name);
      const [present] = decodeBundle(own.files["host.crt"]);
      if (name !== "web" || present === undefined) return own;
      const networks = [`${scene.addressOf("web")}/24`];
      return withFiles(own, { "host.crt": mint(scene.online, { ...present, networks }) });
    },
    told: [["web"], "the seal has no network"],
    reachesWeb: true,
  },
  {
    what: "no seal any more",
    alter: (scene) => (answer, name) => withSeals(withConfig(scene.honest(answer, name), open), undefined),
    told: [all, "firewall.inbound any/any"],
    reachesWeb: true,
  },
  {
    what: "an older seal",
    alter: (scene) => (answer, name) =>
      withSeals(withConfig(scene.honest(answer, name), open), scene.seals.slice(0, 1)),
    told: [all, "its number is 1"],
    reachesWeb: true,
  },
  {
    what: "another seal with the same number",
    alter: ownSeal((next, scene) => [signedBy({ ...next, number: next.number - 1 }, [scene.signer])]),
    told: [all, "there is another seal"],
    reachesWeb: true,
  },
  {
    what: "exchanged signers",
    alter: ownSeal((next, scene) => [signedBy(byEve(next, scene), [scene.eve])]),
    told: [all, refusedSeal],
    reachesWeb: true,
  },
  {
    what: "too few signatures: a new signer who did not sign",
    alter: ownSeal((next, scene) => {
      const signers = [...next.signers, { name: "eve", key: scene.eve.line }];
      return [signedBy({ ...next, signers }, [scene.signer])];
    }),
    told: [all, "has not signed it"],
    reachesWeb: true,
  },
  {
    what: "a signature for another organization",
    alter: ownSeal((next, { signer }) => {
      const state = { ...next.state, organization: "other" };
      return [signedBy({ ...next, state }, [signer])];
    }),
    told: [all, "of another organization"],
    reachesWeb: true,
  },
  {
    what: "a signature for another namespace",
    alter: ownSeal((next, { signer }) => [signedBy(next, [signer], "file")]),
    told: [all, refusedSeal],
    reachesWeb: true,
  },
  {
    what: "a flood of seals",
    alter: ownSeal((next, scene) =>
      Array.from({ length: 400 }, () => ({
        ...signedBy(byEve(next, scene), []),
        signatures: ["x".repeat(4000)],
      })),
    ),
    told: [all, refusedSeal],
    reachesWeb: true,
  },
];

/** After how many ms nodes tell of it; 0: they were sent nothing. */
async function attack(scene: Scene, row: Attack, isEnforced: boolean): Promise<number> {
  const { what, machine, alter, told, reachesWeb = true, astray = [], before = [] } = row;
  await machine?.(scene);
  const sent = performance.now();
  if (alter !== undefined) {
    await scene.send(alter(scene));
    if (told !== undefined) await scene.told(...told);
  }
  const toldMs = alter === undefined ? 0 : performance.now() - sent;
  if (!isEnforced) {
    // The attack is a real one.
    const arrived = await scene.packets("thief", privileged, {
      enough: (all) => before.every((each) => all.includes(each)),
    });
    for (const each of before) expect([what, each, arrived.includes(each)]).toEqual([what, each, true]);
    return toldMs;
  }
  const hears = astray.map(
    (to) =>
      [
        to,
        scene.lan.host("db").spawn([process.execPath, "-e", sender([[to, ports.none]], "astray")]),
      ] as const,
  );
  const isThere = (all: string[]) => all.includes("web web");
  const thief = await scene.packets("thief", [...privileged, ["web", "web"]], {
    ms: reachesWeb ? 8000 : 1500,
    enough: isThere,
  });
  expect([what, thief]).toEqual([what, reachesWeb ? ["web web"] : []]);
  // What passes for anyone passed: his tunnel is there, and his other packets had the same time to arrive.
  if (reachesWeb) expect([what, await scene.packets("thief", privileged, { ms: 400 })]).toEqual([what, []]);
  const legitimate = await scene.packets(
    "admin",
    [
      ["db", "group"],
      ["db", "name"],
    ],
    { enough: (all) => all.length === 2 },
  );
  expect([what, legitimate]).toEqual([what, ["db group", "db name"]]);
  for (const [, child] of hears) child.kill("SIGKILL");
  expect([what, readFileSync(scene.heardBy("thief"), "utf8")]).toEqual([what, ""]);
  return toldMs;
}

asRoot("with root", () => {
  describeEngines(
    "a thief of a control plane against sealed nodes",
    (engine) => {
      test("changes nothing of what packets may do, and each attempt is told", async () => {
        using directory = temporaryDirectory();
        await using scene = new Scene(engine, directory.path);
        await scene.open();
        await scene.send(scene.honest);
        await scene.told(all, "", 60_000);
        scene.lan.host("thief").run(["ip", "addr", "add", "192.168.9.5/32", "dev", "lo"]);
        for (const row of attacks.filter(({ before }) => before !== undefined))
          await attack(scene, row, false);

        await scene.sign("enforce");
        await scene.send(scene.honest);
        await scene.told(all, "", 60_000);
        const tellings: number[] = [];
        for (const row of attacks) tellings.push(await attack(scene, row, true));
        const told = tellings.filter((ms) => ms > 0).sort((a, b) => a - b);
        const median = told[Math.floor(told.length / 2)] ?? Infinity;
        process.stderr.write(
          `engine ${engine.version}: told after ${Math.round(median)} ms, at most ${Math.round(told.at(-1) ?? 0)} ms\n`,
        );
        expect(median).toBeLessThan(toldWithinMs);

        // The one attack that needs the next seal: a stolen, privileged laptop, whose revocation the thief withholds.
        const admin = scene.member("admin");
        const stolen = readFileSync(join(admin.places.configRoot, "acme/host.key"), "utf8");
        await scene.send(scene.honest);
        await scene.told(all, "");
        admin.daemon.signal("SIGTERM");
        await admin.daemon.exited;
        await scene.runThief(scene.certificateOf("admin"), stolen, "the laptop");
        expect(await scene.packets("thief", [["db", "group"]])).toEqual(["db group"]);
        const prints = decodeBundle(scene.certificateOf("admin")).map(fingerprint);
        await scene.sign("enforce", { revoked: prints });
        await scene.send(scene.honest);
        await scene.told(["hub", "web", "db"], "");
        await until(async () => (await scene.packets("thief", privileged, { ms: 1500 })).length === 0, {
          what: "the revocation of the thief's laptop",
          ms: 30_000,
        });
        expect(await scene.packets("thief", privileged, { ms: 1500 })).toEqual([]);
        expect((await nodesOf(scene.acme)).length).toBe(agents.length);
      }, 240_000);
    },
    inFull ? undefined : ["1.12"],
  );
});
