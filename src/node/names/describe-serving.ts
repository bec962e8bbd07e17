// The texts for users about the service of names, for `agent names` and the doctor.

import type { PeerService, ServiceState, Suffix, Way } from "./service-state.ts";

/** The text for users: how programs find names, and the organizations whose names they do not find. */
export function describeServing({ serving, fault, suffixes, peers }: ServiceState): string[] {
  const others = [...suffixes.map(describeSuffix), ...peers.map(describePeers)];
  if (serving.way === "hosts")
    return [`Programs find names in /etc/hosts: ${fault ?? serving.reason}`, ...others];
  if (serving.way === "none") return [`Programs do not find names: ${fault ?? serving.reason}`, ...others];
  return [
    `Programs find names by ${wayText(serving)}`,
    ...serving.links.flatMap(({ slug, state, reason }) =>
      state === "served" ? [] : [`Names of ${slug}: ${state}, ${reason ?? ""}`],
    ),
    ...others,
  ];
}

export function wayText(serving: Way): string {
  if (serving.way === "hosts") return "/etc/hosts";
  if (serving.way === "resolver_files") return "files in /etc/resolver";
  if (serving.way !== "nrpt") return "systemd-resolved";
  return `rules for name resolution (NRPT)${serving.in_policy ? ", in the group policy too" : ""}`;
}

export function describeSuffix({ slug, name, reason }: Suffix & { slug: string }): string {
  return reason === undefined
    ? `Names of ${slug} also end in .${name}`
    : `Names of ${slug} do not end in .${name} here: ${reason}`;
}

export function describePeers({ slug, address, state, reason }: PeerService): string {
  return state === "served"
    ? `Nodes of ${slug} are answered at ${address}, port 53`
    : `Nodes of ${slug} are not answered at ${address}: ${reason ?? state}`;
}
