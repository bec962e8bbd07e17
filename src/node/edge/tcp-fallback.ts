// Where UDP is blocked, this node goes by TCP. It notices within ten seconds that no lighthouse or relay answers by UDP while
// one does by TCP, gives its engine addresses on loopback for them (tcp-way.ts), and takes these away when UDP passes again.

import { join } from "node:path";
import { AppError, messageOf } from "../../base/errors.ts";
import { parseAddress } from "../../base/ip.ts";
import { readText } from "../../base/open-file.ts";
import { formatTime } from "../../base/quantities.ts";
import { sendFromPort } from "../../platform/network/raw-udp.ts";
import { portsOf } from "../../platform/network/port-holder.ts";
import { controlSocket } from "../../platform/systemd/control-socket.ts";
import { atPlane } from "../../protocol/stored.ts";
import { forwarderPath } from "../../base/datagrams/forwarder.ts";
import { sendOrLose } from "../../base/datagrams/frames.ts";
import type { EngineControl } from "../engine/engine.ts";
import { engineQuestion, isEngineAnswer } from "../engine/engine-question.ts";
import { localApi } from "../engine/local-api.ts";
import { staticHosts } from "../files/config/read-config.ts";
import { credentialsIfOwn, type Organization } from "../files/organizations.ts";
import { isStopped } from "../files/stopped-by-user.ts";
import { readTcpState, tcpWaysOf, type TcpState } from "../files/tcp-state.ts";
import { applyChanges } from "../health/apply-changes.ts";
import { runPart, type EdgeContext, type RunningPart } from "./part.ts";
import { openTcpWay, type TcpWay } from "./tcp-way.ts";
import { proxyFor } from "../../base/connect-failure.ts";
import { watchFiles } from "./watch-files.ts";

/** An answer of this age to the probes of health, every 8 s (probe-paces.ts), shows that UDP passes. A slower one costs a question. */
const quietEnoughMs = 8300;
/** How often one lighthouse or relay is asked by UDP if they do not answer probes: two packets of 44 bytes, 1.3 MB a day. */
const askEveryMs = 6000;
/** How often UDP is tried while this node goes by TCP. */
const everyMs = 3000;
/** How long to wait for the answer of one hub by UDP. */
const oneByUdpMs = 800;
/** How long to wait for the answers of all hubs by UDP. */
const allByUdpMs = 1000;
/** How long to wait for the answer of one hub by TCP. */
const byTcpMs = 3000;
/** If none answers by UDP within this time, TCP is tried, too. */
const soonMs = 300;
/** How often the question by UDP is repeated. */
const repeatQuestionMs = 200;
/** UDP passes again after so many answers in a row. */
const enoughAnswers = 2;
/** The engine sends something to each lighthouse within this time. Then it sends nothing to loopback any more. */
const quietMs = 12_000;
const longestReturnMs = 45_000;
/** How often one of the engine's packets is sent to the lighthouse from the engine's own port (makeNudges). */
const nudgeEveryMs = 1000;
/** After this time, the same packet goes by TCP, in case the one by UDP was lost. An engine ignores the second one of two equal packets. */
const repeatMs = 150;

/** A lighthouse or relay that is reached by TCP. */
type Hub = {
  /** Its overlay address. */
  peer: string;
  /** Where it is reached by UDP. */
  host: string;
  port: number;
  /** Its forwarder. */
  url: string;
};

export const startTcpFallback = (context: EdgeContext): RunningPart =>
  runPart((signal, isOver) => run(context, signal, isOver));

async function run(context: EdgeContext, signal: AbortSignal, isOver: () => boolean): Promise<void> {
  const { slug, directory, log, system } = context;
  while (!signal.aborted) {
    try {
      if (readTcpState(directory) === undefined) await noticeBlockedUdp(context, signal);
      if (readTcpState(directory) !== undefined) await goByTcp(context, signal, isOver);
    } catch (error) {
      log.error("TCP fallback failed; trying again", { team: slug, reason: messageOf(error) });
      await system.sleep(everyMs, signal).catch(() => undefined);
    }
  }
}

/**
 * Resolves at the signal, or when UDP is blocked and TCP works: then tcp.json says so, and nothing else is changed. While health
 * hears lighthouses or relays, it asks nothing.
 */
export async function noticeBlockedUdp(context: EdgeContext, signal: AbortSignal): Promise<void> {
  const { slug, directory, log, system, heardAt } = context;
  const hubs = hubsIn(context);
  let answering: Hub | undefined;
  while (!signal.aborted && readTcpState(directory) === undefined) {
    const all = hubs();
    const heardMs = heardAt?.(all.map(({ peer }) => peer));
    const restMs = heardMs === undefined ? 0 : heardMs + quietEnoughMs - system.monotonic();
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
function applyState({ slug, directory, control, command, system }: EdgeContext, state: TcpState | undefined) {
  return applyChanges({ slug, directory }, { tcp: { state } }, { command, control, system });
}

/** Reads the files again only when they change: a blocklist makes config.yml large. */
function hubsIn(context: EdgeContext): () => Hub[] {
  const { directory } = context;
  const files = watchFiles(context);
  let hubs: Hub[] = [];
  return () => {
    try {
      const organization = files.look();
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
    const origin = at === atPlane ? base.replace(/^http/, "ws") : `wss://${at}`;
    const url = `${origin}${forwarderPath}${port}`;
    return found === undefined || !URL.canParse(url)
      ? []
      : [{ peer, host: found.host, port: found.port, url }];
  });
}

/** Where each lighthouse or relay answers by UDP, by its overlay address. */
type UdpAnswers = Map<string, { host: string; port: number }>;

/** Adds each answer to `found` when it comes, and resolves when all have answered or `forMs` have passed. */
async function askByUdp(
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

/** The host and port of the first whose engine answers through its TCP listener. */
export async function firstByTcp(
  hubs: readonly Hub[],
  system: Pick<EdgeContext["system"], "env">,
): Promise<string | undefined> {
  const asked = hubs.map(async (hub) => {
    const way = await openTcpWay({
      url: hub.url,
      proxy: proxyFor(hub.url, system.env),
      port: 0,
      enginePorts: () => [],
      passes: () => false,
    });
    const isUdpAnswers = await way.ask(byTcpMs);
    way.close();
    if (!isUdpAnswers) throw new AppError("failed", `No engine answers at ${hub.url}`);
    return hub;
  });
  const found = await Promise.any(asked).catch(() => undefined);
  if (found === undefined) return undefined;
  const { hostname, port, protocol } = new URL(found.url);
  return `${hostname}:${port || (protocol === "wss:" ? 443 : 80)}`;
}

type Way = { hub: Hub; way: TcpWay };
/** By overlay address of the hub. */
type Ways = Map<string, Way>;

/** Resolves when UDP passes again and the engine has left, or at the signal. */
async function goByTcp(context: EdgeContext, signal: AbortSignal, isOver: () => boolean): Promise<void> {
  const { system } = context;
  const hubs = hubsIn(context);
  const ways: Ways = new Map();
  const nudges = makeNudges();
  const open = (hub: Hub) => openWay(hub, context, (datagram) => nudges.pass(hub.peer, datagram, ways));
  try {
    let answers: UdpAnswers = new Map();
    // `inRow`: rounds in a row in which a lighthouse or relay answered by UDP.
    for (let inRow = 0; !signal.aborted && inRow < enoughAnswers; inRow = answers.size > 0 ? inRow + 1 : 0) {
      await updateWays(hubs(), ways, open, context);
      await system.sleep(inRow === 0 ? everyMs : everyMs / 2, signal).catch(() => undefined);
      answers = await askByUdp(hubs(), oneByUdpMs, system);
    }
    if (signal.aborted && !isOver()) return;
    await goBack(context, ways, answers, nudges);
  } finally {
    for (const { way } of ways.values()) way.close();
  }
}

/** Opens a way to each hub, closes those that are needed no more, and tells the engine what is new. */
async function updateWays(
  hubs: readonly Hub[],
  ways: Ways,
  open: (hub: Hub) => Promise<TcpWay>,
  context: EdgeContext,
): Promise<void> {
  const { directory, slug, log } = context;
  for (const [peer, { hub, way }] of ways) {
    if (hubs.some((each) => each.peer === peer && each.url === hub.url)) continue;
    way.close();
    ways.delete(peer);
  }
  for (const hub of hubs) if (!ways.has(hub.peer)) ways.set(hub.peer, { hub, way: await open(hub) });
  const state = readTcpState(directory);
  const ports = Object.fromEntries([...ways].map(([peer, { way }]) => [peer, way.port]));
  if (state === undefined || Bun.deepEquals(state.ports, ports)) return;
  await applyState(context, { ...state, ports });
  log.info("The engine tries lighthouses and relays by TCP", {
    team: slug,
    peers: Object.keys(ports).length,
  });
  // All of them: direct ones to other peers are dead, too, and in the local network a new handshake takes milliseconds.
  await closeTunnels(context);
}

/** Closes tunnels, so that the engine shakes hands again with its next packet. Engines before 1.12 have no such call: they do it when they miss answers. */
async function closeTunnels({ directory, system }: EdgeContext, only?: readonly string[]): Promise<void> {
  const api = localApi(controlSocket(directory), system);
  const all = await api.hostmap().catch(() => []);
  const peers = only ?? all.flatMap(({ vpnAddrs: [address] }) => address ?? []);
  for (const peer of peers) await api.closeTunnel(peer, { localOnly: true }).catch(() => undefined);
}

async function openWay(
  { peer, url }: Hub,
  { control, directory, system }: EdgeContext,
  passes: (datagram: Uint8Array) => boolean,
): Promise<TcpWay> {
  const options = { url, proxy: proxyFor(url, system.env), passes, enginePorts: watchEnginePorts(control) };
  // After a restart of this program the engine goes on with the port that it has, unless another program took it.
  const port = readTcpState(directory)?.ports[peer] ?? 0;
  return openTcpWay({ ...options, port }).catch(() => openTcpWay({ ...options, port: 0 }));
}

/** Returns the UDP ports of the engine as they were found last, and looks again for the next call. Empty: unknown. */
export function watchEnginePorts(control: Pick<EngineControl, "process">): () => readonly number[] {
  let ports: readonly number[] = [];
  const lookAgain = () => {
    control.process().then(
      (process) => (ports = process === undefined ? [] : portsOf(process.pid)),
      // The service manager did not answer: the ports that are known stay.
      () => undefined,
    );
  };
  lookAgain();
  return () => {
    lookAgain();
    return ports;
  };
}

type Nudges = {
  /** Where each answers by UDP; empty: nothing is sent there. */
  to: ReadonlyMap<string, { host: string; port: number }>;
  pass(peer: string, datagram: Uint8Array, ways: ReadonlyMap<string, Way>): boolean;
};

/**
 * The engine does not leave an address by itself while it works. But it follows its peer: so one of its packets goes to the
 * lighthouse from the engine's own port. The lighthouse answers there, and the engine goes on there, without a lost packet.
 */
function makeNudges(): Nudges {
  const sentAt = new Map<string, number>();
  const nudges: Nudges = {
    to: new Map(),
    pass(peer, datagram, ways) {
      const target = nudges.to.get(peer);
      const way = ways.get(peer)?.way;
      const now = performance.now();
      if (target === undefined || way?.enginePort === undefined) return true;
      if (!isEncrypted(datagram) || now - (sentAt.get(peer) ?? 0) < nudgeEveryMs) return true;
      sentAt.set(peer, now);
      const kept = datagram.slice();
      if (!sendFromPort(way.enginePort, target, kept)) return true;
      setTimeout(() => way.send(kept), repeatMs);
      return false;
    },
  };
  return nudges;
}

/** Whether a datagram proves its sender: it is no handshake (type 0), no recv_error (2) and no empty punch. */
const isEncrypted = (datagram: Uint8Array) =>
  datagram.length > 16 && ![0, 2].includes((datagram[0] ?? 0) & 0x0f);

/** Takes the addresses on loopback away from the engine, and resolves when it sends nothing to them any more. */
async function goBack(
  context: EdgeContext,
  ways: ReadonlyMap<string, Way>,
  answers: Nudges["to"],
  nudges: Nudges,
): Promise<void> {
  const { slug, log, system } = context;
  await applyState(context, undefined);
  log.info("UDP passes again: this node leaves TCP", { team: slug });
  nudges.to = answers;
  const from = performance.now();
  const isUsed = ({ way }: Way) =>
    way.usedAt !== undefined && performance.now() - Math.max(way.usedAt, from) < quietMs;
  while (performance.now() - from < longestReturnMs && [...ways.values()].some(isUsed))
    await system.sleep(500).catch(() => undefined);
  const stillUsed = [...ways].filter(([, each]) => isUsed(each)).map(([peer]) => peer);
  if (stillUsed.length > 0) await closeTunnels(context, stillUsed);
}
