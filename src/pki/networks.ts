// Networks in certificates: address bytes, including host bits, and prefix length.

import ipaddr from "ipaddr.js";
import { AppError } from "../errors.ts";

/** 4 or 16 address bytes in network order. */
export type Network = { address: Uint8Array; prefix: number };

const ipv4 = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})\/(\d{1,2})$/;
const ipv6 = /^([0-9a-f:.]{2,45})\/(0|[1-9]\d{0,2})$/i;

/** Parses "10.77.0.5/16" or "fd77::5/64". Throws `bad_request` for anything else, including leading zeros and zones. */
export function parseNetwork(text: string): Network {
  const network = parseIpv4(text) ?? parseIpv6(text);
  if (network === undefined) {
    throw new AppError("bad_request", `"${text.slice(0, 60)}" is not a network, such as 10.77.0.5/16`);
  }
  return network;
}

/** The canonical text: dotted decimal, or RFC 5952. */
export function formatNetwork({ address, prefix }: Network): string {
  const text = address.length === 4 ? address.join(".") : new ipaddr.IPv6([...address]).toRFC5952String();
  return `${text}/${prefix}`;
}

/** Whether `outer` contains the address of `inner`, and the prefix of `inner` is at least as long. */
export function holdsNetwork(outer: Network, inner: Network): boolean {
  if (outer.address.length !== inner.address.length || inner.prefix < outer.prefix) return false;
  for (let bit = 0, at = 0; bit < outer.prefix; bit += 8, at++) {
    const mask = 0xff & (0xff << Math.max(0, 8 - (outer.prefix - bit)));
    if ((((outer.address[at] ?? 0) ^ (inner.address[at] ?? 0)) & mask) !== 0) return false;
  }
  return true;
}

/** The order of version 2 certificates: IPv4 before IPv6, then by address, then by prefix length. */
export function compareNetworks(a: Network, b: Network): number {
  return a.address.length - b.address.length || Buffer.compare(a.address, b.address) || a.prefix - b.prefix;
}

function parseIpv4(text: string): Network | undefined {
  const match = ipv4.exec(text);
  if (match === null) return undefined;
  const address = new Uint8Array(4);
  for (let at = 0; at < 5; at++) {
    const digits = match[at + 1] ?? "";
    const value = Number(digits);
    if ((digits.length > 1 && digits.startsWith("0")) || value > (at < 4 ? 255 : 32)) return undefined;
    if (at < 4) address[at] = value;
  }
  return { address, prefix: Number(match[5]) };
}

function parseIpv6(text: string): Network | undefined {
  const [, address, prefix] = ipv6.exec(text) ?? [];
  if (address === undefined || Number(prefix) > 128 || !ipaddr.IPv6.isValid(address)) return undefined;
  return { address: Uint8Array.from(ipaddr.IPv6.parse(address).toByteArray()), prefix: Number(prefix) };
}
