// The name that a certificate is for, as an order and as X.509 write it.

import { formatAddress, parseAddress } from "../../../base/ip.ts";
import type { AcmeOptions } from "../../options.ts";

/** The name as an identifier of an order. Addresses have their canonical text (RFC 8738, RFC 5952). */
export function identifierOf({ name }: Pick<AcmeOptions, "name">): { type: "dns" | "ip"; value: string } {
  const address = parseAddress(name);
  return address === undefined
    ? { type: "dns", value: name.toLowerCase() }
    : { type: "ip", value: formatAddress(address) };
}

/** The names of a certificate as the functions of X.509 take them. */
export function namesOf(options: Pick<AcmeOptions, "name">): { names: string[]; addresses: string[] } {
  const { type, value } = identifierOf(options);
  return type === "dns" ? { names: [value], addresses: [] } : { names: [], addresses: [value] };
}
