// Networks of this machine that an organization's control plane must not route into its overlay: those that the machine
// is attached to, its default gateways, its public name servers, and the control planes of all registered organizations.

import { dirname, join } from "node:path";
import { isOverlayDevice } from "../../device-name.ts";
import { isPrivate, maskNetwork, parseAddress, parseNetwork } from "../../ip.ts";
import type { AttachedNetwork } from "../../platform/attached-networks.ts";
import { Credentials } from "../../protocol/stored.ts";
import { listOrganizations } from "./list-organizations.ts";
import { readValidJson } from "./organizations.ts";

export type Reserved = {
  network: string;
  name: string;
  /** A wider route does no harm: the kernel prefers the network of the interface. */
  isAttached: boolean;
};

/** Maximum that is compared with each route and stored in sync.json. */
const mostReserved = 1024;

/** `apiBase` is the control plane of an organization that has no credentials.json yet. */
export function reservedNetworks(
  { directory, apiBase }: { directory: string; apiBase?: string },
  attached: readonly AttachedNetwork[],
): Reserved[] {
  const root = dirname(directory);
  const planes = listOrganizations(root).flatMap((slug) =>
    controlPlane(slug, readValidJson(join(root, slug, "credentials.json"), Credentials)?.api_base),
  );
  const networks = attached.flatMap(({ device, address, isNameServer }): Reserved[] => {
    const network = maskNetwork(address);
    if (isNameServer === true) return nameServer(network);
    // The networks of overlays have a rule of their own.
    if (network === undefined || isOverlayDevice(device)) return [];
    return [{ network, name: `a network of this machine's interface ${device}`, isAttached: true }];
  });
  const all = [...planes, ...controlPlane("this organization", apiBase), ...networks];
  return all.slice(0, mostReserved);
}

/** One with a private address may be behind a node on purpose: an office's, for the names of that office. */
function nameServer(text: string | undefined): Reserved[] {
  const network = parseNetwork(text ?? "");
  if (network === undefined || isPrivate(network)) return [];
  return [{ network: network.text, name: "a name server of this machine", isAttached: false }];
}

/** Only an IP address in the URL counts: a name may resolve differently at any time. */
function controlPlane(slug: string, apiBase: string | undefined): Reserved[] {
  if (apiBase === undefined || !URL.canParse(apiBase)) return [];
  const host = new URL(apiBase).hostname.replace(/^\[(.*)\]$/, "$1");
  const network = hostNetwork(host);
  return network === undefined ? [] : [{ network, name: `the control plane of ${slug}`, isAttached: false }];
}

/** The network of one address; undefined for a name. */
export function hostNetwork(host: string): string | undefined {
  const address = parseAddress(host);
  return address === undefined ? undefined : `${host}/${address.family === 4 ? 32 : 128}`;
}

/** What sync.json keeps of them, so that a change of this machine's networks is noticed. */
export function networkNames(reserved: readonly Reserved[]): string[] {
  return [...new Set(reserved.map(({ network }) => network))].sort();
}
