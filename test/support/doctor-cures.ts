// Cures that doctor prints, and how each is proved: on a booted machine that has the fault (systemd-cures.test.ts).

import * as v from "valibot";
import { paths } from "./paths.ts";
import type { MachineNode, Site } from "./machine-node.ts";
import type { Host } from "./namespaces.ts";
import type { Machine } from "./nspawn.ts";

/**
 * `remedy`: a part of what the doctor prints, which is typed as it stands; of a sentence, `typed` is what is typed, and
 * `first` what it asks of a person before. `undo`: what the test made, and the cure leaves.
 */
export type Cure = {
  name: string;
  id: string;
  make(node: MachineNode, site: Site): string | Promise<string>;
  remedy: string;
  first?: string | ((node: MachineNode, site: Site) => Promise<string>);
  typed?: string | ((remedy: string) => string);
  /** It takes more than some seconds. */
  isSlow?: boolean;
  undo?: string | ((node: MachineNode, site: Site) => Promise<void>);
};

const root = "/etc/overlay-agent/acme";
const overrides = `${root}/overrides.yml`;
const set = (yaml: string) => `echo '${yaml}' > ${overrides}`;

export const cures: readonly Cure[] = [
  {
    name: "a key that others can read",
    id: "files",
    make: () => `chmod 644 ${root}/host.key`,
    remedy: `chmod 600 ${root}/host.key`,
  },
  {
    name: "a file that is missing",
    isSlow: true,
    id: "files",
    make: () => `rm "$(readlink -f ${root}/host.crt)"`,
    remedy: "agent sync-config",
  },
  {
    name: "a file that another user can change",
    id: "files",
    make: () => `chown nobody ${root}/node-config.json`,
    remedy: `chown root: ${root}/current/node-config.json`,
  },
  {
    name: "an X.509 certificate that is damaged",
    id: "node-certificate",
    make: () => `echo damaged > "$(readlink -f ${root}/node.crt)"`,
    remedy: "agent sync-config, else agent register --force",
    typed: "agent sync-config",
  },
  {
    name: "settings of this machine that are not applied",
    isSlow: true,
    id: "configuration",
    make: () => set("logging: { level: warning }"),
    remedy: "agent sync-config",
    undo: `rm ${overrides}; agent sync-config`,
  },
  {
    name: "settings of this machine that are damaged",
    id: "configuration",
    make: () => set("tun: [") + "; agent sync-config; true",
    remedy: `Correct ${overrides}, then run: agent sync-config`,
    first: `rm ${overrides}`,
    typed: "agent sync-config",
  },
  {
    name: "no route to the overlay",
    isSlow: true,
    id: "route",
    make: () => "ip route del 10.77.0.0/16",
    remedy: "agent restart acme",
  },
  {
    name: "another interface with the overlay's route",
    isSlow: true,
    id: "route",
    make: () =>
      "ip link add other type veth peer name other2 && ip link set other2 up && ip link set other up && ip route replace 10.77.0.0/16 dev other metric 0",
    remedy: "Disable other, then run: agent restart acme",
    first: "ip link del other",
    typed: "agent restart acme",
  },
  {
    name: "no route to an attached network",
    isSlow: true,
    id: "interfaces",
    make: () => "ip route del 192.0.2.0/24 dev eth0",
    remedy: "ip route replace 192.0.2.0/24 dev eth0 src ",
  },
  {
    name: "a network inside of the overlay, which is meant",
    id: "interfaces",
    make: () =>
      "ip link add lan1 type veth peer name lan2 && ip link set lan2 up && ip link set lan1 up && ip addr add 10.77.200.4/24 dev lan1",
    remedy: "If this is meant: agent sync-config --org-slug acme --allow-overlap 10.77.0.0/16",
    typed: "agent sync-config --org-slug acme --allow-overlap 10.77.0.0/16",
    undo: "ip link del lan1; agent sync-config --org-slug acme --allow-overlap none",
  },
  {
    name: "a port that another program has",
    isSlow: true,
    id: "port",
    make: ({ machine }, site) => takePort(machine, site.host("vm")),
    remedy: `set listen.port in ${overrides} and run: agent sync-config`,
    first: set("listen: { port: 4568 }"),
    typed: "agent sync-config; agent start acme",
    undo: `rm ${overrides}; agent sync-config; agent restart acme`,
  },
  {
    name: "an engine that is stopped, and should run",
    isSlow: true,
    id: "traffic",
    make: () => "systemctl stop overlay-agent@acme",
    remedy: "agent start acme",
  },
  {
    name: "a unit that was edited",
    isSlow: true,
    id: "units",
    make: () => "echo '# edited' >> /etc/systemd/system/overlay-agent@.service && systemctl daemon-reload",
    remedy: "agent install-systemd",
  },
  {
    name: "a program that others can replace",
    id: "units",
    make: () => "chmod 777 /usr/local/bin/agent",
    remedy: "chmod go-w /usr/local/bin/agent",
    undo: "chmod 755 /usr/local/bin/agent",
  },
  {
    name: "large packets that are lost",
    isSlow: true,
    id: "traffic",
    make: async ({ machine }, site) => {
      const { run } = site.host("vm");
      run(["nft", "add", "table", "inet", "small"]);
      run(["nft", "add", "chain", "inet", "small", "in", "{ type filter hook input priority 0; }"]);
      run([
        "nft",
        "add",
        "rule",
        "inet",
        "small",
        "in",
        "meta",
        "length",
        ">",
        "1250",
        "ip",
        "protocol",
        "udp",
        "drop",
      ]);
      await machine.run("agent status --check");
      return "true";
    },
    remedy: `In ${overrides} set tun: { mtu: `,
    first: `agent doctor | sed -nE 's/.*set (tun: [^}]*}).*/\\1/p' | head -1 > /root/mtu && cp /root/mtu ${overrides} && grep mtu ${overrides}`,
    typed: "agent sync-config --org-slug acme",
    undo: async ({ machine }, site) => {
      site.host("vm").run(["nft", "delete", "table", "inet", "small"]);
      await machine.must(`rm ${overrides}; agent sync-config`);
      await machine.until("agent status | head -1 | grep -q 'running as'", 60_000);
    },
  },
  {
    name: "keys that do not belong to the certificate",
    isSlow: true,
    id: "keys",
    make: () => `: > "$(readlink -f ${root}/host.key)"`,
    remedy: "agent register --force --api-base http",
    // What the administrator types, on the control plane.
    first: async (_, { plane }) => {
      await plane.api("DELETE", paths.node(plane.slug, await idOf(plane, "vm")));
      return `echo ${await plane.makeToken(["--node", "vm"])} > /root/token`;
    },
    typed: (remedy) => remedy.replace("FILE", "/root/token").replace(/, with .*/, ""),
    // A check of the former node may run for up to a minute.
    undo: "systemctl stop overlay-agent-auth.service; systemctl start --no-block overlay-agent-auth.service",
  },
  {
    name: "a route into the internet that the organization sends",
    isSlow: true,
    id: "configuration",
    make: async (_, site) => {
      await routeBehindLighthouse(site, ["203.0.113.0/24"]);
      return "agent sync-config; true";
    },
    remedy: "agent sync-config --org-slug acme --allow-routes 203.0.113.0/24",
    typed: (remedy) => remedy.replace(/^.*: agent/, "agent"),
    undo: endRoutes,
  },
  {
    name: "a route into the internet from before it needed a permission",
    isSlow: true,
    id: "permissions",
    make: async (_, site) => {
      await routeBehindLighthouse(site, ["203.0.113.0/24"]);
      const before = JSON.stringify({ routes: [], former_routes: ["203.0.113.0/24"] });
      return `echo '${before}' > ${root}/permissions.json && chmod 600 ${root}/permissions.json && agent sync-config`;
    },
    remedy: "Allow it for good: agent sync-config --org-slug acme --allow-routes 203.0.113.0/24",
    typed: (remedy) => remedy.replace(/^.*: agent/, "agent"),
    undo: endRoutes,
  },
  {
    name: "names in the file of names that are not current",
    id: "names",
    make: () =>
      `echo 127.0.0.1 localhost > /etc/hosts && agent names --on && ${untilNamed} && systemctl stop overlay-agent-names && ${damageNames}`,
    remedy: "systemctl restart overlay-agent-names",
    undo: "agent names --off",
  },
  {
    name: "names that are left in the file of names",
    id: "names",
    make: () =>
      "echo 127.0.0.1 localhost > /etc/hosts && agent names --on && for try in $(seq 50); do grep -q lighthouse /etc/hosts && break; sleep 0.2; done; grep lighthouse /etc/hosts && cp /etc/hosts /root/hosts && agent names --off && cp /root/hosts /etc/hosts",
    remedy: "agent names --clear",
  },
];

const untilNamed = "for try in $(seq 50); do grep -q lighthouse /etc/hosts && break; sleep 0.2; done";
/** What another program does that writes the file anew from a former copy. */
const damageNames = "sed -i 's/ lighthouse/ lighthous/' /etc/hosts";

async function idOf(plane: Site["plane"], node: string): Promise<number> {
  const nodes = v.parse(
    v.array(v.looseObject({ id: v.number(), name: v.string() })),
    await plane.api("GET", paths.nodes(plane.slug)),
  );
  return nodes.find(({ name }) => name === node)?.id ?? 0;
}

async function routeBehindLighthouse({ plane }: Site, subnets: readonly string[]): Promise<void> {
  const id = await idOf(plane, "lighthouse");
  await plane.api("PATCH", paths.node(plane.slug, id), { subnets });
}

async function endRoutes({ machine }: MachineNode, site: Site): Promise<void> {
  await routeBehindLighthouse(site, []);
  await machine.must("agent sync-config --org-slug acme --allow-routes none");
}

/** Another program takes a port that an administrator of this machine chose, while the engine is stopped. */
async function takePort(machine: Machine, { inside }: Host): Promise<string> {
  await machine.must(`${set("listen: { port: 4567 }")} && agent sync-config && agent stop acme`);
  const open = "await Bun.udpSocket({ hostname: '0.0.0.0', port: 4567 }); console.log('open')";
  const code = `${open}; setTimeout(() => process.exit(), 60_000)`;
  const child = Bun.spawn(inside([process.execPath, "-e", code]), { stdout: "pipe" });
  const { done } = await child.stdout.getReader().read();
  if (done) throw new Error("No program took the port");
  return "agent start acme; true";
}
