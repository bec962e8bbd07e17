// Where a webhook may lead: names are resolved here, and the address that passed is the one that is connected to, so
// that no answer of a name server given later can point inside. Nothing here sends.

import ipaddr from "ipaddr.js";
import { AppError } from "../../errors.ts";
import type { System } from "../../system.ts";
import { networkContains, parseAddress, parseNetwork, type Network } from "../../ip.ts";

export type TargetRules = {
  system: Pick<System, "lookup" | "sleep">;
  /** Inside of these also addresses that are not public, and plain HTTP. */
  webhookNetworks?: readonly Network[];
};

const globalUnicast6 = parseNetwork("2000::/3");
const lookupMs = 5000;

/** The address to connect to. Throws validation_failed with the reason, naming no address that a name stands for. */
export async function resolveTarget(
  url: URL,
  { system, webhookNetworks = [] }: TargetRules,
): Promise<string> {
  const host = url.hostname.replace(/^\[(.*)\]$/, "$1");
  const literal = ipaddr.isValid(host);
  const addresses = literal ? [host] : await lookUp(host, system);
  const [first] = addresses;
  if (first === undefined) throw refused(`The name ${host} cannot be resolved.`);
  const isAllowed = (address: string) => isWithin(address, webhookNetworks);
  if (!addresses.every((each) => isAllowed(each) || isPublic(each))) {
    throw refused(
      "The address must be public; the operator may allow others with the server's --webhook-allow.",
    );
  }
  if (url.protocol === "http:" && !addresses.every(isAllowed)) {
    throw refused("The address must begin with https://.");
  }
  return first;
}

/** Globally routed unicast: no private, loopback, link-local, shared, mapped, translated or reserved address. */
export function isPublic(text: string): boolean {
  const address = parseAddress(text);
  if (address === undefined || ipaddr.parse(text).range() !== "unicast") return false;
  return address.family === 4 || (globalUnicast6 !== undefined && networkContains(globalUnicast6, address));
}

function isWithin(text: string, networks: readonly Network[]): boolean {
  const address = parseAddress(text);
  return address !== undefined && networks.some((network) => networkContains(network, address));
}

async function lookUp(host: string, system: TargetRules["system"]): Promise<readonly string[]> {
  const over = new AbortController();
  const late = system.sleep(lookupMs, over.signal).then(
    () => [],
    () => [],
  );
  try {
    return await Promise.race([system.lookup(host), late]);
  } finally {
    over.abort();
  }
}

function refused(sentence: string): AppError {
  return new AppError("validation_failed", sentence, { errors: { url: [sentence] } });
}
