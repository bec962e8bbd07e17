// Where UDP is blocked, this node goes by TCP. It notices within ten seconds that no lighthouse or relay answers by UDP while
// one does by TCP, gives its engine addresses on loopback for them (tcp-way.ts), and takes these away when UDP passes again.

import { because } from "../../base/errors.ts";
import { sendFromPort } from "../../platform/network/raw-udp.ts";
import { portsOf } from "../../platform/network/port-holder.ts";
import { controlSocket } from "../../platform/systemd/control-socket.ts";
import type { EngineControl } from "../engine/control-engine.ts";
import { localApi } from "../engine/local-api.ts";
import { readTcpState } from "../files/tcp-state.ts";
import { runPart, type EdgeContext, type RunningPart } from "./part.ts";
import { openTcpWay, type TcpWay } from "./tcp-way.ts";
import { proxyFor } from "../../base/connect-failure.ts";
import {
  applyState,
  askByUdp,
  hubsIn,
  noticeBlockedUdp,
  oneByUdpMs,
  type Hub,
  type UdpAnswers,
} from "./notice-blocked-udp.ts";

/** How often UDP is tried while this node goes by TCP. */
const everyMs = 3000;
/** UDP passes again after so many answers in a row. */
const enoughAnswers = 2;
/** The engine sends something to each lighthouse within this time. After such a silence it no longer uses the way by TCP. */
const quietMs = 12_000;
/** After this time the tunnels that still go by TCP are closed. */
const longestReturnMs = 45_000;
/** How often one of the engine's packets is sent to the lighthouse from the engine's own port (makeNudges). */
const nudgeEveryMs = 1000;
/** After this time, the same packet goes by TCP, in case the one by UDP was lost. An engine ignores the second one of two equal packets. */
const repeatMs = 150;

export const startTcpFallback = (context: EdgeContext): RunningPart =>
  runPart((signal, isOver) => run(context, signal, isOver));

async function run(context: EdgeContext, signal: AbortSignal, isOver: () => boolean): Promise<void> {
  const { slug, directory, log, system } = context;
  while (!signal.aborted) {
    try {
      // Without tcp.json this node goes by UDP; noticeBlockedUdp writes it once UDP is blocked and TCP works.
      if (readTcpState(directory) === undefined) await noticeBlockedUdp(context, signal);
      if (readTcpState(directory) !== undefined) await goByTcp(context, signal, isOver);
    } catch (error) {
      log.error("TCP fallback failed; trying again", because(slug, error));
      await system.sleep(everyMs, signal).catch(() => undefined);
    }
  }
}

/** A hub is a lighthouse or relay. */
type Way = { hub: Hub; way: TcpWay };
/** By overlay address of the hub. */
type Ways = Map<string, Way>;

/**
 * Resolves when UDP passes again and the engine has left, or at the signal. `isOver`: whether this part ends for good, so that the
 * engine must leave TCP, or only this process.
 */
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
    // Only this process ends: the next one opens the ways again, at the same ports.
    if (signal.aborted && !isOver()) return;
    await goBack(context, ways, answers, nudges);
  } finally {
    for (const { way } of ways.values()) way.close();
  }
}

/** Opens a way to each hub, closes ways that are not needed any more, and gives the engine the new ports. */
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
  // Writes tcp.json, and lets the engine use the ways.
  await applyState(context, { ...state, ports });
  log.info("The engine tries lighthouses and relays by TCP", {
    team: slug,
    peers: Object.keys(ports).length,
  });
  // Direct tunnels to other peers are dead, too, except in the local network, where a new handshake takes milliseconds.
  await closeTunnels(context, "all");
}

/**
 * Closes the tunnels with these peers (overlay addresses), so that the engine shakes hands again with its next packet. Engines before 1.12 have no such call: they shake
 * hands again when answers are missing.
 */
async function closeTunnels(
  { directory, system }: EdgeContext,
  peers: readonly string[] | "all",
): Promise<void> {
  const api = localApi(controlSocket(directory), system);
  const all = peers === "all" ? await api.hostmap().catch(() => []) : [];
  const closed = peers === "all" ? all.flatMap(({ vpnAddrs: [address] }) => address ?? []) : peers;
  for (const peer of closed) await api.closeTunnel(peer, { localOnly: true }).catch(() => undefined);
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
  /** Where each hub answers by UDP, by its overlay address. Empty: no packet goes by UDP. */
  to: ReadonlyMap<string, { host: string; port: number }>;
  /** Whether a datagram of the engine goes by TCP now. If not, it was sent by UDP, and goes by TCP a moment later. */
  pass(peer: string, datagram: Uint8Array, ways: ReadonlyMap<string, Way>): boolean;
};

/**
 * The engine does not leave an address by itself while it works, but it follows its peer. So one of the engine's packets is sent
 * to the lighthouse by UDP from the engine's own port. The lighthouse answers by UDP, and the engine follows, without a lost packet.
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

/** The engine's header of a packet. Its first byte has the type in the lower half. */
const headerBytes = 16;
/** Whether a datagram proves its sender: it is no handshake (type 0), no recv_error (2) and no empty punch. */
const isEncrypted = (datagram: Uint8Array) =>
  datagram.length > headerBytes && ![0, 2].includes((datagram[0] ?? 0) & 0x0f);

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
  /** A way that the engine has used counts as used until it is silent for `quietMs`, measured from now on. */
  const isUsed = ({ way }: Way) =>
    way.usedAt !== undefined && performance.now() - Math.max(way.usedAt, from) < quietMs;
  while (performance.now() - from < longestReturnMs && [...ways.values()].some(isUsed))
    await system.sleep(500).catch(() => undefined);
  const stillUsed = [...ways].filter(([, each]) => isUsed(each)).map(([peer]) => peer);
  if (stillUsed.length > 0) await closeTunnels(context, stillUsed);
}
