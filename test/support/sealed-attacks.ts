// The attacks of the red team against sealed nodes. Each row is what the thief of a control plane sends to nodes, the certificate
// of his own machine, and what arrives before the seal is enforced.

import type { YamlMap } from "../../src/base/yaml.ts";
import { decodeBundle } from "../../src/pki/bundle.ts";
import type { Seal, SignedSeal } from "../../src/protocol/seals/seal.ts";
import { agents, closed, thiefAt, type Identity, type Scene } from "./sealed-scene.ts";
import { signedBy } from "./seals.ts";
import { caPem, mint, withConfig, withFiles, withNode, withSeals, type Alter } from "./stolen-plane.ts";

export type Attack = {
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

export const attacks: Attack[] = [
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
