// PCP (RFC 6887) and NAT-PMP (RFC 6886): the datagrams between this node and its router, as bytes. Pure. A router may send
// anything: what is not the answer to the question is no answer.

import { addressBytes, addressFromBytes, formatAddress, parseAddress } from "../../../base/ip.ts";

export const routerPort = 5351;

export type Wanted = {
  /** This node's own address towards the router. */
  client: string;
  /** Twelve bytes by which PCP knows the owner of a mapping. */
  nonce: Uint8Array;
  port: number;
  /** The port outside; the router may choose another one. 0: any. */
  external: number;
  /** 0 ends the mapping. */
  lifetimeS: number;
};
export type Answer = { external: number; lifetimeS: number; host?: string } | { refused: string };

const udp = 17;
const pcpBytes = 60;

/** A request MAP (RFC 6887, sections 7.1 and 11.1). */
export function pcpRequest({ client, nonce, port, external, lifetimeS }: Wanted): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(pcpBytes);
  const view = new DataView(bytes.buffer);
  bytes.set([2, 1]);
  view.setUint32(4, lifetimeS);
  bytes.set(ipv4Mapped(client), 8);
  bytes.set(nonce.subarray(0, 12), 24);
  bytes[36] = udp;
  view.setUint16(40, port);
  view.setUint16(42, external);
  bytes.set(ipv4Mapped("0.0.0.0"), 44);
  return bytes;
}

/** Undefined: it is no answer to this request. */
export function readPcp(bytes: Uint8Array, { nonce, port, lifetimeS }: Wanted): Answer | undefined {
  const view = viewOf(bytes);
  // A router that knows only NAT-PMP answers with its own version.
  if (bytes.length >= 4 && bytes[0] === 0) return { refused: "it does not know PCP" };
  if (bytes.length < pcpBytes || bytes[0] !== 2 || bytes[1] !== 0x81) return undefined;
  if (!nonce.every((each, at) => bytes[24 + at] === each)) return undefined;
  if (bytes[36] !== udp || view.getUint16(40) !== port) return undefined;
  if (bytes[3] !== 0) return { refused: pcpRefusals[bytes[3] ?? 0] ?? `PCP result ${bytes[3]}` };
  const address = bytes.subarray(44, 60);
  const isMapped = ipv4Mapped("0.0.0.0").every((each, at) => at >= 12 || address[at] === each);
  if (!isMapped) return { refused: "its address outside is none of IPv4" };
  const host = formatAddress(addressFromBytes(address.subarray(12)));
  return granted({ host, external: view.getUint16(42), lifetimeS: view.getUint32(4) }, lifetimeS);
}

/** In both protocols a lifetime of 0 seconds ends a mapping, also in the answer to a request for one. */
function granted(answer: Answer & { lifetimeS: number }, askedS: number): Answer {
  return askedS > 0 && answer.lifetimeS === 0 ? { refused: "it grants a mapping of 0 seconds" } : answer;
}

export const notAllowed = "it does not allow port mappings";
const pcpRefusals: Readonly<Record<number, string>> = {
  2: notAllowed,
  8: "it has no free ports",
  10: "this machine has too many mappings",
  11: "it has no free port like that",
  12: "another router is between it and this machine",
};

/** Asks for the address outside (RFC 6886, section 3.2). */
export const pmpAddressRequest = (): Uint8Array<ArrayBuffer> => new Uint8Array(2);

export function readPmpAddress(bytes: Uint8Array): { host: string } | { refused: string } | undefined {
  if (bytes.length < 12 || bytes[0] !== 0 || bytes[1] !== 0x80) return undefined;
  const refused = pmpRefusal(bytes);
  return refused ?? { host: formatAddress(addressFromBytes(bytes.subarray(8, 12))) };
}

/** A request to map UDP (RFC 6886, section 3.3). */
export function pmpRequest({ port, external, lifetimeS }: Wanted): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(12);
  const view = new DataView(bytes.buffer);
  bytes[1] = 1;
  view.setUint16(4, port);
  view.setUint16(6, external);
  view.setUint32(8, lifetimeS);
  return bytes;
}

export function readPmp(bytes: Uint8Array, { port, lifetimeS }: Wanted): Answer | undefined {
  if (bytes.length < 16 || bytes[0] !== 0 || bytes[1] !== 0x81) return undefined;
  const view = viewOf(bytes);
  if (view.getUint16(8) !== port) return undefined;
  const answer = { external: view.getUint16(10), lifetimeS: view.getUint32(12) };
  return pmpRefusal(bytes) ?? granted(answer, lifetimeS);
}

function pmpRefusal(bytes: Uint8Array): { refused: string } | undefined {
  const result = viewOf(bytes).getUint16(2);
  if (result === 0) return undefined;
  return { refused: result === 2 ? notAllowed : `NAT-PMP result ${result}` };
}

const viewOf = (bytes: Uint8Array) => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

/** The 16 bytes of ::ffff:192.0.2.1: PCP has addresses of IPv4 in this form. */
function ipv4Mapped(address: string): number[] {
  const parsed = parseAddress(address);
  const four = parsed?.family === 4 ? addressBytes(parsed) : [0, 0, 0, 0];
  return [...Array.from({ length: 10 }, () => 0), 255, 255, ...four];
}
