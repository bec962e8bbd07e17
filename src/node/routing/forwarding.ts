// Forwarding of packets as a setting of the kernel: of each interface for IPv4, of the machine for IPv6 (ipv6-forwarding.ts). Other
// organizations of the machine may be routers, too: what one of them still needs stays.

import { dirname, basename } from "node:path";
import { readTextIfThere } from "../../base/files.ts";
import { appendText } from "../../base/open-file.ts";
import type { Change } from "../../platform/machine-changes.ts";
import { listOrganizations } from "../files/list-organizations.ts";
import { readRouterFile, type RouterFile } from "./router-file.ts";
import { closingForwarding6 } from "./ipv6-forwarding.ts";

/** The kernel's settings from before this program changed them: by interface for IPv4, of the machine for IPv6. */
export type Forwarding = Pick<RouterFile, "forwarding" | "ipv6">;

/** The changes that set forwarding back to these values from before, unless another organization still needs it. */
export function closingChanges(
  directory: string,
  { forwarding, ipv6 }: Forwarding,
  gone: readonly string[] = [],
): Change[] {
  const others = otherRouters(directory, gone).filter(({ ending }) => ending !== true);
  // An administrator has switched forwarding on for all interfaces since: leave it on.
  const isForAll = readForwarding("all") === "1";
  const settings = Object.entries(forwarding).flatMap(([device, former]): Change[] => {
    // Another organization forwards over this interface. It has noted the former value too, and sets it at its own end.
    if (isForAll || others.some((each) => each.forwarding[device] !== undefined)) return [];
    const current = readForwarding(device);
    if (current === undefined || current === former) return [];
    return [{ change: "setting", path: forwardingPath(device), content: `${former}\n` }];
  });
  const isStillNeeded6 = ipv6 === undefined || others.some((each) => each.ipv6 !== undefined);
  return [...settings, ...(isStillNeeded6 ? [] : closingForwarding6(ipv6))];
}

/** What the other organizations of the machine noted as routers. `gone`: organizations that do not count any more. */
export function otherRouters(directory: string, gone: readonly string[] = []): RouterFile[] {
  const root = dirname(directory);
  const slug = basename(directory);
  return listOrganizations(root).flatMap((each) =>
    each === slug || gone.includes(each) ? [] : (readRouterFile(directory, each) ?? []),
  );
}

/** The value from before that another organization noted for this interface. */
export const formerByOthers = (directory: string, device: string) =>
  otherRouters(directory).flatMap(({ forwarding }) => forwarding[device] ?? [])[0];

const forwardingPath = (device: string) => `/proc/sys/net/ipv4/conf/${device}/forwarding`;

/** Undefined if there is no such interface. */
export function readForwarding(device: string): "0" | "1" | undefined {
  const text = readTextIfThere(forwardingPath(device))?.trim();
  return text === "0" || text === "1" ? text : undefined;
}

// Written in place, since the file is a setting of the kernel.
export const writeForwarding = (device: string, value: "0" | "1") =>
  appendText(forwardingPath(device), value, 0o644);
