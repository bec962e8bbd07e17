// Notices that UDP is blocked: no lighthouse or relay answers by UDP while one does by TCP. Then the node goes by TCP
// (tcp-fallback.ts).

import { join } from "node:path";
import { AppError } from "../../base/errors.ts";
import { parseAddress } from "../../base/ip.ts";
import { readText } from "../../base/open-file.ts";
import { formatTime } from "../../base/quantities.ts";
import { atPlane } from "../../protocol/organization-files.ts";
import { forwarderPath } from "../../base/datagrams/forwarder.ts";
import { sendOrLose } from "../../base/datagrams/frames.ts";
import { engineQuestion, isEngineAnswer } from "../engine/engine-question.ts";
import { staticHosts } from "../files/config/read-config.ts";
import { credentialsIfOwn, type Organization } from "../files/organizations.ts";
import { isStopped } from "../files/stopped-by-user.ts";
import { readTcpState, tcpWaysOf, type TcpState } from "../files/tcp-state.ts";
import { applyChanges } from "../health/apply-changes.ts";
import type { EdgeContext } from "./part.ts";
import { openTcpWay } from "./tcp-way.ts";
import { proxyFor } from "../../base/connect-failure.ts";
import { watchFiles } from "./watch-files.ts";

/**
 * While an answer to the probes of health is younger than this, UDP passes, and nothing is asked. Probes go every 8 s (probe-paces.ts);
 * an answer that takes longer than 300 ms costs a question.
 */
const heardEnoughMs = 8300;
/** How often one lighthouse or relay is asked by UDP if they do not answer probes: two packets of 44 bytes, 1.3 MB a day. */
const askEveryMs = 6000;
/** How long to wait for the answer of one hub by UDP. */
export const oneByUdpMs = 800;
/** How long to wait for the answers of all hubs by UDP. */
const allByUdpMs = 1000;
/** How long to wait for the answer of one hub by TCP. */
const byTcpMs = 3000;
/** If none answers by UDP within this time, TCP is tried, too. */
const soonMs = 300;
/** How often the question by UDP is repeated. */
const repeatQuestionMs = 200;

/** A lighthouse or relay that is reached by TCP. */
export type Hub = {
  /** Its overlay address. */
  peer: string;
  /** Where it is reached by UDP. */
  host: string;
  port: number;
  /** Its forwarder. */
  url: string;
};

/**
 * Resolves at the signal, or when UDP is blocked and TCP works: then tcp.json says so, and nothing else is changed. While the probes
 * of health are answered by lighthouses or relays, this function asks nothing.
 */
export async function noticeBlockedUdp(context: EdgeContext, signal: AbortSignal): Promise<void> {
  const { slug, directory, log, system, heardAt } = context;
  const hubs = hubsIn(context);
  /** The hub that answered by UDP last: it alone is asked, until it does not answer. */
  let answering: Hub | undefined;
  while (!signal.aborted && readTcpState(directory) === undefined) {
    const all = hubs();
    const heardMs = heardAt?.(all.map(({ peer }) => peer));
    /** How long nothing need be asked; 0 or less: ask now. */
    const restMs = heardMs === undefined ? 0 : heardMs + heardEnoughMs - system.monotonic();
    if (restMs > 0) answering = undefined;
    else if (answering === undefined || (await askByUdp([answering], oneByUdpMs, system)).size === 0) {
      const { byUdp, byTcp } = await askAll(all, system);
      answering = all.find(({ peer }) => byUdp.has(peer));
      if (answering === undefined && byTcp !== undefined && !signal.aborted) {
        await applyState(context, { since: formatTime(system.now()), at: byTcp, ports: {} });
        log.warn("No lighthouse or relay answers by UDP: this node goes by TCP", { team: slug, at: byTcp });
        return;
      }
    }
    await system.sleep(restMs > 0 ? restMs : askEveryMs, signal).catch(() => undefined);
  }
}

/** Asks by UDP, and by TCP too if none answers soon: TCP needs a connection to each. */
async function askAll(hubs: readonly Hub[], system: Pick<EdgeContext["system"], "env" | "lookup" | "sleep">) {
  const byUdp: UdpAnswers = new Map();
  const asking = askByUdp(hubs, allByUdpMs, system, byUdp);
  await system.sleep(soonMs);
  const byTcp = byUdp.size > 0 ? undefined : await firstByTcp(hubs, system);
  return { byUdp: await asking, byTcp };
}

/** Stores the state, and has the engine use these TCP ways; undefined: none. */
export function applyState(
  { slug, directory, control, command, system }: EdgeContext,
  state: TcpState | undefined,
) {
  return applyChanges({ slug, directory }, { tcp: { state } }, { command, control, system });
}

/** Reads the files again only when they change: a blocklist makes config.yml large. */
export function hubsIn(context: EdgeContext): () => Hub[] {
  const { directory } = context;
  const files = watchFiles(context);
  let hubs: Hub[] = [];
  return () => {
    try {
      const organization = files.openIfChanged();
      if (organization !== undefined) hubs = isStopped(directory) ? [] : tcpHubs(organization);
    } catch {
      // A file is being replaced: go on with the known ones until the next look.
      files.retry();
    }
    return hubs;
  };
}

/** How this organization's lighthouses and relays are reached by TCP now. */
export function tcpHubs(organization: Organization): Hub[] {
  const hosts = staticHosts(readText(join(organization.directory, "config.yml")));
  const { api_base: base = "" } = credentialsIfOwn(organization.directory) ?? {};
  return Object.entries(tcpWaysOf(organization)).flatMap(([peer, { at, port }]): Hub[] => {
    const found = hosts.find(({ overlay }) => overlay === peer);
    // `atPlane`: its forwarder is the control plane's own listener.
    const origin = at === atPlane ? base.replace(/^http/, "ws") : `wss://${at}`;
    const url = `${origin}${forwarderPath}${port}`;
    return found === undefined || !URL.canParse(url)
      ? []
      : [{ peer, host: found.host, port: found.port, url }];
  });
}

/** Where each lighthouse or relay answers by UDP, by its overlay address. */
export type UdpAnswers = Map<string, { host: string; port: number }>;

/** Adds each answer to `found` when it comes, and resolves when all have answered or `forMs` have passed. */
export async function askByUdp(
  hubs: readonly Hub[],
  forMs: number,
  system: Pick<EdgeContext["system"], "lookup">,
  found: UdpAnswers = new Map(),
): Promise<UdpAnswers> {
  await Promise.all(
    hubs.map(async ({ peer, host, port }) => {
      const addresses = parseAddress(host) === undefined ? await system.lookup(host, "system") : [host];
      const asked = addresses.slice(0, 2).map(async (address) => {
        if (await hasEngineAt(address, port, forMs)) found.set(peer, { host: address, port });
      });
      await Promise.all(asked);
    }),
  );
  return found;
}

/** Whether an engine answers there. Unlike askEngine it cannot say why not, and costs the daemon no megabytes. */
async function hasEngineAt(hostname: string, port: number, forMs: number): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const opened = Bun.udpSocket({
    hostname: hostname.includes(":") ? "::" : "0.0.0.0",
    connect: { hostname, port },
    socket: {
      data(_, bytes) {
        if (isEngineAnswer(bytes)) resolve(true);
      },
      error: () => undefined,
    },
  });
  // Without a route the socket is refused.
  const socket = await opened.catch(() => undefined);
  if (socket === undefined) return false;
  const send = () => sendOrLose(() => socket.send(engineQuestion()));
  const asking = setInterval(send, repeatQuestionMs);
  const end = setTimeout(() => resolve(false), forMs);
  send();
  return promise.finally(() => {
    clearInterval(asking);
    clearTimeout(end);
    socket.close();
  });
}

/** Where the first hub is reached whose engine answers by TCP, "192.0.2.1:443". Undefined: none answers. */
export async function firstByTcp(
  hubs: readonly Hub[],
  system: Pick<EdgeContext["system"], "env">,
): Promise<string | undefined> {
  const asked = hubs.map(async (hub) => {
    // For one question only: it is not told of the engine's ports, and sends no datagram of the engine.
    const way = await openTcpWay({
      url: hub.url,
      proxy: proxyFor(hub.url, system.env),
      port: 0,
      enginePorts: () => [],
      passes: () => false,
    });
    const isAnswered = await way.ask(byTcpMs);
    way.close();
    if (!isAnswered) throw new AppError("failed", `No engine answers at ${hub.url}`);
    return hub;
  });
  const found = await Promise.any(asked).catch(() => undefined);
  if (found === undefined) return undefined;
  const { hostname, port, protocol } = new URL(found.url);
  return `${hostname}:${port || (protocol === "wss:" ? 443 : 80)}`;
}
