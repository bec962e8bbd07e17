// What of the decision about the data plane (data-plane.ts) the running engine has, and why, for `status`, `doctor` and the
// control plane.

import { given } from "../../../base/given.ts";
import type { DataPlaneWhy } from "../../../engine/data-plane-words.ts";
import { firstVersions } from "../../../engine/features.ts";
import { hasOffloads } from "../../../platform/network/kernel.ts";
import type { DataPlaneReport } from "../../../protocol/values.ts";
import { firstTunKernel, firstUdpKernel, wantedBuffer, type DataPlane } from "./data-plane.ts";

/** The settings in force, as `status` shows them. */
export type DataPlaneSeen = DataPlaneReport & {
  why?: DataPlaneWhy;
  /** `why` as a sentence, without a full stop. */
  reason?: string;
};

/** An engine that is started for a decision starts at most this much later, in ms. */
const sameStartMs = 1000;

/** The data plane as `status` shows it. `startedAt`: start of the running engine, ms since 1970. */
export function seenDataPlane(
  plane: DataPlane | undefined,
  startedAt: number | undefined,
): { data_plane?: DataPlaneSeen } {
  if (plane === undefined) return {};
  const device = plane.device === undefined ? undefined : hasOffloads(plane.device);
  return { data_plane: dataPlaneInForce(plane, startedAt, device) };
}

/** The data plane as check-ins report it. The control plane has its own words for the reason. */
export function reportedDataPlane(
  plane: DataPlane | undefined,
  startedAt: number | undefined,
): { data_plane?: DataPlaneReport } {
  const { data_plane: seen } = seenDataPlane(plane, startedAt);
  if (seen === undefined) return {};
  const { reason: _, ...reported } = seen;
  return { data_plane: reported };
}

/** `device`: whether the interface has offloads, if that is known. */
export function dataPlaneInForce(
  plane: DataPlane,
  startedAt: number | undefined,
  device: boolean | undefined,
): DataPlaneSeen {
  const { tun, udp, former, since, buffer } = plane;
  const isOlder = startedAt !== undefined && startedAt < since - sameStartMs;
  const waits = isOlder && (device === undefined || tun.on === former.tun || device !== tun.on);
  const isRefused = startedAt !== undefined && !isOlder && tun.on && device === false;
  // Only an engine that started before that observation is known to send single packets.
  const isUnsegmented = udp.on && startedAt !== undefined && startedAt <= (plane.unsegmented_at ?? 0);
  let why = whyDecided(plane) ?? (isUnsegmented ? "segments" : undefined);
  if (isRefused) why = "refused";
  if (waits) why = "restart";
  return {
    tun_offloads: waits ? former.tun : tun.on && !isRefused,
    udp_offloads: waits ? former.udp : udp.on,
    ...given({ buffer_bytes: buffer }),
    ...(why === undefined ? {} : { why, reason: reasons[why](plane) }),
  };
}

function whyDecided({ tun, udp, is_limited: isLimited }: DataPlane): DataPlaneWhy | undefined {
  const by = [tun, udp].find(({ on }) => !on)?.by;
  if (by !== undefined && by !== "default") return by;
  return isLimited === true ? "limit" : undefined;
}

const reasons: Record<DataPlaneWhy, (plane: DataPlane) => string> = {
  platform: () => "Only Linux has offloads",
  engine: ({ engine }) =>
    `Engine ${engine === "" ? "of unknown version" : engine} has no offloads: ${firstVersions.offloads.join(".")} and later carry many times as much`,
  kernel: ({ kernel }) =>
    `Kernel ${kernel} is too old: offloads of the interface need ${firstTunKernel.join(".")}, those of the socket ${firstUdpKernel.join(".")}`,
  organization: () => "The organization's overrides turn offloads off",
  root: () => "overrides.yml of this machine turns offloads off",
  traffic: ({ reason = "Large packets were lost with offloads" }) => reason,
  segments: () =>
    "The kernel refuses the large packets of the engine's socket, so it sends them one by one: IPsec, or a network card without checksums",
  restart: ({ tun, udp }) => `Offloads turn ${tun.on || udp.on ? "on" : "off"} at the engine's next start`,
  refused: () => "The kernel refuses offloads for the interface",
  limit: () =>
    `This container may not enlarge the socket's buffers: on its host, set net.core.rmem_max and net.core.wmem_max to ${wantedBuffer}`,
};
