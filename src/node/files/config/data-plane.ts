// The one place that decides how the engine of an organization exchanges packets with the kernel: in large ones (offloads),
// and through how large a socket's buffers. It decides from engine, kernel, and what root, the organization and this
// machine's own experience say. Pure but for readTrial and writeTrial.

import { given } from "../../../base/given.ts";
import * as v from "valibot";
import { boundedText } from "../../../base/text.ts";
import { can } from "../../../engine/features.ts";
import type { Kernel } from "../../../platform/network/kernel.ts";
import { isMap, valueAt, type YamlMap, type YamlValue } from "../../../base/yaml.ts";
import { stateFile } from "../json-file.ts";

const count = v.pipe(v.number(), v.integer(), v.minValue(0));

/** What decided. `default`: nobody chose, so offloads are on if the machine has them. */
const deciders = ["default", "platform", "engine", "kernel", "organization", "root", "traffic"] as const;
const OnOff = v.object({ on: v.boolean(), by: v.picklist(deciders) });
type OnOff = v.InferOutput<typeof OnOff>;

/** The decision, as sync.json keeps it. */
export const DataPlane = v.object({
  /** The engine and the kernel that it was decided for: with others it is decided again. Empty: unknown. */
  engine: boundedText(64),
  kernel: boundedText(128),
  /** The name of the interface. */
  device: v.optional(boundedText(255)),
  /** `tun.use_offloads` */
  tun: OnOff,
  /** `listen.udp_offloads` */
  udp: OnOff,
  /** `listen.read_buffer` and `write_buffer`, bytes; unset: the system's. */
  buffer: v.optional(count),
  /** `listen.port`: the one that the engine got at an earlier start, so that peers find it after the next one. */
  port: v.optional(count),
  /** The buffers are smaller than they should be, because `rmem_max` permits no more. */
  is_limited: v.optional(v.boolean()),
  /** The result of the measurement that turned offloads off. */
  reason: v.optional(boundedText(400)),
  /** When (ms since 1970) the engine was last seen to send single packets because the kernel refused large ones. */
  unsegmented_at: v.optional(v.number()),
  /** When `tun` or `udp` last changed, ms since 1970. An engine that started before that has the `former` ones. */
  since: v.number(),
  former: v.object({ tun: v.boolean(), udp: v.boolean() }),
});
export type DataPlane = v.InferOutput<typeof DataPlane>;

/** Bytes. 4 MiB carry 1.5 to 2 times as much as the 208 KiB of most systems, also with old engines (measured). */
export const wantedBuffer = 4 * 1024 * 1024;
/** For machines with little memory: the kernel takes up to twice the size in each direction. */
const smallBuffer = 1024 * 1024;
const smallMemory = 512 * 1024 * 1024;

/** The first kernel [major, minor] with offloads of the interface: virtio headers are the same since then. Tested from 5.10 on. */
export const firstTunKernel: readonly [number, number] = [4, 18];
/** The first kernel with offloads of the socket: before, UDP_GRO lacks fixes, and WireGuard's program does not use it either. */
export const firstUdpKernel: readonly [number, number] = [5, 12];

type DecisionInput = {
  /**
   * The version of the engine at its next start. Undefined: unknown, so that the engine of the former decision counts; without
   * that, the oldest one.
   */
  engine: string | undefined;
  kernel: Kernel;
  /** The filtered configuration of the control plane. */
  sent: YamlMap;
  /** overrides.yml */
  own: YamlMap;
  trial: Trial | undefined;
};

/** `before`: the decision until now. */
export function decideDataPlane(
  basis: DecisionInput,
  before: DataPlane | undefined,
  nowMs: number,
): DataPlane {
  const input = { ...basis, engine: basis.engine ?? (before?.engine || undefined) };
  const { engine, kernel, sent, own, trial } = input;
  const device = valueAt(own, "tun.dev") ?? valueAt(sent, "tun.dev");
  const offloads = {
    tun: decideSwitch("tun.use_offloads", firstTunKernel, input),
    udp: decideSwitch("listen.udp_offloads", firstUdpKernel, input),
  };
  const isSame = before?.tun.on === offloads.tun.on && before.udp.on === offloads.udp.on;
  const isByTraffic = [offloads.tun, offloads.udp].some(({ by }) => by === "traffic");
  return {
    engine: engine ?? "",
    kernel: kernel.release,
    ...(typeof device === "string" ? { device } : {}),
    ...offloads,
    ...decideBuffer(input),
    ...keptPort(input, before),
    ...(isByTraffic && trial !== undefined ? { reason: trial.reason } : {}),
    ...(trial?.unsegmented === true ? { unsegmented_at: Date.parse(trial.at) } : {}),
    since: isSame ? before.since : nowMs,
    former: isSame ? before.former : { tun: before?.tun.on ?? false, udp: before?.udp.on ?? false },
  };
}

/** Whether the decision is for another engine or kernel, or was never made. An unknown engine (undefined) is not another one. */
export function isOutdated(
  plane: DataPlane | undefined,
  engine: string | undefined,
  kernelRelease: string,
): boolean {
  if (plane === undefined || plane.kernel !== kernelRelease) return true;
  return engine !== undefined && engine !== plane.engine;
}

/** Whether one kind of offloads is on. The first check that says something decides. `path`: the setting in config.yml. */
function decideSwitch(
  path: string,
  firstKernel: readonly [number, number],
  { engine, kernel, sent, own, trial }: DecisionInput,
): OnOff {
  if (!kernel.isLinux) return { on: false, by: "platform" };
  if (!can(engine, "offloads")) return { on: false, by: "engine" };
  const root = valueAt(own, path);
  if (typeof root === "boolean") return { on: root, by: "root" };
  if (trial !== undefined && turnsOff(trial, engine, kernel)) return { on: false, by: "traffic" };
  const organization = valueAt(sent, path);
  if (typeof organization === "boolean") return { on: organization, by: "organization" };
  return isAtLeast(kernel.release, firstKernel) ? { on: true, by: "default" } : { on: false, by: "kernel" };
}

function isAtLeast(release: string, [major, minor]: readonly [number, number]): boolean {
  const [, ownMajor = "0", ownMinor = "0"] = /^(\d+)\.(\d+)/.exec(release) ?? [];
  return Number(ownMajor) > major || (Number(ownMajor) === major && Number(ownMinor) >= minor);
}

const bufferPaths = ["listen.read_buffer", "listen.write_buffer"] as const;

function decideBuffer({ kernel, sent, own }: DecisionInput): Pick<DataPlane, "buffer" | "is_limited"> {
  const isSet = bufferPaths.some((path) => (valueAt(own, path) ?? valueAt(sent, path)) !== undefined);
  if (!kernel.isLinux || isSet) return {};
  const wanted = kernel.memory < smallMemory ? smallBuffer : wantedBuffer;
  const possible = kernel.canForceBuffers ? wanted : Math.min(wanted, kernel.mostBuffer);
  const isLimited = possible < wanted ? { is_limited: true } : {};
  // The kernel doubles a size that a program asks for, but not its own default.
  return 2 * possible <= kernel.usualBuffer ? isLimited : { buffer: possible, ...isLimited };
}

/** The port of an earlier start, which is kept only if the configuration asks for any free port. */
function keptPort({ own, sent }: DecisionInput, before: DataPlane | undefined): Pick<DataPlane, "port"> {
  const port = valueAt(own, "listen.port") ?? valueAt(sent, "listen.port") ?? 0;
  return port === 0 && before?.port !== undefined ? { port: before.port } : {};
}

/** The configuration with what was decided; overrides.yml is merged over it. An engine gets no key that it does not know. */
export function withDataPlane(config: YamlMap, plane: DataPlane | undefined): YamlMap {
  if (plane === undefined) return config;
  const knows = can(plane.engine, "offloads");
  const buffers = plane.buffer === undefined ? {} : { read_buffer: plane.buffer, write_buffer: plane.buffer };
  return {
    ...config,
    tun: withKey(config["tun"], "use_offloads", knows ? plane.tun.on : undefined),
    listen: {
      // A buffer that the configuration sets wins; none is decided then (decideBuffer).
      ...buffers,
      ...withKey(config["listen"], "udp_offloads", knows ? plane.udp.on : undefined),
      ...given({ port: plane.port }),
    },
  };
}

function withKey(section: YamlValue | undefined, key: string, value: boolean | undefined): YamlMap {
  const { [key]: _, ...rest } = isMap(section) ? section : {};
  return value === undefined ? rest : { ...rest, [key]: value };
}

/** All settings that withDataPlane writes, except the port. */
export const dataPlaneKeys = ["tun.use_offloads", "listen.udp_offloads", ...bufferPaths] as const;

/** The paths of the offloads that no administrator has set: a change of these waits for the engine's next start. */
export function ownSwitches({ tun, udp }: DataPlane): string[] {
  const isOwn = ({ by }: OnOff) => by !== "root" && by !== "organization";
  return [...(isOwn(tun) ? ["tun.use_offloads"] : []), ...(isOwn(udp) ? ["listen.udp_offloads"] : [])];
}

// What traffic proved (health/paths/offload-trial.ts)

/**
 * passed: traffic passes with offloads. trial: it does not, so they were turned off to see whether it then does. off: it then
 * did. cleared: it did not either, so something else drops the packets.
 */
const Trial = v.object({
  state: v.picklist(["passed", "trial", "off", "cleared"]),
  engine: boundedText(64),
  kernel: boundedText(128),
  /** One sentence without a full stop. */
  reason: boundedText(400),
  /** Process id of the measured engine. */
  pid: count,
  /** The engine itself switched to single packets, because the kernel refused large ones. */
  unsegmented: v.optional(v.boolean()),
  /** RFC 3339 */
  at: boundedText(64),
});
export type Trial = v.InferOutput<typeof Trial>;

export const { read: readTrial, write: writeTrial } = stateFile("offloads.json", Trial, 0o600);

/** Whether the trial turns offloads off. It counts only for its engine and kernel: others may work. */
function turnsOff(trial: Trial, engine: string | undefined, kernel: Kernel): boolean {
  const isTurnedOff = trial.state === "trial" || trial.state === "off";
  return isTurnedOff && trial.engine === engine && trial.kernel === kernel.release;
}
