// How the service of names serves them at the moment, for `agent names` and the doctor: a file that is removed when the service ends.

import * as v from "valibot";
import { readTextIfThere, writeFileAtomic } from "../../base/files.ts";

const text = v.pipe(v.string(), v.maxLength(1000));

export const LinkState = v.object({
  slug: text,
  device: v.optional(text),
  /**
   * `waiting`: there is no interface, or systemd-resolved does not know it yet. `refused`: the names are in /etc/hosts
   * instead, or, on macOS, a domain has another program's file. `disputed`: another program changes the settings again and
   * again.
   */
  state: v.picklist(["served", "waiting", "refused", "disputed"]),
  reason: v.optional(text),
});
export type LinkState = v.InferOutput<typeof LinkState>;

const links = v.pipe(v.array(LinkState), v.maxLength(1000));
/**
 * How programs find the names. resolved: they ask systemd-resolved. hosts: they read /etc/hosts, for this reason. nrpt: by rules of
 * Windows, which are in the group policy too (`in_policy`) if it has rules. resolver_files: by files in /etc/resolver of macOS. none: not at all,
 * for this reason.
 */
export const Way = v.variant("way", [
  v.object({ way: v.literal("resolved"), links }),
  v.object({ way: v.literal("hosts"), reason: text }),
  v.object({ way: v.literal("nrpt"), links, in_policy: v.boolean() }),
  v.object({ way: v.literal("resolver_files"), links }),
  v.object({ way: v.literal("none"), reason: text }),
]);
export type Way = v.InferOutput<typeof Way>;

/** The domain, beside `.internal`, that the control plane sends. `reason`: why this machine does not answer for it. */
export const Suffix = v.object({
  name: v.pipe(v.string(), v.maxLength(255)),
  reason: v.optional(text),
  /** Root has allowed it, but it is refused. */
  isRefused: v.optional(v.boolean()),
});
export type Suffix = v.InferOutput<typeof Suffix>;

/** An overlay address of a name server, and whether peers are answered there. `off`: it is not allowed, for this reason. */
export const PeerService = v.object({
  slug: text,
  address: text,
  /** `waiting`: there is no interface. `failed`: another program uses the port. */
  state: v.picklist(["served", "waiting", "off", "failed"]),
  reason: v.optional(text),
});
export type PeerService = v.InferOutput<typeof PeerService>;

export const ServiceState = v.object({
  schema: v.literal(1),
  serving: Way,
  /** Why the resolver cannot answer: another program uses its port. */
  fault: v.optional(text),
  /** Short names are found too. */
  search: v.optional(v.boolean()),
  suffixes: v.optional(v.pipe(v.array(v.object({ slug: text, ...Suffix.entries })), v.maxLength(1000)), []),
  peers: v.optional(v.pipe(v.array(PeerService), v.maxLength(2000)), []),
});
export type ServiceState = v.InferOutput<typeof ServiceState>;

export function linkOf(slug: string, serving: Way | undefined): LinkState | undefined {
  return serving !== undefined && "links" in serving
    ? serving.links.find((each) => each.slug === slug)
    : undefined;
}

/** Whether the names of this organization belong into the hosts file. Without a service (`undefined`) nothing else serves them. */
export function isInHostsFile(slug: string, serving: Way | undefined): boolean {
  if (serving?.way === "resolved") return linkOf(slug, serving)?.state === "refused";
  return serving === undefined || serving.way === "hosts";
}

/** Undefined while the service does not run. */
export function readServiceState(path: string): ServiceState | undefined {
  try {
    return v.parse(ServiceState, JSON.parse(readTextIfThere(path) ?? "null"));
  } catch {
    // A newer version's file is as good as none.
    return undefined;
  }
}

export function writeServiceState(state: ServiceState, path: string): void {
  writeFileAtomic(path, `${JSON.stringify(state)}\n`, 0o644);
}
