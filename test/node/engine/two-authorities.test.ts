// What engines do with the certificates of two CAs: the claims of docs/design/sealed.md, which no test of ours alone can
// hold. The thief has the online CA's key. Packets are counted where they arrive, since an answer may take another tunnel.

import { expect, test } from "bun:test";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { stringifyYaml, type YamlMap } from "../../../src/base/yaml.ts";
import { can, parseEngineVersion } from "../../../src/engine/features.ts";
import { encodePem } from "../../../src/pki/bundle.ts";
import { makeHostKey, readHostPublicKey } from "../../../src/pki/keys.ts";
import { fingerprint, makeCa, signCertificate, type CertificateAuthority } from "../../../src/pki/nebula.ts";
import { asRoot, describeEveryEngine, type Engine } from "../../support/engines.ts";
import { makeLan, type Host, type Lan } from "../../support/namespaces.ts";
import { startEngine, type RunningEngine } from "../../support/overlay.ts";
import { temporaryDirectory } from "../../support/temporary.ts";
import { until } from "../../support/until.ts";

const nowS = Math.floor(Date.now() / 1000);
const lifetime = { notBefore: nowS - 600, notAfter: nowS + 86_400 };

type Limits = { networks?: string[]; unsafeNetworks?: string[] };
const authority = (name: string, limits: Limits = {}) => makeCa({ version: 1, name, ...lifetime, ...limits });

/** `home` is the lighthouse, whose inbound rules are tested. `sealed` has the offline CA, `thief` the key of the online one. */
type Name = "home" | "sealed" | "thief";
type Identity = { name: string; networks: string[]; unsafeNetworks?: string[]; groups?: string[] };

const homeAddress = "10.78.0.1";
const ports = { host: 5001, group: 5002, any: 5003 };
const everything = [{ port: "any", proto: "any", host: "any" }];

/** Appends `PORT ADDRESS PORT` of each datagram to a file, in a namespace. */
const listener = (file: string) => `
  const { appendFileSync } = require("node:fs");
  for (const port of [${Object.values(ports).join()}])
    await Bun.udpSocket({ hostname: "::", port, socket: { data(socket, data, from, address) {
      appendFileSync(${JSON.stringify(file)}, port + " " + address.replace("::ffff:", "") + " " + from + "\\n");
    } } });
  setInterval(() => {}, 1000);`;

const sender = (to: string, port: number, from: number) => `
  const hostname = ${JSON.stringify(to.includes(":") ? "::" : "0.0.0.0")};
  const socket = await Bun.udpSocket({ hostname, port: ${from} });
  for (;;) { try { socket.send("x", ${port}, ${JSON.stringify(to)}); } catch {} await Bun.sleep(50); }`;

class Scene implements Disposable {
  readonly lan: Lan = makeLan(["home", "sealed", "thief"]);
  readonly offline = authority("offline");
  readonly bundle: CertificateAuthority[];
  readonly #running = new Map<Name, RunningEngine>();
  #starts = 0;
  readonly engine: Engine;
  readonly root: string;
  readonly online: CertificateAuthority;
  constructor(engine: Engine, root: string, online: CertificateAuthority) {
    this.engine = engine;
    this.root = root;
    this.online = online;
    this.bundle = [this.offline, online];
    for (const { name } of this.lan.hosts) {
      writeFileSync(join(root, name), "");
      this.host(name).spawn([process.execPath, "-e", listener(join(root, name))]);
    }
  }

  host(name: string): Host {
    return this.lan.host(name);
  }

  /** Resolves when its port is free. */
  async stop(name: Name): Promise<void> {
    const engine = this.#running.get(name);
    this.#running.delete(name);
    engine?.[Symbol.dispose]();
    await until(() => engine === undefined || !existsSync(`/proc/${engine.pid}`));
  }

  async start(
    name: Name,
    ca: CertificateAuthority,
    identity: Identity,
    settings: YamlMap = {},
    trusted = this.bundle,
  ): Promise<void> {
    await this.stop(name);
    const directory = join(this.root, `start${++this.#starts}`, name);
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    const { certificate, key } = sign(ca, identity);
    const files = { "ca.crt": trusted.map(pemOf).join(""), "host.crt": certificate, "host.key": key };
    for (const [file, text] of Object.entries(files)) writeFileSync(join(directory, file), text);
    const isHome = name === "home";
    const config: YamlMap = {
      pki: {
        ca: join(directory, "ca.crt"),
        cert: join(directory, "host.crt"),
        key: join(directory, "host.key"),
      },
      static_host_map: isHome ? {} : { [homeAddress]: [`${this.host("home").address}:4242`] },
      lighthouse: { am_lighthouse: isHome, interval: 1, hosts: isHome ? [] : [homeAddress] },
      listen: { host: "0.0.0.0", port: 4242 },
      tun: { dev: `two${this.#starts}`, mtu: 1300 },
      firewall: { outbound: everything, inbound: everything },
      logging: { level: "info", format: "json" },
      ...settings,
    };
    writeFileSync(join(directory, "config.yml"), stringifyYaml(config));
    this.#running.set(name, await startEngine(this.host(name), this.engine.nebula, directory));
  }

  /** Whether datagrams to this address arrive at `at` within `ms`. */
  async arrives(from: Name, to: string, port: number, at: Name, { source = 0, ms = 8000 } = {}) {
    writeFileSync(join(this.root, at), "");
    const child = this.host(from).spawn([process.execPath, "-e", sender(to, port, source)]);
    try {
      for (const end = performance.now() + ms; performance.now() < end; await Bun.sleep(30))
        if (readFileSync(join(this.root, at), "utf8").includes(`${port} `)) return true;
      return false;
    } finally {
      child.kill("SIGKILL");
      await child.exited;
    }
  }

  /** A claim that nothing arrives waits for long enough that a handshake would have been made. */
  async isKept(from: Name, to: string, port: number, at: Name, source = 0): Promise<boolean> {
    return !(await this.arrives(from, to, port, at, { source, ms: 1500 }));
  }

  [Symbol.dispose](): void {
    for (const running of this.#running.values()) running[Symbol.dispose]();
    this.lan.remove();
  }
}

const pemOf = ({ certificate }: CertificateAuthority) => encodePem(certificate);

/** A thief with the key of a CA heeds none of its limits. Version 2 where an address needs it. */
function sign({ certificate, privateKey }: CertificateAuthority, identity: Identity) {
  const { publicPem, privatePem: key } = makeHostKey();
  const unlimited = { certificate: { ...certificate, networks: [], unsafeNetworks: [] }, privateKey };
  const signed = signCertificate(
    {
      version: identity.networks.some((each) => each.includes(":")) ? 2 : 1,
      unsafeNetworks: [],
      groups: [],
      ...identity,
      notBefore: nowS - 300,
      notAfter: nowS + 3600,
      publicKey: readHostPublicKey(publicPem),
    },
    unlimited,
  );
  return { certificate: encodePem(signed), key };
}

const home: Identity = { name: "home", networks: [`${homeAddress}/16`] };
const sealed: Identity = { name: "db", networks: ["10.78.0.5/16"], groups: ["admin"] };
/** All of it but the CA. */
const copied = sealed;
const stranger: Identity = { ...sealed, networks: ["10.78.0.66/16"] };

const rulesFor = (offline: CertificateAuthority): YamlMap => ({
  firewall: {
    outbound: everything,
    inbound: [
      { port: String(ports.host), proto: "udp", host: "db", ca_sha: fingerprint(offline.certificate) },
      { port: String(ports.group), proto: "udp", group: "admin", ca_sha: fingerprint(offline.certificate) },
      { port: String(ports.any), proto: "udp", host: "any" },
    ],
  },
});

asRoot("with root", () => {
  describeEveryEngine("certificates of two CAs", (engine) => {
    test("a rule with ca_sha demands the name or the group, and this CA", async () => {
      using directory = temporaryDirectory();
      using scene = new Scene(engine, directory.path, authority("online"));
      const { offline, online } = scene;
      await scene.start("home", offline, home, rulesFor(offline));
      await scene.start("sealed", offline, sealed);
      await scene.start("thief", online, stranger);
      for (const port of Object.values(ports))
        expect([port, await scene.arrives("sealed", homeAddress, port, "home")]).toEqual([port, true]);
      expect(await scene.arrives("thief", homeAddress, ports.any, "home")).toBeTrue();
      expect(await scene.isKept("thief", homeAddress, ports.host, "home")).toBeTrue();
      expect(await scene.isKept("thief", homeAddress, ports.group, "home")).toBeTrue();
    }, 60_000);

    // The reason why ca_sha alone does not seal a node: the engine looks open flows up by addresses and ports.
    test("a certificate with a peer's address takes over the flows that this peer has open", async () => {
      using directory = temporaryDirectory();
      using scene = new Scene(engine, directory.path, authority("online"));
      const { offline, online } = scene;
      await scene.start("home", offline, home, rulesFor(offline));
      await scene.start("sealed", offline, sealed);
      const source = 40_000;
      expect(await scene.arrives("sealed", homeAddress, ports.group, "home", { source })).toBeTrue();
      await scene.start("thief", online, copied);
      expect(await scene.arrives("thief", homeAddress, ports.any, "home")).toBeTrue();
      expect(await scene.isKept("thief", homeAddress, ports.group, "home", source + 1)).toBeTrue();
      expect(await scene.arrives("thief", homeAddress, ports.group, "home", { source })).toBeTrue();
    }, 60_000);

    test("a node that trusts the offline CA alone has no tunnel with anything else", async () => {
      using directory = temporaryDirectory();
      using scene = new Scene(engine, directory.path, authority("online"));
      const { offline, online } = scene;
      await scene.start("home", offline, home, rulesFor(offline), [offline]);
      await scene.start("thief", online, copied);
      for (const port of Object.values(ports))
        expect([port, await scene.isKept("thief", homeAddress, port, "home")]).toEqual([port, true]);
      await scene.start("sealed", offline, sealed);
      expect(await scene.arrives("sealed", homeAddress, ports.group, "home")).toBeTrue();
    }, 60_000);

    test("limits of a CA hold for prefixes too; its empty list of networks behind nodes permits all", async () => {
      using directory = temporaryDirectory();
      const limited = authority("limited", { networks: ["10.78.0.0/17"], unsafeNetworks: ["0.0.0.0/32"] });
      using scene = new Scene(engine, directory.path, limited);
      const unlimited = authority("unlimited");
      const { offline } = scene;
      scene.bundle.push(unlimited);
      await scene.start("home", offline, home);
      const tunnels = async (ca: CertificateAuthority, networks: string[], unsafeNetworks: string[] = []) => {
        await scene.start("thief", ca, { name: "thief", networks, unsafeNetworks });
        return !(await scene.isKept("thief", homeAddress, ports.any, "home"));
      };
      expect(await tunnels(limited, ["10.78.0.66/17"])).toBeTrue();
      // Why no part of the network can be kept from the online CA: nodes that all reach each other have its whole prefix.
      expect(await tunnels(limited, ["10.78.0.67/16"])).toBeFalse();
      expect(await tunnels(limited, ["10.78.0.68/17"], ["192.168.5.0/24"])).toBeFalse();
      expect(await tunnels(limited, ["10.78.0.69/17"], ["0.0.0.0/0"])).toBeFalse();
      expect(await tunnels(unlimited, ["10.78.0.70/16"], ["192.168.5.0/24"])).toBeTrue();

      // A node whose prefix has no lighthouse does not start: the engine's own program tells what its peers say.
      const [bundle, certificate] = [join(directory.path, "bundle"), join(directory.path, "outside")];
      writeFileSync(bundle, pemOf(limited));
      const verify = (networks: string[]) => {
        writeFileSync(certificate, sign(limited, { name: "thief", networks }).certificate);
        const argv = [engine.nebulaCert, "verify", "-ca", bundle, "-crt", certificate];
        const { exitCode, stdout, stderr } = Bun.spawnSync(argv);
        return [exitCode === 0, `${stdout.toString()}${stderr.toString()}`] as const;
      };
      expect(verify(["10.78.0.66/17"])[0]).toBeTrue();
      expect(verify(["10.78.128.5/17"])).toEqual([false, expect.stringContaining("outside the limitations")]);
    }, 60_000);

    if (!can(parseEngineVersion(engine.version), "certificate_v2")) return;
    test("addresses of a network that the online CA does not have cannot be taken", async () => {
      using directory = temporaryDirectory();
      const online = authority("online", { networks: ["10.78.0.0/16"], unsafeNetworks: ["0.0.0.0/32"] });
      using scene = new Scene(engine, directory.path, online);
      const { offline } = scene;
      const [home6, sealed6] = ["fd78:5ea1::1", "fd78:5ea1::5"];
      const rules = [
        {
          port: String(ports.group),
          proto: "udp",
          group: "admin",
          ca_sha: fingerprint(offline.certificate),
          local_cidr: `${home6}/128`,
        },
        { port: String(ports.any), proto: "udp", host: "any" },
      ];
      const six = {
        static_host_map: { [home6]: [`${scene.host("home").address}:4242`] },
        lighthouse: { am_lighthouse: false, interval: 1, hosts: [home6] },
      };
      await scene.start(
        "home",
        offline,
        { ...home, networks: [...home.networks, `${home6}/64`] },
        { firewall: { outbound: everything, inbound: rules } },
      );
      await scene.start(
        "sealed",
        offline,
        { ...sealed, networks: [...sealed.networks, `${sealed6}/64`] },
        six,
      );
      const source = 40_000;
      expect(await scene.arrives("sealed", home6, ports.group, "home", { source })).toBeTrue();
      expect(await scene.isKept("sealed", homeAddress, ports.group, "home", source)).toBeTrue();

      await scene.start("thief", online, stranger);
      expect(await scene.arrives("thief", "10.78.0.5", ports.any, "sealed")).toBeTrue();
      expect(await scene.arrives("sealed", "10.78.0.66", ports.any, "thief")).toBeTrue();

      await scene.start("thief", online, { ...stranger, networks: [...stranger.networks, `${sealed6}/64`] });
      expect(await scene.isKept("thief", homeAddress, ports.any, "home")).toBeTrue();

      await scene.start("thief", online, copied);
      expect(await scene.arrives("thief", homeAddress, ports.any, "home")).toBeTrue();
      expect(await scene.isKept("thief", homeAddress, ports.group, "home", source)).toBeTrue();
      expect(await scene.arrives("sealed", home6, ports.group, "home", { source: source + 1 })).toBeTrue();
    }, 60_000);
  });
});
