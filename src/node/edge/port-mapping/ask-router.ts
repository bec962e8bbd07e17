// Asks the router for a UDP port: by PCP, NAT-PMP or UPnP-IGD, whichever it knows. What it answers is checked: a router, also
// one of a foreign network, cannot make this node name an address that is not of the internet.

import { given } from "../../../base/given.ts";
import { messageOf } from "../../../base/errors.ts";
import type { Step } from "../../../base/plan/plan.ts";
import { networkContains, parseAddress, parseNetworks, parseUnderlay } from "../../../base/ip.ts";
import { sendOrLose } from "../../../base/datagrams/frames.ts";
import {
  notAllowed,
  pcpRequest,
  pmpAddressRequest,
  pmpRequest,
  readPcp,
  readPmp,
  readPmpAddress,
  routerPort,
  type Answer,
  type Wanted,
} from "./datagrams.ts";
import {
  addMapping,
  deleteMapping,
  externalAddress,
  findControl,
  keptMapping,
  tagIn,
  type Control,
} from "./upnp.ts";

export type Protocol = "PCP" | "NAT-PMP" | "UPnP";
/**
 * A mapping, as a request must name it to renew or delete it. `port`: of the engine. `external`: of the router. `nonce`: PCP knows
 * the owner by it. `control`: where the router takes requests by UPnP.
 */
export type HeldMapping = {
  by: Protocol;
  port: number;
  external: number;
  nonce: Uint8Array;
  control?: Control;
};
export type Mapping = HeldMapping & {
  /** The router's address outside, and its port: "198.51.100.7:4242" */
  at: string;
  /** How long the router keeps it, in seconds; 0: without an end. */
  lifetimeS: number;
};
export type Refusal = {
  /** Why, as the end of a sentence about the router. */
  refused: string;
  /** The request failed without an answer to it: the router may still have the mapping that was to be renewed. */
  isUncertain?: true;
};

/** Short: then a router forgets the mapping of a node that was killed, and one that was restarted is soon asked again. */
const usualLifetimeS = 600;
/** Longer, because a request by UPnP is some kilobytes. */
const upnpLifetimeS = 1200;
/** How many requests one router gets by UPnP. After a conflict, the next one asks for another port. */
const mostUpnpRequests = 4;
/** How long each try by PCP or NAT-PMP waits for an answer. */
const triesMs = [250, 500, 1000];

type Question = {
  /** The router's address. */
  gateway: string;
  /** Of the engine. */
  port: number;
  /** For a new mapping by PCP. */
  nonce: Uint8Array;
  /** The mapping to renew, if there is one: its protocol and its port outside are tried first. */
  held?: HeldMapping | undefined;
  /** Networks of overlays: a mapping to an address in one of them is of no use. */
  overlays: readonly string[];
};

/** Undefined: no router answers, or this machine's own address is one of the internet. Does not reject. */
export async function askRouter(question: Question): Promise<Mapping | Refusal | undefined> {
  const { gateway, held } = question;
  const client = await addressTowards(gateway);
  // Port 1 stands for any one: the address is judged.
  if (client === undefined || parseUnderlay(`${client}:1`)?.isPrivate !== true) return undefined;
  // The protocol of the held mapping first, then the others in their order.
  const first = Math.max(
    0,
    protocols.findIndex(({ name }) => name === held?.by),
  );
  let refusal: Refusal | undefined;
  for (const { ask } of [...protocols.slice(first), ...protocols.slice(0, first)]) {
    const answer = await ask(client, question).catch(failed);
    if (answer !== undefined && "at" in answer) return answer;
    // An uncertain refusal stays: protocols that are asked later do not know about the held mapping.
    refusal = refusal?.isUncertain === true ? refusal : (answer ?? refusal);
  }
  return refusal;
}

type Ask = (client: string, question: Question) => Promise<Mapping | Refusal | undefined>;

const protocols: readonly { name: Protocol; ask: Ask }[] = [
  { name: "PCP", ask: (client, question) => byPcp(client, question) },
  { name: "NAT-PMP", ask: (client, question) => byPmp(client, question) },
  { name: "UPnP", ask: (client, question) => byUpnp(client, question) },
];
const failed = (error: unknown): Refusal => ({ refused: messageOf(error), isUncertain: true });

/** This machine's own address on the way there. Sends nothing. */
export async function addressTowards(gateway: string): Promise<string | undefined> {
  const connected = { hostname: "0.0.0.0", connect: { hostname: gateway, port: routerPort } };
  const socket = await Bun.udpSocket({ ...connected, socket: { error: () => undefined } }).catch(
    () => undefined,
  );
  const own = socket?.address.address;
  socket?.close();
  return own === "0.0.0.0" ? undefined : own;
}

function wantedOf(client: string, { port, nonce, held }: Question, lifetimeS: number): Wanted {
  return {
    client,
    nonce: held?.nonce ?? nonce,
    port,
    external: held?.external ?? port,
    lifetimeS,
  };
}

async function byPcp(client: string, question: Question): Promise<Mapping | Refusal | undefined> {
  const wanted = wantedOf(client, question, usualLifetimeS);
  const answer = await exchange(question.gateway, pcpRequest(wanted), (bytes) => readPcp(bytes, wanted));
  return answer === undefined ? undefined : toMapping("PCP", answer, wanted, question);
}

async function byPmp(client: string, question: Question): Promise<Mapping | Refusal | undefined> {
  const { gateway } = question;
  const address = await exchange(gateway, pmpAddressRequest(), readPmpAddress);
  if (address === undefined || "refused" in address) return address;
  const wanted = wantedOf(client, question, usualLifetimeS);
  // Before a port is opened that would be of no use.
  const unusable = whyUnusable(address.host, question);
  if (unusable !== undefined) return unusable;
  const answer = await exchange(gateway, pmpRequest(wanted), (bytes) => readPmp(bytes, wanted));
  return answer === undefined ? undefined : toMapping("NAT-PMP", { ...answer, ...address }, wanted, question);
}

// Error codes of WANIPConnection:2 (UPnP Forum), section 2.5.
/** ConflictInMappingEntry: another machine has the port. */
const conflict = 718;
/** ConflictWithOtherMechanisms: it was mapped by another protocol. */
const conflictOther = 729;
/** OnlyPermanentLeasesSupported. */
const onlyPermanent = 725;
/** Action not authorized. */
const unauthorized = 606;

async function byUpnp(client: string, question: Question): Promise<Mapping | Refusal | undefined> {
  const { gateway, held } = question;
  // A router that was restarted may answer at another port.
  const control = (await findControl(gateway)) ?? held?.control;
  return control === undefined ? undefined : mapByUpnp(client, question, control);
}

export async function mapByUpnp(
  client: string,
  question: Question,
  control: Control,
): Promise<Mapping | Refusal> {
  const { gateway, held } = question;
  const found = await externalAddress(gateway, control);
  if ("fault" in found) return failedWith(found.fault);
  const host = tagIn(found.values, "NewExternalIPAddress") ?? "";
  const unusable = whyUnusable(host, question);
  if (unusable !== undefined) return unusable;
  let wanted = wantedOf(client, question, upnpLifetimeS);
  const mapped = (lifetimeS: number) =>
    toMapping("UPnP", { host, external: wanted.external, lifetimeS }, wanted, question, control);
  for (let tries = 0; tries < mostUpnpRequests; tries++) {
    const answer = await addMapping(gateway, control, wanted);
    if ("values" in answer) return mapped(wanted.lifetimeS);
    const { fault } = answer;
    if (fault === unauthorized) return { refused: notAllowed };
    if (fault === onlyPermanent) {
      wanted = { ...wanted, lifetimeS: 0 };
      continue;
    }
    // Some routers refuse to renew a mapping and keep it. Asking for another port each time would fill their table.
    const isRenewal = held?.by === "UPnP" && held.external === wanted.external;
    const keptS = isRenewal ? await keptMapping(gateway, control, wanted) : undefined;
    if (keptS !== undefined) return mapped(keptS);
    if (fault !== conflict && fault !== conflictOther) return failedWith(fault);
    wanted = { ...wanted, external: anyPort() };
  }
  return { refused: "it has no free ports" };
}

const failedWith = (fault: number): Refusal => ({ refused: `UPnP error ${fault}`, isUncertain: true });
const anyPort = () => 49_152 + Math.floor(Math.random() * 16_384);

/** The mapping that a router grants, unless it names an address that cannot be used. */
function toMapping(
  by: Protocol,
  answer: Answer,
  { port, nonce }: Wanted,
  question: Question,
  control?: Control,
): Mapping | Refusal {
  if ("refused" in answer) return answer;
  const { host = "", external } = answer;
  const unusable = whyUnusable(host, question, external);
  if (unusable !== undefined) return unusable;
  const mapped = { by, port, external, nonce, ...given({ control }) };
  return { ...mapped, at: `${host}:${external}`, lifetimeS: answer.lifetimeS };
}

/** Why the router's address outside cannot be used. Undefined for an IPv4 address of the internet that is not in an overlay. */
export function whyUnusable(
  host: string,
  { overlays }: Pick<Question, "overlays">,
  port = 1,
): Refusal | undefined {
  const address = parseAddress(host);
  const place = parseUnderlay(`${host}:${port}`);
  if (address?.family !== 4 || place === undefined) return { refused: "it names no address of the internet" };
  if (place.isPrivate) return { refused: `it is behind another NAT: its address outside is ${place.host}` };
  const isOverlay = parseNetworks(overlays).some((each) => networkContains(each, address));
  return isOverlay ? { refused: `it names an address of an overlay: ${place.host}` } : undefined;
}

/** Ends a mapping. A router that does not answer forgets it by itself. Does not reject. */
export async function endMapping(gateway: string, held: HeldMapping): Promise<void> {
  const client = await addressTowards(gateway);
  if (client === undefined) return;
  const ending = async (): Promise<unknown> => {
    // PCP and NAT-PMP end a mapping by a lifetime of 0, without a port outside.
    const wanted = { ...held, client, external: 0, lifetimeS: 0 };
    switch (held.by) {
      case "PCP":
        return exchange(gateway, pcpRequest(wanted), (bytes) => readPcp(bytes, wanted));
      case "NAT-PMP":
        return exchange(gateway, pmpRequest(wanted), (bytes) => readPmp(bytes, wanted));
      case "UPnP":
        return held.control && deleteMapping(gateway, held.control, held.external);
    }
  };
  await ending().catch(() => undefined);
}

/** The plan of endMapping. */
export function endRequest(gateway: string, { by, control }: HeldMapping): Step | undefined {
  if (by !== "UPnP") return { step: "request", method: by, url: `udp://${gateway}:${routerPort}` };
  if (control === undefined) return undefined;
  return { step: "request", method: "POST", url: `http://${gateway}:${control.port}${control.path}` };
}

/** The longest message of PCP, in bytes (RFC 6887, section 7). */
const longestAnswer = 1100;

/** The router's answer: its first datagram that `read` accepts. Undefined: none came in time. */
async function exchange<T>(
  hostname: string,
  question: Uint8Array<ArrayBuffer>,
  read: (bytes: Uint8Array) => T | undefined,
): Promise<T | undefined> {
  const { promise, resolve } = Promise.withResolvers<T | undefined>();
  const socket = await Bun.udpSocket({
    hostname: "0.0.0.0",
    // The kernel then drops datagrams of others.
    connect: { hostname, port: routerPort },
    socket: {
      data(_, bytes) {
        const answer = bytes.length <= longestAnswer ? read(bytes) : undefined;
        if (answer !== undefined) resolve(answer);
      },
      error: () => undefined,
    },
  });
  void (async () => {
    for (const ms of triesMs) {
      if (socket.closed) return;
      sendOrLose(() => socket.send(question));
      await Bun.sleep(ms);
    }
    resolve(undefined);
  })();
  return promise.finally(() => socket.close());
}
