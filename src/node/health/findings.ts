// What can be wrong with an organization on this machine: the one table of kinds, for all that find (verdict.ts, the
// services) and all that show (`status`, `doctor`, `netcheck`, the console). Light to load: `status` needs it.

import { brand } from "../../brand.ts";
import { quoteWord } from "../../base/quote.ts";
import { separateCopy, type FindingKind } from "../../protocol/finding-kinds.ts";

/**
 * How grave a finding is, like a traffic light. degraded: traffic does not pass. unknown: whether traffic passes cannot be known. note:
 * traffic passes, and a user should know the finding.
 */
export type Light = "degraded" | "unknown" | "note";

export type Finding = {
  kind: Kind;
  light: Light;
  /** One sentence without a full stop. */
  what: string;
  /** The command or step that ends it; empty if there is none. */
  cure: string;
};

/** `cure`: empty where callers of makeFinding give one. `doctor`: the doctor's status, where it does not follow from the light. */
type KindEntry = { light: Light; cure(slug: string): string; doctor?: "fail" };

const program = brand.executable;
const openPort = `Permit the UDP port of the engine in every firewall before this machine: ${program} check-port`;
const freeSpace =
  "Free some disk space on this machine: once none is left, no change and no revocation can be saved";
export const checkWayOut =
  "Check this machine's way out: its cable or radio, the router before it, and that router's uplink";
/** The only cure while the clock is wrong: other findings may be consequences of it. */
export const setClock = "Set the clock: timedatectl set-ntp true";

/** All kinds, the gravest first: what may be the cause of others before these. */
const kinds = {
  not_running: { light: "degraded", cure: (slug) => `${program} start ${quoteWord(slug)}` },
  certificate_not_valid_yet: { light: "degraded", cure: () => setClock },
  certificate_expired: {
    light: "degraded",
    cure: (slug) => `${program} sync-config --org-slug ${quoteWord(slug)}`,
  },
  cloned: {
    light: "degraded",
    cure: (slug) =>
      `On the copy alone: ${separateCopy}, with a new join key for ${slug} (an administrator: ${program} admin token create ${quoteWord(slug)})`,
  },
  no_lighthouse: {
    light: "degraded",
    cure: (slug) =>
      `Ask the organization's administrator to make a node with a public address a lighthouse: ${program} admin node update ${quoteWord(slug)} NODE --lighthouse --public-ip ADDRESS`,
  },
  lighthouses_silent: { light: "degraded", cure: () => `${program} doctor` },
  nodes_silent: { light: "degraded", cure: () => openPort },
  no_node_came: { light: "degraded", cure: () => openPort },
  routers_silent: { light: "degraded", cure: () => `On that router: ${program} doctor` },
  // The cure depends on the reason (routing/router-file.ts).
  network_unreached: { light: "degraded", cure: () => "" },
  tunnels_dead: { light: "degraded", cure: (slug) => `${program} peers ${quoteWord(slug)}` },
  large_packets_lost: { light: "degraded", cure: () => "" },
  probing: { light: "unknown", cure: (slug) => `${program} status ${quoteWord(slug)} --check` },
  icmp_denied: { light: "unknown", cure: () => "sysctl -w net.ipv4.ping_group_range='0 2147483647'" },
  tunnels_unknown: { light: "unknown", cure: () => `${program} overlay update` },
  contact_unknown: { light: "unknown", cure: () => openPort },
  manager_silent: {
    light: "unknown",
    cure: () => "See what systemd waits for: systemctl is-system-running; systemctl list-jobs",
  },
  not_checked: { light: "unknown", cure: () => "", doctor: "fail" },
  not_started_at_boot: { light: "unknown", cure: () => "", doctor: "fail" },
  disk_full: { light: "unknown", cure: () => freeSpace, doctor: "fail" },
  forgotten: { light: "unknown", cure: (slug) => `${program} start ${quoteWord(slug)}` },
  clock_differs: { light: "note", cure: () => setClock, doctor: "fail" },
  address_moved: { light: "note", cure: () => "" },
  disk_filling: { light: "note", cure: () => freeSpace },
  peers_silent: { light: "note", cure: (slug) => `${program} peers ${quoteWord(slug)}` },
} as const satisfies Record<FindingKind, KindEntry>;

export type Kind = FindingKind;
export const allKinds = Object.keys(kinds).filter((kind): kind is Kind => Object.hasOwn(kinds, kind));

/** The gravest first: `status` and the console begin with it. */
export const byGravity = (findings: readonly Finding[]): Finding[] =>
  findings.toSorted((a, b) => allKinds.indexOf(a.kind) - allKinds.indexOf(b.kind));

/** `cure`: only where it depends on more than the organization. */
export function makeFinding(kind: Kind, slug: string, what: string, cure = kinds[kind].cure(slug)): Finding {
  return { kind, light: kinds[kind].light, what, cure };
}

/** The status that `doctor` shows for a finding of this kind. */
export function doctorStatusOf(kind: Kind): "fail" | "warn" {
  const entry: KindEntry = kinds[kind];
  return entry.doctor ?? (entry.light === "degraded" ? "fail" : "warn");
}

/** The kind that is reported to the control plane. Undefined if traffic passes, or while the first probes run. `findings`: the gravest first. */
export function reportedKind(findings: readonly Finding[]): Kind | undefined {
  const light = lightOf(findings);
  const kind = findings.find((each) => each.light === light)?.kind;
  return kind === "probing" ? undefined : kind;
}

/** The worst light of some findings; undefined: traffic passes. */
export function lightOf(findings: readonly Pick<Finding, "light">[]): Exclude<Light, "note"> | undefined {
  if (findings.some(({ light }) => light === "degraded")) return "degraded";
  return findings.some(({ light }) => light === "unknown") ? "unknown" : undefined;
}

/** The state of the certificates by this machine's clock. */
export type Certified = "valid" | "expired" | "not valid yet";

export function certificateFindings(slug: string, certificate: Certified): Finding[] {
  if (certificate === "valid") return [];
  if (certificate === "expired")
    return [makeFinding("certificate_expired", slug, "The certificate has expired")];
  const what = "The certificate is not valid yet: the clock of this machine is wrong";
  return [makeFinding("certificate_not_valid_yet", slug, what)];
}
