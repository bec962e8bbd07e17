// PCP (RFC 6887) and NAT-PMP (RFC 6886): the datagrams between this node and its router, as bytes. Pure. A router may send
// anything: a datagram that does not fit the request is ignored.

import { addressBytes, addressFromBytes, formatAddress, parseAddress } from "../../../base/ip.ts";

export const routerPort = 5351;

export type Wanted = {
  /** This node's own address towards the router. */
  client: string;
  /** Twelve bytes by which PCP knows the owner of a mapping. */
  nonce: Uint8Array;
  /** The port of the engine on this node. */
  port: number;
  /** The router's port outside; the router may choose another one. 0: any. */
  external: number;
  /** 0 ends the mapping. */
  lifetimeS: number;
};
/** `host`: the router's address outside. `refused`: why it maps nothing, as the end of a sentence about the router. */
export type Answer = { external: number; lifetimeS: number; host?: string } | { refused: string };

/** Protocol number of UDP. */
const udp = 17;

// PCP: version, operation, and where the fields of a MAP are (RFC 6887, sections 7.1, 7.2 and 11.1). An answer has the same layout.
const pcpVersion = 2;
const pcpMap = 1;
/** In the operation of an answer, of both protocols. */
const answerBit = 0x80;
const pcpBytes = 60;
const pcpAt = {
  result: 3,
  lifetimeS: 4,
  client: 8,
  nonce: 24,
  protocol: 36,
  port: 40,
  external: 42,
  host: 44,
};
const nonceBytes = 12;

/** A request MAP (RFC 6887, sections 7.1 and 11.1). */
export function pcpRequest({ client, nonce, port, external, lifetimeS }: Wanted): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(pcpBytes);
  const view = new DataView(bytes.buffer);
  bytes.set([pcpVersion, pcpMap]);
  view.setUint32(pcpAt.lifetimeS, lifetimeS);
  bytes.set(ipv4Mapped(client), pcpAt.client);
  bytes.set(nonce.subarray(0, nonceBytes), pcpAt.nonce);
  bytes[pcpAt.protocol] = udp;
  view.setUint16(pcpAt.port, port);
  view.setUint16(pcpAt.external, external);
  bytes.set(ipv4Mapped("0.0.0.0"), pcpAt.host);
  return bytes;
}

/** Undefined: it is no answer to this request. */
export function readPcp(bytes: Uint8Array, { nonce, port, lifetimeS }: Wanted): Answer | undefined {
  const view = viewOf(bytes);
  // A router that knows only NAT-PMP answers with its own version.
  if (bytes.length >= 4 && bytes[0] === pmpVersion) return { refused: "it does not know PCP" };
  if (bytes.length < pcpBytes || bytes[0] !== pcpVersion || bytes[1] !== pcpMap + answerBit) return undefined;
  if (!nonce.every((byte, at) => bytes[pcpAt.nonce + at] === byte)) return undefined;
  if (bytes[pcpAt.protocol] !== udp || view.getUint16(pcpAt.port) !== port) return undefined;
  const result = bytes[pcpAt.result] ?? 0;
  if (result !== 0) return { refused: pcpRefusals[result] ?? `PCP result ${result}` };
  const address = bytes.subarray(pcpAt.host, pcpBytes);
  const isMapped = ipv4Mapped("0.0.0.0").every((each, at) => at >= 12 || address[at] === each);
  if (!isMapped) return { refused: "its address outside is not IPv4" };
  const host = formatAddress(addressFromBytes(address.subarray(12)));
  const answer = {
    host,
    external: view.getUint16(pcpAt.external),
    lifetimeS: view.getUint32(pcpAt.lifetimeS),
  };
  return granted(answer, lifetimeS);
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

// NAT-PMP: version, operations, and where the fields of a mapping are (RFC 6886, section 3). An answer has a result before them.
const pmpVersion = 0;
const pmpAddress = 0;
const pmpMapUdp = 1;
const pmpAskedAt = { port: 4, external: 6, lifetimeS: 8 };
const pmpAnsweredAt = { result: 2, address: 8, port: 8, external: 10, lifetimeS: 12 };

/** Asks for the address outside (RFC 6886, section 3.2). */
export const pmpAddressRequest = (): Uint8Array<ArrayBuffer> => new Uint8Array([pmpVersion, pmpAddress]);

export function readPmpAddress(bytes: Uint8Array): { host: string } | { refused: string } | undefined {
  if (bytes.length < 12 || bytes[0] !== pmpVersion || bytes[1] !== pmpAddress + answerBit) return undefined;
  const refused = pmpRefusal(bytes);
  return (
    refused ?? {
      host: formatAddress(addressFromBytes(bytes.subarray(pmpAnsweredAt.address, pmpAnsweredAt.address + 4))),
    }
  );
}

/** A request to map UDP (RFC 6886, section 3.3). */
export function pmpRequest({ port, external, lifetimeS }: Wanted): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(12);
  const view = new DataView(bytes.buffer);
  bytes.set([pmpVersion, pmpMapUdp]);
  view.setUint16(pmpAskedAt.port, port);
  view.setUint16(pmpAskedAt.external, external);
  view.setUint32(pmpAskedAt.lifetimeS, lifetimeS);
  return bytes;
}

export function readPmp(bytes: Uint8Array, { port, lifetimeS }: Wanted): Answer | undefined {
  if (bytes.length < 16 || bytes[0] !== pmpVersion || bytes[1] !== pmpMapUdp + answerBit) return undefined;
  const view = viewOf(bytes);
  if (view.getUint16(pmpAnsweredAt.port) !== port) return undefined;
  const answer = {
    external: view.getUint16(pmpAnsweredAt.external),
    lifetimeS: view.getUint32(pmpAnsweredAt.lifetimeS),
  };
  return pmpRefusal(bytes) ?? granted(answer, lifetimeS);
}

function pmpRefusal(bytes: Uint8Array): { refused: string } | undefined {
  const result = viewOf(bytes).getUint16(pmpAnsweredAt.result);
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
