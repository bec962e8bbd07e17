// Whether this node has tunnels with the peers that it tries to reach: without a direct path, they need a relay.

import { join } from "node:path";
import { brand } from "../../brand.ts";
import { quoteWord } from "../../base/quote.ts";
import { overlayRoles, staticHosts } from "../files/config/read-config.ts";
import { peerNames } from "../files/hosts.ts";
import type { Organization } from "../files/organizations.ts";
import { failedHandshakes } from "../health/handshakes.ts";
import { ok, skipped, warn, type Finding } from "./check.ts";
import { readText } from "../../base/open-file.ts";

const mostNames = 10;

/** `log`: the last lines of the engine's log; undefined if this user may not see them. `nowMs`: since 1970. */
export function canMeet(
  { slug, directory, config }: Pick<Organization, "slug" | "directory" | "config">,
  log: readonly string[] | undefined,
  nowMs: number,
): Finding {
  if (log === undefined) return skipped("cannot see the engine's log");
  const configYml = readText(join(directory, "config.yml"));
  const { relays, isRelay } = overlayRoles(configYml);
  const hubs = staticHosts(configYml).map(({ overlay }) => overlay);
  // `netcheck` asks lighthouses for this node's own address. They then tell the engine that another node looks for it,
  // and the engine tries a handshake with itself.
  const notPeers = new Set([...hubs, config.ip_address, config.ip_address6]);
  const failed = failedHandshakes(log, nowMs).filter((address) => !notPeers.has(address));
  if (failed.length === 0) return ok("no handshake with a peer timed out in the last minute");
  const nameOf = peerNames(slug, directory);
  const names = failed
    .slice(0, mostNames)
    .map((address) => `${config.name} and ${nameOf(address)}`)
    .join(", ");
  if (isRelay) return ok(`no handshake between ${names}: the peer is off, or its packets do not arrive here`);
  if (relays.length > 0) return ok(`no handshake between ${names}, also not by a relay: the peer may be off`);
  return warn(
    `no handshake between ${names}: unless the peer is off, they cannot meet, because there is no direct path and no relay`,
    `Ask the organization's administrator to make a node with a public address a relay: ${brand.executable} admin node update ${quoteWord(slug)} NODE --relay`,
  );
}
