// IPv6 has one switch of forwarding for the whole machine (ip-sysctl, forwarding). With it on, an interface ignores router
// advertisements unless its accept_ra is 2, and the kernel forgets the default routes that came by them. So interfaces that
// accept them get 2 first, and have 1 again at the end.

import { readdirSync } from "node:fs";
import { join } from "node:path";
import { readTextIfThere } from "../../base/files.ts";
import { appendText } from "../../base/open-file.ts";
import type { Change } from "../../platform/machine-changes.ts";

/** Interfaces whose accept_ra was 1, where we switched forwarding on. */
type Forwarding6 = { acceptRa: string[] };

const root = "/proc/sys/net/ipv6/conf";
const switchPath = join(root, "all/forwarding");
const raPath = (device: string) => join(root, device, "accept_ra");
const read = (path: string) => readTextIfThere(path)?.trim();
const write = (path: string, value: string) => appendText(path, `${value}\n`, 0o644);

/** False: this machine has no IPv6. */
export const hasIpv6 = (): boolean => read(switchPath) !== undefined;

/**
 * Switches forwarding on if it is off. Returns what to restore at the end; undefined: it was on without us. `former`: what is noted
 * already, by this organization or another one. `note` is called before anything is changed: after a kill between both, the note
 * says what to restore.
 */
export function openForwarding6(
  former: Forwarding6 | undefined,
  note: (toRestore: Forwarding6) => void,
): Forwarding6 | undefined {
  const isOff = read(switchPath) === "0";
  if (former === undefined && !isOff) return undefined;
  // New interfaces begin with the values of "default".
  const accepting = readdirSync(root).filter((each) => each !== "all" && read(raPath(each)) === "1");
  const toRestore = {
    // At most as many as the note may hold (router-file.ts).
    acceptRa: [...new Set([...(former?.acceptRa ?? []), ...accepting])].sort().slice(0, 1000),
  };
  if (isOff || accepting.length > 0) note(toRestore);
  for (const each of accepting) write(raPath(each), "2");
  if (isOff) write(switchPath, "1");
  return toRestore;
}

/** The changes that restore what openForwarding6 changed. Settings that another program has changed since stay. */
export function closingForwarding6({ acceptRa }: Forwarding6): Change[] {
  const setting = (path: string, from: string, to: string): Change[] =>
    read(path) === from ? [{ change: "setting", path, content: `${to}\n` }] : [];
  return [...setting(switchPath, "1", "0"), ...acceptRa.flatMap((each) => setting(raPath(each), "2", "1"))];
}
