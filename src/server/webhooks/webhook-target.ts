// Decides which addresses a webhook, or a request to a provider of identities, may connect to. The sender then connects to the address
// that was checked here, so that a later answer of a name server cannot redirect it to an internal one. Sends nothing itself.

import ipaddr from "ipaddr.js";
import { AppError, invalidField } from "../../base/errors.ts";
import type { System } from "../../base/system.ts";
import {
  isWithin,
  networkContains,
  parseAddress,
  parseNetwork,
  providerNetworks,
  type Network,
} from "../../base/ip.ts";
import { within } from "../../base/within.ts";

export type TargetRules = {
  system: Pick<System, "lookup" | "sleep">;
  /** Networks that webhooks may also reach although they are not public, and over plain HTTP. */
  webhookNetworks?: readonly Network[];
};

const globalUnicast6 = parseNetwork("2000::/3");
const lookupMs = 5000;

/**
 * The address to connect to. Throws validation_failed with the reason. The message names no resolved address. It is the same for a
 * name that does not exist and for one with an internal address: two messages would reveal which internal names exist.
 */
export async function resolveTarget(
  url: URL,
  { system, webhookNetworks = [] }: TargetRules,
): Promise<string> {
  const host = url.hostname.replace(/^\[(.*)\]$/, "$1");
  const isAddress = ipaddr.isValid(host);
  const addresses = isAddress ? [host] : await within(system, lookupMs, system.lookup(host), []);
  const [first] = addresses;
  const isAllowed = (address: string) => isWithin(address, webhookNetworks);
  if (first === undefined || !addresses.every((each) => isAllowed(each) || isPublic(each))) {
    const what = isAddress
      ? "The address must be public."
      : `The server cannot resolve ${host}, or ${host} leads to an address that is not public.`;
    throw refused(
      `${what} The operator can allow other networks with webhook-allow in the settings of the control plane.`,
    );
  }
  if (url.protocol === "http:" && !addresses.every(isAllowed)) {
    throw refused("The URL must begin with https://.");
  }
  return first;
}

/**
 * The URL with the checked address in place of its host name. `serverName`: the name that the TLS certificate must have; undefined
 * if the URL has an address itself. Send it with the `Host` header of the original URL. Throws as resolveTarget.
 */
export async function resolvedTo(
  url: URL,
  rules: TargetRules,
): Promise<{ href: string; serverName: string | undefined }> {
  const address = await resolveTarget(url, rules);
  const target = new URL(url);
  target.hostname = address.includes(":") ? `[${address}]` : address;
  return { href: target.href, serverName: target.hostname === url.hostname ? undefined : url.hostname };
}

/** Globally routed unicast: no private, loopback, link-local, shared, mapped, translated or reserved address, nor a provider's own. */
export function isPublic(text: string): boolean {
  const address = parseAddress(text);
  if (address === undefined || ipaddr.parse(text).range() !== "unicast") return false;
  if (providerNetworks().some((each) => networkContains(each, address))) return false;
  return address.family === 4 || (globalUnicast6 !== undefined && networkContains(globalUnicast6, address));
}

function refused(sentence: string): AppError {
  return invalidField("url", sentence);
}
