// A relay tells its control plane what it forwards for others, and stops forwarding when its monthly limit is reached.

import { join } from "node:path";
import { readTextIfThere } from "../../base/files.ts";
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
 * A paused relay takes no new connections of others, by its configuration; the engine goes on with those that it has. Their
 * tunnels are closed, from engine 1.12 on. Does not reject: the next check-in tries again.
 */
export async function endForwarding(
  { directory }: Pick<Organization, "directory">,
  system: UsedSystem,
): Promise<void> {
  if (isForwarding(readTextIfThere(join(directory, "config.yml")) ?? "")) return;
  const api = localApi(controlSocket(directory), system);
  const relays = await api.relays().catch(() => []);
  for (const { NebulaAddr: address, RelayForAddrs: others } of relays) {
    if (!others.some(({ Type: type }) => type === "forwarding")) continue;
    await api.closeTunnel(address).catch(() => undefined);
  }
}
