// The demo's network: one namespace a host, joined by a bridge in a namespace of its own. The caller has put us
// into fresh network and mount namespaces, with which all of it vanishes; nothing here cleans up.

import { existsSync } from "node:fs";
import { AppError } from "../../errors.ts";
import type { System } from "../../system.ts";

const directories = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
const hub = "hub";

export type Network = {
  /** Underlay address of each host, in the order of their names. */
  addresses: readonly string[];
  /** argv that runs the given one inside a host. It becomes that program: signals reach it. */
  inside(host: string, argv: readonly string[]): string[];
};

/** Absolute path of a program of the operating system, or undefined. */
export function systemProgram(name: string): string | undefined {
  return directories.map((directory) => `${directory}/${name}`).find((path) => existsSync(path));
}

export function requireProgram(name: string): string {
  const path = systemProgram(name);
  if (path === undefined) throw new AppError("failed", `${name} is not installed on this machine`);
  return path;
}

/** Makes the hosts, each with one interface on the same Ethernet, 192.0.2.1 and so on (RFC 5737). */
export async function makeNetwork(hosts: readonly string[], system: Pick<System, "run">): Promise<Network> {
  const ip = requireProgram("ip");
  const nsenter = requireProgram("nsenter");
  const addresses = hosts.map((_, at) => `192.0.2.${at + 1}`);
  // Named namespaces are files in /run/netns, which an ordinary user could not write.
  await must([requireProgram("mount"), "-t", "tmpfs", "tmpfs", "/run"], system);
  await batch(
    ip,
    [],
    ["link set lo up", `netns add ${hub}`, ...hosts.map((host) => `netns add ${host}`)],
    system,
  );
  const ports = hosts.map((_, at) => `port${at + 1}`);
  await batch(
    ip,
    ["-n", hub],
    [
      "link add bridge type bridge",
      "link set bridge up",
      ...hosts.flatMap((host, at) => [
        `link add ${ports[at] ?? ""} type veth peer name eth0 netns ${host}`,
        `link set ${ports[at] ?? ""} master bridge up`,
      ]),
    ],
    system,
  );
  for (const [at, host] of hosts.entries()) {
    const address = `addr add ${addresses[at] ?? ""}/24 dev eth0`;
    await batch(ip, ["-n", host], [address, "link set lo up", "link set eth0 up"], system);
  }
  return {
    addresses,
    inside: (host, argv) => [nsenter, `--net=/run/netns/${host}`, "--", ...argv],
  };
}

async function batch(
  ip: string,
  where: readonly string[],
  lines: readonly string[],
  system: Pick<System, "run">,
): Promise<void> {
  await must([ip, ...where, "-batch", "-"], system, `${lines.join("\n")}\n`);
}

async function must(argv: readonly string[], system: Pick<System, "run">, input?: string): Promise<void> {
  const result = await system.run(argv, input === undefined ? {} : { input });
  if (result.status === 0) return;
  const reason = result.stderr.trim().split("\n")[0] ?? "";
  throw new AppError("failed", `Cannot make the demo's network (${argv.join(" ")}): ${reason}`);
}
