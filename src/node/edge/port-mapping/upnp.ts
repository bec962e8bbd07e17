// UPnP-IGD: finds the router's service by SSDP, and asks it by SOAP. Nothing that a router says leads to another host than
// itself: no redirect is followed, no proxy is used, and no XML is parsed beyond a few tags in a text of bounded size.

import { connect } from "node:net";
import { AppError } from "../../../base/errors.ts";
import { brand } from "../../../brand.ts";
import type { Wanted } from "./datagrams.ts";

/** Where the router takes requests for mappings. `service`: its type, which each request names. */
export type Control = { port: number; path: string; service: string };
/** `values`: the body of the answer, XML. `fault`: an error code of UPnP, or a status of HTTP. */
type SoapAnswer = { values: string } | { fault: number };

/** SSDP: the multicast address at which routers are looked for. */
const ssdpGroup = "239.255.255.250";
const ssdpPort = 1900;
/** The type of device that is looked for. A router of version 2 answers, too. */
const searched = "urn:schemas-upnp-org:device:InternetGatewayDevice:1";
const findWithinMs = 2000;
const httpWithinMs = 3000;
/** The longest answer by HTTP. */
const mostBytes = 65_536;
/** How many descriptions of one router are read. */
const mostPlaces = 3;

/** Where this router maps ports; undefined: it does not answer, or maps none. */
export async function findControl(gateway: string): Promise<Control | undefined> {
  const places = new Set<string>();
  const { promise, resolve } = Promise.withResolvers<void>();
  const socket = await Bun.udpSocket({
    hostname: "0.0.0.0",
    socket: {
      data(_, bytes, __, address) {
        const place =
          address === gateway && bytes.length <= 2048
            ? placeIn(bytes.toString("latin1"), gateway)
            : undefined;
        if (place === undefined || places.size >= mostPlaces) return;
        places.add(place.href);
        resolve();
      },
      error: () => undefined,
    },
  });
  const timer = setTimeout(resolve, findWithinMs);
  try {
    const question = (host: string) =>
      `M-SEARCH * HTTP/1.1\r\nHOST: ${host}:${ssdpPort}\r\nMAN: "ssdp:discover"\r\nMX: 1\r\nST: ${searched}\r\n\r\n`;
    // Some routers answer only at one of these addresses.
    for (const host of [gateway, ssdpGroup]) socket.send(question(host), ssdpPort, host);
    await promise;
  } catch {
    // Without a route nothing is sent.
  } finally {
    clearTimeout(timer);
    socket.close();
  }
  for (const place of places) {
    const description = await http(gateway, new URL(place)).catch(() => undefined);
    const control = description === undefined ? undefined : controlIn(description.body, place, gateway);
    if (control !== undefined) return control;
  }
  return undefined;
}

/** The description's address in an answer to the search. */
export function placeIn(answer: string, gateway: string): URL | undefined {
  const [, location = ""] = /^location:[ \t]*(\S{1,256})[ \t]*\r?$/im.exec(answer) ?? [];
  return ownUrl(location, gateway);
}

function ownUrl(text: string, gateway: string, base?: string): URL | undefined {
  if (!URL.canParse(text, base)) return undefined;
  const url = new URL(text, base);
  const isOwn =
    url.protocol === "http:" && url.hostname === gateway && url.username === "" && url.password === "";
  return isOwn && url.href.length <= 512 ? url : undefined;
}

/** The first service of a description that maps ports. */
export function controlIn(description: string, place: string, gateway: string): Control | undefined {
  for (const block of description.split(/<service>/i).slice(1, 64)) {
    const service = tagIn(block, "serviceType") ?? "";
    const control = tagIn(block, "controlURL");
    const url = control === undefined ? undefined : ownUrl(control, gateway, place);
    if (/^urn:schemas-upnp-org:service:WAN(IP|PPP)Connection:[12]$/.test(service) && url !== undefined)
      return { port: Number(url.port || 80), path: url.pathname + url.search, service };
  }
  return undefined;
}

/** The text of the first such tag, without entities: none of the values that count has one. */
export function tagIn(xml: string, tag: string): string | undefined {
  return new RegExp(`<(?:[\\w-]{1,32}:)?${tag}(?:\\s[^<>]{0,256})?>\\s*([^<>&\\s]{1,512})\\s*<`, "i").exec(
    xml,
  )?.[1];
}

export const externalAddress = (gateway: string, control: Control): Promise<SoapAnswer> =>
  soap(gateway, control, "GetExternalIPAddress", {});

export function addMapping(gateway: string, control: Control, wanted: Wanted): Promise<SoapAnswer> {
  return soap(gateway, control, "AddPortMapping", {
    ...named(wanted.external),
    NewInternalPort: wanted.port,
    NewInternalClient: wanted.client,
    NewEnabled: 1,
    NewPortMappingDescription: brand.executable,
    NewLeaseDuration: wanted.lifetimeS,
  });
}

export const deleteMapping = (gateway: string, control: Control, external: number): Promise<SoapAnswer> =>
  soap(gateway, control, "DeletePortMapping", named(external));

/** How long the router still maps the port to this client, s (0: for ever). Undefined: it does not. */
export async function keptMapping(
  gateway: string,
  control: Control,
  { client, port, external }: Wanted,
): Promise<number | undefined> {
  const answer = await soap(gateway, control, "GetSpecificPortMappingEntry", named(external));
  if ("fault" in answer) return undefined;
  const value = (tag: string) => tagIn(answer.values, tag);
  const isOurs = value("NewInternalClient") === client && value("NewInternalPort") === `${port}`;
  const lifetimeS = Number(value("NewLeaseDuration") ?? Number.NaN);
  return isOurs && Number.isInteger(lifetimeS) && lifetimeS >= 0 ? lifetimeS : undefined;
}

const named = (external: number) => ({ NewRemoteHost: "", NewExternalPort: external, NewProtocol: "UDP" });

async function soap(
  gateway: string,
  { port, path, service }: Control,
  action: string,
  values: Readonly<Record<string, string | number>>,
): Promise<SoapAnswer> {
  const inner = Object.entries(values)
    .map(([name, value]) => `<${name}>${value}</${name}>`)
    .join("");
  const body = `<?xml version="1.0"?>\r\n<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/" s:encodingStyle="http://schemas.xmlsoap.org/soap/encoding/"><s:Body><u:${action} xmlns:u="${service}">${inner}</u:${action}></s:Body></s:Envelope>`;
  const url = new URL(path, `http://${gateway}:${port}`);
  const answer = await http(gateway, url, { action: `"${service}#${action}"`, body });
  if (answer.status === 200) return { values: answer.body };
  return { fault: Number(tagIn(answer.body, "errorCode") ?? answer.status) };
}

/** One request on a connection of its own: fetch would go by the proxy of the environment. */
async function http(
  gateway: string,
  url: URL,
  post?: { action: string; body: string },
): Promise<{ status: number; body: string }> {
  const head = [
    `${post === undefined ? "GET" : "POST"} ${url.pathname}${url.search} HTTP/1.1`,
    `Host: ${url.host}`,
    "Connection: close",
    ...(post === undefined
      ? []
      : [
          'Content-Type: text/xml; charset="utf-8"',
          `SOAPAction: ${post.action}`,
          `Content-Length: ${post.body.length}`,
        ]),
  ];
  const socket = connect({ host: gateway, port: Number(url.port || 80) });
  const timer = setTimeout(
    () => socket.destroy(new AppError("failed", "The router did not answer in time")),
    httpWithinMs,
  );
  try {
    socket.write(`${head.join("\r\n")}\r\n\r\n${post?.body ?? ""}`);
    let text = "";
    for await (const chunk of socket) {
      text += Buffer.from(chunk).toString("latin1");
      if (text.length > mostBytes)
        throw new AppError("failed", `The router sent more than ${mostBytes} bytes`);
      if (isWhole(text)) break;
    }
    const [, status = "0"] = /^HTTP\/1\.[01] (\d{3})/.exec(text) ?? [];
    const end = text.indexOf("\r\n\r\n");
    return { status: Number(status), body: end < 0 ? "" : text.slice(end + 4) };
  } finally {
    clearTimeout(timer);
    socket.destroy();
  }
}

/** Whether the answer is complete: some routers leave the connection open afterwards. */
function isWhole(text: string): boolean {
  const end = text.indexOf("\r\n\r\n");
  const [, length] = /\r\ncontent-length:[ \t]*(\d{1,6})[ \t]*\r\n/i.exec(text.slice(0, end + 2)) ?? [];
  return end >= 0 && length !== undefined && text.length >= end + 4 + Number(length);
}
