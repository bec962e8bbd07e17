// The demo's network: one namespace for each host, joined by a bridge in our own. We already run in new network and pid
// namespaces; when they end, the whole network disappears. This file must not mount anything: a mount would reach the
// machine outside (demo.ts).

import { existsSync } from "node:fs";
import { AppError } from "../../base/errors.ts";
import type { System } from "../../base/system.ts";

const directories = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

export type Network = {
  /** Underlay address of each host, in the order of `hosts`. */
  addresses: readonly string[];
  /** The argv that runs a program inside a host. It replaces itself with that program, so signals reach it. */
  inside(host: string, argv: readonly string[]): string[];
  /** Releases the hosts. Each namespace disappears with its last process. */
  remove(): void;
};

/** Absolute path of an installed system program, or undefined. */
export function systemProgram(name: string): string | undefined {
  return directories.map((directory) => `${directory}/${name}`).find((path) => existsSync(path));
}

export function requireProgram(name: string): string {
  const path = systemProgram(name);
  if (path === undefined) throw new AppError("failed", `${name} is not installed on this machine`);
  return path;
}

/** Creates the hosts, each with one interface on the same Ethernet: 192.0.2.1, 192.0.2.2, … (RFC 5737). */
export async function makeNetwork(hosts: readonly string[], system: Pick<System, "run">): Promise<Network> {
  const ip = requireProgram("ip");
  const nsenter = requireProgram("nsenter");
  const addresses = hosts.map((_, at) => `192.0.2.${at + 1}`);
  const holders = new Map(
    await Promise.all(hosts.map(async (host) => [host, await holdNamespace()] as const)),
  );
  const inside = (host: string, argv: readonly string[]) => [
    nsenter,
    `--net=/proc/${holders.get(host)?.pid ?? 0}/ns/net`,
    "--",
    ...argv,
  ];
  const ports = hosts.flatMap((host, at) => [
    `link add port${at} type veth peer name eth0 netns ${holders.get(host)?.pid ?? 0}`,
    `link set port${at} master bridge up`,
  ]);
  await batch(
    [ip],
    ["link set lo up", "link add bridge type bridge", "link set bridge up", ...ports],
    system,
  );
  for (const [at, host] of hosts.entries()) {
    const address = `addr add ${addresses[at] ?? ""}/24 dev eth0`;
    await batch(inside(host, [ip]), [address, "link set lo up", "link set eth0 up"], system);
  }
  const remove = () => {
    for (const holder of holders.values()) holder.kill("SIGKILL");
  };
  return { addresses, inside, remove };
}

/** A process that only keeps its own network namespace alive. */
async function holdNamespace(): Promise<Bun.Subprocess> {
  const script = "echo there; exec sleep infinity";
  const holder = Bun.spawn([requireProgram("unshare"), "--net", requireProgram("sh"), "-c", script], {
    env: { PATH: directories.join(":") },
    stdin: "ignore",
    stdout: "pipe",
    stderr: "ignore",
  });
  // Its line says that the namespace is there.
  const { done } = await holder.stdout.getReader().read();
  if (done) throw new AppError("failed", "Cannot create a network namespace");
  return holder;
}

/** Runs `ip` with these lines. Throws if one fails. */
async function batch(
  ip: readonly string[],
  lines: readonly string[],
  system: Pick<System, "run">,
): Promise<void> {
  const result = await system.run([...ip, "-batch", "-"], { input: `${lines.join("\n")}\n` });
  if (result.status === 0) return;
  const reason = result.stderr.trim().split("\n")[0] ?? "";
  throw new AppError("failed", `Cannot create the demo's network: ${reason}`);
}
