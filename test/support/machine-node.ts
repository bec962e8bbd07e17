// The setup of the systemd tests: a network with a control plane, a manually started lighthouse, and machines that boot
// with our executable.

import { copyFileSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { agent, buildAgent, runAgent } from "./agent.ts";
import { startFarPlane, type FarPlane } from "./far-plane.ts";
import { makeLan, type Host } from "./namespaces.ts";
import { makeMachine, type Machine } from "./nspawn.ts";
import { registerArguments, startEngine } from "./overlay.ts";
import { temporaryDirectory } from "./temporary.ts";

/** Shell command for a machine: pings the lighthouse through the overlay. */
export const pingPeer = "ping -c 1 -W 1 10.77.0.1";

export type Site = AsyncDisposable & {
  plane: FarPlane;
  /** The host of the lighthouse. */
  peer: Host;
  /** The host of the machine of that name, for tests that boot nothing there. */
  host(name: string): Host;
  /** Creates and boots the machine of that name. */
  boot(name: string): Promise<MachineNode>;
};

export type MachineNode = AsyncDisposable & {
  machine: Machine;
  /** Runs `agent register` inside with a new token. Returns its standard output. */
  register(mode: "server" | "desktop"): Promise<string>;
};

export type SiteFiles = {
  /** The machines' /usr/local/bin/agent. */
  executable?: string;
  /** The tree of the machines. Default: the usual one. */
  base?: string;
  /** Adds shared files of the machines, below `root`. */
  prepare?(root: string): Promise<void>;
};

/** A network for machines of these names. The lighthouse is 10.77.0.1 in the overlay. */
export async function makeSite(names: readonly string[], files: SiteFiles = {}): Promise<Site> {
  buildAgent();
  const stack = new AsyncDisposableStack();
  try {
    const { path: directory } = stack.use(temporaryDirectory());
    const layer = join(directory, "layer");
    const place = join(layer, "usr/local/bin/agent");
    mkdirSync(dirname(place), { recursive: true });
    copyFileSync(files.executable ?? agent, place);
    await files.prepare?.(layer);
    const lan = stack.use(makeLan(["plane", "peer", ...names]));
    const plane = stack.use(await startFarPlane(lan.host("plane"), join(directory, "plane")));
    await addLighthouse(plane, lan.host("peer"), directory, stack);
    return {
      plane,
      peer: lan.host("peer"),
      host: lan.host,
      boot: (name) => bootNode(plane, lan.host(name), layer, files.base),
      [Symbol.asyncDispose]: () => stack.disposeAsync(),
    };
  } catch (error) {
    await stack.disposeAsync();
    throw error;
  }
}

/** After a power cut: the network of a machine outlives it here, and its kernel would have forgotten that. */
export function forgetKernel(host: Host): void {
  const script = `nft flush ruleset
    for link in $(ip -o link | sed 's/^[0-9]*: \\([^:@]*\\).*/\\1/'); do
      case $link in lo | eth0) ;; *) ip link del "$link" ;; esac
    done
    for family in 4 6; do
      for priority in $(seq 7700 7709); do while ip -$family rule del priority $priority; do :; done; done
      ip -$family route flush table 7783
    done
    echo 0 > /proc/sys/net/ipv4/conf/all/forwarding; echo 0 > /proc/sys/net/ipv6/conf/all/forwarding`;
  Bun.spawnSync(host.inside(["sh", "-c", script]), { stderr: "ignore" });
}

async function bootNode(
  plane: FarPlane,
  host: Host,
  layer: string,
  base: string | undefined,
): Promise<MachineNode> {
  const machine = makeMachine(host.namespace, layer, base);
  try {
    await machine.boot();
  } catch (error) {
    await machine[Symbol.asyncDispose]();
    throw error;
  }
  return {
    machine,
    async register(mode) {
      const token = await plane.makeToken();
      const where = `--api-base ${plane.url} --allow-plain-http --org-slug ${plane.slug} --node-name ${host.name}`;
      return machine.must(
        `echo ${token} | agent register ${where} --mode ${mode} --registration-token-file -`,
      );
    },
    [Symbol.asyncDispose]: () => machine[Symbol.asyncDispose](),
  };
}

async function addLighthouse(
  plane: FarPlane,
  peer: Host,
  directory: string,
  stack: AsyncDisposableStack,
): Promise<void> {
  const flags = ["--is-lighthouse", "--public-ip", peer.address, "--allow-plain-http"];
  const configRoot = join(directory, "peer");
  mkdirSync(configRoot);
  const args = registerArguments({ slug: plane.slug, plane }, configRoot, "lighthouse", flags);
  const input = await plane.makeToken(["--lighthouse"]);
  const { status, stderr } = await runAgent(args, { input, inside: peer.inside });
  if (status !== 0) throw new Error(`The lighthouse could not be registered: ${stderr}`);
  stack.use(await startEngine(peer, "/usr/bin/nebula", join(configRoot, plane.slug)));
}
