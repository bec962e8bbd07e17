// Which offloads and buffers the running engine has, for `status`, `doctor` and the control plane: the decision (data-plane.ts),
// unless the engine started before it or the kernel refused it.

import { given } from "../../../base/given.ts";
import type { DataPlaneWhy } from "../../../engine/data-plane-words.ts";
import { firstVersions } from "../../../engine/features.ts";
import { hasOffloads } from "../../../platform/network/kernel.ts";
import type { DataPlaneReport } from "../../../protocol/values.ts";
import { firstTunKernel, firstUdpKernel, wantedBuffer, type DataPlane } from "./data-plane.ts";

/** The settings in force, as `status` shows them. */
export type ShownDataPlane = DataPlaneReport & {
  why?: DataPlaneWhy;
  /** `why` as a sentence, without a full stop. Set with `why`. */
  reason?: string;
};

/** An engine whose start is at most this much before a decision counts as started with it: the times are not exact. */
const sameStartMs = 1000;

/** The data plane as `status` shows it. `startedAt`: start of the running engine, ms since 1970. */
export function shownDataPlane(
  plane: DataPlane | undefined,
  startedAt: number | undefined,
): { data_plane?: ShownDataPlane } {
  if (plane === undefined) return {};
  const deviceHasOffloads = plane.device === undefined ? undefined : hasOffloads(plane.device);
  return { data_plane: dataPlaneInForce(plane, startedAt, deviceHasOffloads) };
}

/** The data plane as check-ins report it. The control plane has its own words for the reason. */
export function reportedDataPlane(
  plane: DataPlane | undefined,
  startedAt: number | undefined,
): { data_plane?: DataPlaneReport } {
  const { data_plane: shown } = shownDataPlane(plane, startedAt);
  if (shown === undefined) return {};
  const { reason: _, ...reported } = shown;
  return { data_plane: reported };
}

/**
 * The settings that the running engine has. `startedAt`: its start, ms since 1970; undefined: no engine runs. `deviceHasOffloads`:
 * whether its interface has offloads; undefined: not known.
 */
export function dataPlaneInForce(
  plane: DataPlane,
  startedAt: number | undefined,
  deviceHasOffloads: boolean | undefined,
): ShownDataPlane {
  // `former`: the settings before the decision, which was made at `since`. An engine reads the settings at its start only.
  const { tun, udp, former, since, buffer } = plane;
  const isOlder = startedAt !== undefined && startedAt < since - sameStartMs;
  // If the decision changed the interface's offloads, the interface shows whether the engine follows the decision already.
  const isFollowed = tun.on !== former.tun && deviceHasOffloads === tun.on;
  const waitsForStart = isOlder && !isFollowed;
  const isRefused = startedAt !== undefined && !isOlder && tun.on && deviceHasOffloads === false;
  // Only an engine that started before that observation is known to send single packets.
  const isUnsegmented = udp.on && startedAt !== undefined && startedAt <= (plane.unsegmented_at ?? 0);
  // The gravest reason comes last.
  let why = whyDecided(plane) ?? (isUnsegmented ? "segments" : undefined);
  if (isRefused) why = "refused";
  if (waitsForStart) why = "restart";
  return {
    tun_offloads: waitsForStart ? former.tun : tun.on && !isRefused,
    udp_offloads: waitsForStart ? former.udp : udp.on,
    ...given({ buffer_bytes: buffer }),
    ...(why === undefined ? {} : { why, reason: reasons[why](plane) }),
  };
}

/** Why something is off, or smaller than it should be, by the decision itself. */
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
