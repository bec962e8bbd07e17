// One check-in: what this node says of itself, and what the control plane answers.

import { uptime } from "node:os";
import { buildInfo } from "../build-info.ts";
import type { CheckinAnswer, CheckinRequest } from "../protocol.ts";
import type { Client } from "./client.ts";
import { readSyncState, type Organization } from "./organizations.ts";

export type Report = {
  /** The engine's version, where one is installed. */
  overlayVersion: string | undefined;
  overlayState: "running" | "stopped" | undefined;
  /** The version that this node last heard of and applied, if newer than its files (a change that did not concern it). */
  configVersion: number | undefined;
  /** The engine's log has shown the reload of that version. */
  confirmed: boolean;
};

/** Holds up to `waitS` seconds for news. */
export function checkIn(
  { slug, config, directory }: Organization,
  client: Pick<Client, "checkin">,
  report: Report,
  options: { waitS?: number; signal?: AbortSignal; probe?: CheckinRequest["probe"] } = {},
): Promise<CheckinAnswer> {
  const version = report.configVersion ?? readSyncState(directory)?.config_version ?? config.config_version;
  const request: CheckinRequest = {
    version: buildInfo.version,
    uptime: Math.floor(uptime()),
    config_version: version,
    ...(report.confirmed ? { confirmed_config_version: version } : {}),
    ...(report.overlayVersion === undefined ? {} : { overlay_version: report.overlayVersion }),
    ...(report.overlayState === undefined ? {} : { overlay_state: report.overlayState }),
    ...(options.probe === undefined ? {} : { probe: options.probe }),
  };
  return client.checkin(slug, config.node_id, request, options);
}
