// Lets packets of other nodes out to the internet, where root of this machine offers that and the control plane made it an
// exit: translates their addresses, answers their questions for names by this machine's own name server, and keeps them out
// of the private networks around it. Which nodes may send them, the engine decides by the firewall rules of this node.

import { dirname } from "node:path";
import { readTextIfThere, textOrEmpty } from "../../base/files.ts";
import {
  parseAddress,
  parseNetworks,
  privateNetworks,
  providerNetworks,
  holdsNetwork,
  specialNetworks,
  type Network,
} from "../../base/ip.ts";
import type { Log } from "../../base/log.ts";
import { repeat } from "../../base/within.ts";
import type { System } from "../../base/system.ts";
import { chainsOf, keepTable, setOf, versioned } from "../../platform/nftables.ts";
import { insideExit } from "../files/granted/exits.ts";
import { readMachineAlone, type Machine, type Tenant } from "../files/granted/machine-facts.ts";
import { subnetsIn } from "../files/granted/networks.ts";

const everyMs = 5000;

type Deps = {
  slug: string;
  directory: string;
  log: Log;
  system: Pick<System, "run" | "platform" | "machineState" | "sleep">;
};

/** If the kernel does not forward, nodes that use the exit must not get answers to their echoes. */
const isForwarding = () => readTextIfThere("/proc/sys/net/ipv4/ip_forward")?.trim() === "1";

/**
 * The chains of this organization's table of nftables, as `keepTable` takes them; undefined without an overlay address. `subnets`:
 * those behind this node. `isOpen`: the kernel forwards, so echoes of nodes that use the exit are answered.
 */
export function exitBody(
  slug: string,
  machine: Machine,
  { subnets, isOpen }: { subnets: readonly string[]; isOpen: boolean },
): string | undefined {
  // `tenants`: the organizations of this machine (machine-facts.ts).
  const tenant = machine.tenants.find((each) => each.slug === slug);
  const device = tenant?.inForce.device;
  const ip = tenant?.addresses.find((each) => !each.includes(":"));
  if (tenant === undefined || device === undefined || ip === undefined) return undefined;
  // The default routes in the certificate of an exit are no networks behind it.
  const behind = parseNetworks(subnets).filter(({ prefix }) => prefix > 0);
  const others = machine.tenants.flatMap((each) => (each === tenant ? [] : (each.inForce.device ?? [])));
  // By a name that `versioned` makes of the rules, keepTable sees whether they are in force already.
  return versioned(
    chainsOf([
      {
        name: "forward",
        // After the filters of other programs, which have priority 0. A packet that either drops is dropped.
        hook: "filter hook forward priority 10",
        rules: forwardRules(tenant, behind, others).map((each) => `iifname "${device}" ${each}`),
      },
      {
        name: "input",
        hook: "filter hook input priority 10",
        rules: inputRules(tenant, behind, isOpen).map((each) => `iifname "${device}" ${each}`),
      },
      {
        name: "names",
        hook: "nat hook prerouting priority -100",
        rules: [
          // Nodes that use this exit probe it by this address: the node itself answers.
          `iifname "${device}" ip daddr ${insideExit} icmp type echo-request dnat ip to ${ip}`,
          ...nameServerRules(device, ip, machine),
        ],
      },
      {
        name: "source",
        hook: "nat hook postrouting priority 100",
        rules: [
          // Root says for each of these networks whether it is masqueraded (routing/router.ts).
          ...bothFamilies(behind, "return"),
          ...parseNetworks(tenant.networks).map(
            ({ family, text }) => `${familyWord[family]} saddr ${text} oifname != "${device}" masquerade`,
          ),
        ],
      },
    ]),
  );
}

/** What passes through this machine from the overlay. `others`: devices of its other organizations. */
function forwardRules(tenant: Tenant, behind: readonly Network[], others: readonly string[]): string[] {
  return [
    "ct state established,related accept",
    ...bothFamilies(behind, "accept"),
    // Questions that `names` has sent to this machine's name server, which may be in one of the closed networks below.
    ...tenant.addresses.map((each) => `ct status dnat ${toAddress(each)} accept`),
    ...bothFamilies(closedNetworks(tenant.networks), "drop"),
    ...new Set(["ov-*", ...others].map((each) => `oifname "${each}" drop`)),
  ];
}

/** What this machine itself accepts from the overlay: the engine also lets in packets to its addresses outside the overlay. */
function inputRules(tenant: Tenant, behind: readonly Network[], isOpen: boolean): string[] {
  return [
    // The kernel translates a known flow even after the rule of `names` is gone.
    ...(isOpen ? [] : [`ct original ip daddr ${insideExit} drop`]),
    "ct state established,related accept",
    ...bothFamilies(behind, "accept"),
    ...[...tenant.addresses, insideExit].map((each) => `ct status dnat ${toAddress(each)} accept`),
    ...tenant.addresses.map((each) => `${each.includes(":") ? "ip6" : "ip"} daddr ${each} accept`),
    // Link-local and multicast addresses, which lead no further than this machine.
    "ip6 daddr { fe80::/10, ff00::/8 } accept",
    "drop",
  ];
}

const familyWord = { 4: "ip", 6: "ip6" } as const;

/** A rule for each family that has one of these networks. */
function bothFamilies(networks: readonly { family: 4 | 6; text: string }[], verdict: string): string[] {
  return ([4, 6] as const).flatMap((family) => {
    const texts = networks.flatMap((each) => (each.family === family ? [each.text] : []));
    return texts.length === 0 ? [] : [`${familyWord[family]} daddr ${setOf(texts)} ${verdict}`];
  });
}

/** Questions for names to this node's overlay address go to the name server of this machine. */
function nameServerRules(device: string, ip: string, machine: Machine): string[] {
  const server = nameServer(machine);
  if (server === undefined) return [];
  return [`iifname "${device}" ip daddr ${ip} meta l4proto { tcp, udp } th dport 53 dnat ip to ${server}`];
}

/**
 * Networks that other nodes must not reach through this machine: private and special ones, the overlay, and addresses of its provider
 * that answer this machine alone (such as metadata). A set of nftables must not hold a network that lies inside another one.
 */
function closedNetworks(overlay: readonly string[]) {
  const closed = [
    ...privateNetworks(),
    ...specialNetworks(),
    ...providerNetworks(),
    ...parseNetworks(overlay),
  ];
  return closed.filter((each) => !closed.some((other) => other !== each && holdsNetwork(other, each)));
}

/**
 * Packets of our own translations. A port of this machine that another program translates, such as that of a container, is reached
 * at the overlay's address alone, where the engine's rules count.
 */
const toAddress = (address: string) => `ct original ${address.includes(":") ? "ip6" : "ip"} daddr ${address}`;

/** A name server on this machine's loopback does not count: packets of other nodes do not reach it. */
function nameServer({ nameServers }: Machine): string | undefined {
  return nameServers.find((each) => parseAddress(each)?.family === 4 && !each.startsWith("127."));
}

/** Runs until the signal. A change of the machine's name server or interface is taken within seconds. Does not reject. */
export async function serveExit({ slug, directory, system, log }: Deps, signal: AbortSignal): Promise<void> {
  /** Why the last step could not keep the table. Logged once in a row. */
  let lastReason: string | undefined;
  const step = async () => {
    const machine = await readMachineAlone(dirname(directory), system);
    const subnets = subnetsIn(textOrEmpty(directory, "host.crt"));
    const body = exitBody(slug, machine, { subnets, isOpen: isForwarding() });
    const reason =
      body === undefined ? "its configuration has no interface" : await keepTable("exit", slug, body, system);
    if (reason !== undefined && reason !== lastReason)
      log.error("Cannot let packets of other nodes out", { team: slug, reason });
    lastReason = reason;
  };
  const logFailure = (reason: string) =>
    log.warn("Cannot let packets of other nodes out for now", { team: slug, reason });
  await repeat(step, { everyMs, signal, system, failed: logFailure });
}

/** Ends what serveExit does: removes its table. */
export const stopServing = ({ slug, system }: Pick<Deps, "slug" | "system">): Promise<unknown> =>
  keepTable("exit", slug, undefined, system);
