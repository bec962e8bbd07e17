// The kinds of problems of a node, as it reports them in `overlay_state`, with the words of the console.

import { brand } from "../brand.ts";

export const findingWords = {
  not_running: "its engine does not run",
  certificate_not_valid_yet: "its clock is wrong",
  certificate_expired: "its certificate has expired",
  cloned: "another machine uses its keys",
  clock_differs: "its clock differs from the control plane's",
  no_lighthouse: "it has no lighthouse",
  lighthouses_silent: "no lighthouse answers it",
  nodes_silent: "no node answers this lighthouse",
  no_node_came: "no node reaches this lighthouse",
  routers_silent: "a router of its routes does not answer",
  network_unreached: "a network behind it is not reached",
  tunnels_dead: "tunnels stay dead",
  large_packets_lost: "its path loses large packets",
  probing: "its first probes are under way",
  icmp_denied: "it may not send ICMP",
  tunnels_unknown: "its engine reports no tunnels",
  contact_unknown: "it does not know whether nodes reach it",
  manager_silent: "its systemd does not answer",
  not_checked: "nothing watches it",
  not_started_at_boot: "it does not start after a reboot",
  disk_full: "its disk is full",
  disk_filling: "its disk is nearly full",
  forgotten: "its daemon does not know it",
  address_moved: "nodes look for it at another address",
  peers_silent: "a peer does not answer",
} as const;

/**
 * How far the clocks of a node and its control plane may differ, ms. Certificates are valid from five minutes before
 * they are signed; this leaves a minute.
 */
export const clocksMayDifferMs = 240_000;

/**
 * The command to run on the copy of a machine: the copy becomes a node of its own, and the original machine keeps its
 * node.
 */
export const separateCopy = `${brand.executable} up --new-keys --node-name NAME`;

export type FindingKind = keyof typeof findingWords;

/** The kind that an `overlay_state` names. Undefined for a healthy or stopped engine, and for kinds of newer nodes. */
export function findingOf(overlayState: string | null | undefined): FindingKind | undefined {
  return Object.keys(findingWords).find(
    (kind): kind is FindingKind => kind === overlayState && Object.hasOwn(findingWords, kind),
  );
}
