// Two machines of a tailnet in hosts of a test network, with its control server and its relay (tailnet.go) in a third.

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { goProgram, type GoProgram } from "../support/go-programs.ts";
import type { Host } from "../support/namespaces.ts";
import { until } from "../support/until.ts";
import { print } from "./measure.ts";

/** Builds a program of others. False, with a sentence, where it cannot be built. */
export function built(name: GoProgram): boolean {
  try {
    goProgram(name);
    return true;
  } catch (error) {
    const why = error instanceof Error ? error.message.split("\n").at(-1) : String(error);
    print(`Without ${name}, which cannot be built here: ${why}`);
    return false;
  }
}

export const hasTailscale = (): boolean => (["tailnet", "tailscaled", "tailscale"] as const).every(built);

/** The addresses and processes of both machines, which have met. */
export async function startTailscale(
  directory: string,
  [hub, client, server]: readonly Host[],
): Promise<{ addresses: string[]; pids: number[] }> {
  if (hub === undefined || client === undefined || server === undefined) throw new Error("Three hosts");
  const [tailnet, daemon, cli] = (["tailnet", "tailscaled", "tailscale"] as const).map((name) =>
    goProgram(name),
  );
  const control = Bun.spawn(hub.inside([tailnet ?? "", hub.address]), { stdout: "pipe", stderr: "ignore" });
  const { value } = await control.stdout.getReader().read();
  const url = new TextDecoder().decode(value).trim();
  const pids: number[] = [];
  const addresses: string[] = [];
  for (const host of [client, server]) {
    const own = join(directory, `tailscale-${host.name}`);
    mkdirSync(own);
    const socket = join(own, "socket");
    writeFileSync(join(own, "resolv.conf"), "");
    // In a mount namespace of its own: it may write the name servers of its machine.
    const script = `mount --make-rprivate / && mount --bind ${own}/resolv.conf /etc/resolv.conf && exec ${daemon} --tun=ts0 --state=mem: --statedir=${own} --socket=${socket} --no-logs-no-support`;
    const child = host.spawn(["unshare", "--mount", "sh", "-c", script], {
      env: { PATH: process.env["PATH"] ?? "" },
    });
    pids.push(child.pid);
    const ask = (...words: string[]) => host.run([cli ?? "", `--socket=${socket}`, ...words]);
    await until(
      () => Bun.spawnSync(host.inside([cli ?? "", `--socket=${socket}`, "status"])).stdout.length > 0,
      { ms: 30_000, everyMs: 200 },
    );
    ask("up", `--login-server=${url}`, "--accept-dns=false", `--hostname=${host.name}`, "--timeout=30s");
    addresses.push(ask("ip", "-4").trim());
  }
  // The first packets go through the relay.
  client.run([
    cli ?? "",
    `--socket=${join(directory, `tailscale-${client.name}`, "socket")}`,
    "ping",
    "--c=20",
    "--until-direct",
    addresses[1] ?? "",
  ]);
  return { addresses, pids };
}
