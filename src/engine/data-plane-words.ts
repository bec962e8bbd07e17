// How a node's engine exchanges packets with its kernel, in words, for the command line and for browsers. Pure and light.

/** Why offloads are not in force, or buffers are smaller. */
const dataPlaneWhys = {
  platform: "only Linux has offloads",
  engine: "its engine is too old for offloads",
  kernel: "its kernel is too old for offloads",
  organization: "the organization's overrides turn them off",
  root: "overrides.yml on the machine turns them off",
  traffic: "packets were lost with offloads",
  restart: "they change at the engine's next start",
  refused: "the kernel refuses them for the interface",
  segments: "the kernel refuses large packets of the engine's socket",
  limit: "the container may not enlarge the socket's buffers",
} as const;
export type DataPlaneWhy = keyof typeof dataPlaneWhys;

type Reported = {
  tun_offloads: boolean;
  udp_offloads: boolean;
  buffer_bytes?: number | undefined;
  why?: string | undefined;
  exit?: { name: string } | undefined;
};

/** "offloads on, buffers of 4096 KiB". A reason of a newer node is left out. */
export function describeDataPlane(reported: Reported): string {
  const { tun_offloads: tun, udp_offloads: udp, buffer_bytes: bytes, why, exit } = reported;
  let offloads = tun || udp ? "on" : "off";
  if (tun !== udp) offloads = tun ? "on for the interface alone" : "on for the socket alone";
  const buffers = bytes === undefined ? "" : `, buffers of ${Math.round(bytes / 1024)} KiB`;
  const [, reason] = Object.entries(dataPlaneWhys).find(([each]) => each === why) ?? [];
  const way = exit === undefined ? "" : `exit ${exit.name}, `;
  return `${way}offloads ${offloads}${buffers}${reason === undefined ? "" : `: ${reason}`}`;
}
