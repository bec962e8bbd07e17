// When certificates begin, how long CAs live, and the limits of a control plane's CA beside an offline CA (docs/design/sealed.md):
// which limits it is made with, and whether a signer finds them in its certificate. Pure.

import type { NebulaCertificate } from "../../pki/certificate.ts";

const dayS = 86_400;
/** Certificates begin so much before they are signed, because engines and clients accept none that begins in their future. */
export const backdatedMs = 5 * 60_000;
/** Of each new CA, and the most that a limited one may have. */
export const caLifetimeS = 2 * 365 * dayS;

/**
 * The networks behind nodes that a limited CA may certify. An empty list would permit every network; this one permits no useful
 * network, on every engine (test/node/engine/two-authorities.test.ts).
 */
export const noNetworks: readonly string[] = ["0.0.0.0/32"];

type Limits = Pick<
  NebulaCertificate,
  "name" | "version" | "networks" | "unsafeNetworks" | "groups" | "notBefore" | "notAfter"
>;

/** Whether the CA may certify IPv4 addresses of its organization alone: beside an offline CA (offline-ca.ts). */
export const isLimited = ({ unsafeNetworks }: Pick<Limits, "unsafeNetworks">): boolean =>
  unsafeNetworks.join() === noNetworks.join();

/** What the CA may certify beyond the limits of an organization with these networks: parts of a sentence. Empty: it is limited. */
export function beyondLimits(ca: Limits, networks: readonly string[]): string[] {
  const permitted = networks.filter((each) => !each.includes(":"));
  const isNetworkWrong = ca.networks.length !== 1 || !permitted.includes(ca.networks[0] ?? "");
  return [
    ...(ca.version === 1 ? [] : [`it has version ${ca.version}, and only 1 can permit no IPv6 address`]),
    ...(isNetworkWrong
      ? [`it certifies ${listed(ca.networks, "any network")}, not ${permitted.join(", ")} alone`]
      : []),
    ...(isLimited(ca)
      ? []
      : [
          `it certifies ${listed(ca.unsafeNetworks, "any network")} behind nodes, not none (${noNetworks[0]})`,
        ]),
    ...(ca.notAfter - ca.notBefore > caLifetimeS
      ? [`it lives for ${daysOf(ca)} days, not at most ${caLifetimeS / dayS}`]
      : []),
  ];
}

/** All that a CA may, for a signer. */
export function limitWords(ca: Limits): string {
  const behind = isLimited(ca) ? `none (${noNetworks[0]})` : listed(ca.unsafeNetworks, "ANY");
  return [
    JSON.stringify(ca.name),
    `version ${ca.version}`,
    `networks: ${listed(ca.networks, "ANY")}`,
    `networks behind nodes: ${behind}`,
    `groups: ${ca.groups.length === 0 ? "any" : ca.groups.map((each) => JSON.stringify(each)).join(", ")}`,
    `from ${dateOf(ca.notBefore)} to ${dateOf(ca.notAfter)} (${daysOf(ca)} days)`,
  ].join("; ");
}

const listed = (all: readonly string[], none: string) => (all.length === 0 ? none : all.join(", "));
const daysOf = ({ notBefore, notAfter }: Limits) => Math.ceil((notAfter - notBefore) / dayS);

/** A time that no calendar has is shown as it is. */
function dateOf(seconds: number): string {
  const date = new Date(seconds * 1000);
  return Number.isNaN(date.getTime()) ? `${seconds} s` : date.toISOString();
}
