// A relay reports how much it forwards for others, and stops forwarding when the control plane says that its monthly limit is
// reached.

import { textOrEmpty } from "../../base/files.ts";
import type { RelayedReport } from "../../protocol/traffic-reports.ts";
import { controlSocket } from "../../platform/systemd/control-socket.ts";
import { readRelayed } from "../../platform/network/relay-counter.ts";
import type { System } from "../../base/system.ts";
import { localApi } from "../engine/local-api.ts";
import { isForwarding, listenPort } from "../files/config/read-config.ts";
import type { Organization } from "../files/organizations.ts";

type UsedSystem = Pick<System, "run" | "platform" | "isRoot" | "random" | "sleep">;

/** A relay's counts for the next check-in; undefined where nothing can be counted. */
export async function relayedReport(
  { slug, directory }: Organization,
  system: UsedSystem,
): Promise<RelayedReport | undefined> {
  return readRelayed(slug, listenPort(directory), system);
}

/**
 * The configuration of a paused relay forbids new relayed connections, but the engine keeps those that it has. This closes the
 * tunnels of their peers; engines before 1.12 cannot do that. Does not reject: the next check-in tries again. Called after each
 * check-in whose answer says that the relay is paused.
 */
export async function endForwarding(
  { directory }: Pick<Organization, "directory">,
  system: UsedSystem,
): Promise<void> {
  if (isForwarding(textOrEmpty(directory, "config.yml"))) return;
  const api = localApi(controlSocket(directory), system);
  const relays = await api.relays().catch(() => []);
  const forwarded = relays.filter(({ RelayForAddrs }) =>
    RelayForAddrs.some(({ Type }) => Type === "forwarding"),
  );
  for (const { NebulaAddr } of forwarded) await api.closeTunnel(NebulaAddr).catch(() => undefined);
}
