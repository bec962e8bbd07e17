// How each system resolves names of nodes for its programs, and where the service of names listens and keeps its
// state. Loads nothing: `agent status` imports it.

import { brand, namesStatePath } from "../brand.ts";

/** `resolved`: and /etc/hosts where programs do not ask systemd-resolved. */
type SystemWay = "resolved" | "nrpt" | "resolver_files";

export type NamesPlaces = {
  way: SystemWay;
  /** The state that the service of names writes for other commands. */
  statePath: string;
  /** The daemon serves names while this file exists. Undefined where a systemd unit serves them. */
  switchPath?: string;
};

const ways: Readonly<Record<string, SystemWay>> = { win32: "nrpt", darwin: "resolver_files" };

export function namesPlaces({ platform }: { platform: string }, stateDb: string): NamesPlaces {
  const way = ways[platform];
  if (way === undefined) return { way: "resolved", statePath: namesStatePath };
  const directory = stateDb.replace(/[^/\\]*$/, "");
  return { way, statePath: `${directory}names-state.json`, switchPath: `${directory}names-on.json` };
}

/**
 * The address of the resolver. A loopback address of our own, so that the usual addresses stay free for the user's
 * own name server; macOS has only 127.0.0.1, and Windows asks only port 53. Forwarders are configured with this
 * address, so it never changes.
 */
const addresses: Readonly<Record<string, { host: string; port: number }>> = {
  win32: { host: "127.0.0.9", port: 53 },
  darwin: { host: "127.0.0.1", port: 5399 },
};
export const resolverAddress = addresses[process.platform] ?? { host: "127.0.0.9", port: 5399 };

/** The command that shows which program uses a port. */
export function portCommand(port: number, { platform }: { platform: string } = process): string {
  if (platform === "win32") return `netstat -abno | findstr ":${port} "`;
  if (platform === "darwin") return `sudo lsof -nP -i :${port}`;
  return `ss -lnup 'sport = :${port}'; ss -lntp 'sport = :${port}'`;
}

/** The command that shows which name servers programs ask for which names. */
export function routesCommand(way: SystemWay, name: string): string {
  if (way === "nrpt") return "Get-DnsClientNrptPolicy -Effective";
  return way === "resolver_files" ? "scutil --dns" : `resolvectl query ${name}`;
}

/** The command that restarts the service of names. */
export function restartNames({ way }: Pick<NamesPlaces, "way">): string {
  if (way === "nrpt") return `schtasks /end /tn ${brand.id} & schtasks /run /tn ${brand.id}`;
  if (way === "resolver_files") return `sudo launchctl kickstart -k system/${brand.launchdLabel}`;
  return `systemctl restart ${brand.id}-names`;
}
