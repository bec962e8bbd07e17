// Names of the overlay interfaces, for both sides.

import { sha256Hex } from "../base/sha256.ts";

/** Whether an interface has a name that `deviceName` gives. */
export function isOverlayDevice(name: string): boolean {
  return /^ov-[0-9a-f]{10}$/.test(name);
}

/** Whether an interface belongs to this program, judged by its name. */
export function isOurDevice(name: string): boolean {
  return name.startsWith("ov-");
}

/** Linux cuts off longer names of interfaces. */
const longestDevice = 15;

/** The readable name, `ov-acme`; undefined if it is too long, or could be `deviceName` of another organization. */
export function readableDeviceName(slug: string): string | undefined {
  const name = `ov-${slug}`;
  return name.length > longestDevice || isOverlayDevice(name) ? undefined : name;
}

/** The name of an organization's interface that the control plane sends: short enough, and no other one has it. */
export function deviceName(slug: string): string {
  return `ov-${sha256Hex(slug).slice(0, 10)}`;
}
