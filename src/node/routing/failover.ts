// Keeps the routes of this node on routers that work: asks the routers of each network whether it is reached, and lets the
// engine use the chosen one. Needs no control plane. Open flows stay with a former router that still works.

import { basename, join } from "node:path";
import { messageOf } from "../../base/errors.ts";
import { fileStamp, textOrEmpty } from "../../base/files.ts";
import type { Log } from "../../base/log.ts";
import { repeat } from "../../base/within.ts";
import type { System } from "../../base/system.ts";
import type { OpenEcho } from "../../platform/network/echo-socket.ts";
import { Echoes } from "../../platform/network/echoes.ts";
import { openTcpPeers } from "../../platform/network/tcp-peers.ts";
import {
  isInNetwork,
  narrowestNetwork,
  readRouteChoice,
  type RouteChoice,
} from "../files/config/route-choice.ts";
import { routeGateways, type Gateway } from "../files/config/read-config.ts";
import { addressesIn } from "../files/granted/networks.ts";
import { chooseRouter, type RouterChoice, type RouterSeen } from "./choose-router.ts";
import { probeMark } from "./route-probe.ts";

type FailoverDeps = {
  directory: string;
  system: Pick<System, "sleep">;
  open: OpenEcho;
  /** ms that never go back. */
  monotonic(): number;
  /** Stores the choice, rewrites config.yml, and lets the engine apply it. True if an old engine had to restart for that. */
  apply(choice: RouteChoice): Promise<boolean>;
  log: Pick<Log, "info" | "warn">;
};

const stepEveryMs = 200;
/** How often the router in use is asked. */
const usedEveryMs = 1000;
/** How often all are asked, once the one in use has not answered for `missedMs`. */
const urgentEveryMs = 250;
const missedMs = 300;
/** How often the others are asked while the one in use answers. */
const otherEveryMs = 5000;
/** A router that is silent for this time is left. */
const silentMs = 1500;
/** How often it is checked whether flows that stay with a former router have ended, and how long they may stay there. */
const flowsEveryMs = 5000;
const keptMs = 3_600_000;
const mostKept = 256;
/** After a restart of an old engine, routers are judged only after this time: all tunnels have to be made again. */
const settlesMs = 10_000;
/** Planned changes, to a better router while the one in use still works, wait for this time after such a restart. */
const plannedAfterMs = 60_000;
/** Pauses after a failure to apply are doubled from the first to the longest. */
const firstPauseMs = 1000;
const longestPauseMs = 60_000;

/** Runs until the signal. Does not reject. */
export async function runFailover(deps: FailoverDeps, signal: AbortSignal): Promise<void> {
  const { system, log } = deps;
  const team = basename(deps.directory);
  const failover = new Failover(deps);
  const failed = (reason: string) => log.warn("Cannot watch the routers of networks", { team, reason });
  await repeat(() => failover.step(), { everyMs: stepEveryMs, signal, system, failed });
  failover.close();
}

/** The former router with which the open flows of a host stay. `until`: monotonic ms. `network`: of the host; empty: not known yet. */
type KeptFlows = { via: string; until: number; network: string };

/**
 * The key of the echoes to one router of a network: `192.168.1.0/24 10.77.0.5`. They carry a mark of the network, and the router
 * answers them only while it reaches that network (route-probe.ts).
 */
const echoKey = (network: string, via: string): string => `${network} ${via}`;

class Failover {
  readonly #deps: FailoverDeps;
  readonly #echoes: Echoes;
  /** By network. */
  readonly #choices = new Map<string, RouterChoice>();
  /** By host, as a network of one address. */
  readonly #kept = new Map<string, KeptFlows>();
  /** The routers of each network. */
  #gateways = new Map<string, Gateway[]>();
  /** This node's overlay addresses. */
  #own: string[] = [];
  /** Stamp of the files that gateways and addresses come from. */
  #stamp = "";
  /** The choice (RouteChoice) that the engine has, as JSON. */
  #applied: string;
  /** A router in use has failed: its replacement does not wait for `#plannedFrom`. */
  #isUrgent = false;
  /** Failures in a row to apply a choice. */
  #failures = 0;
  // Each in monotonic ms:
  /** When it is checked next which flows have ended. */
  #flowsDueAt = 0;
  /** No choice is applied before. */
  #applyFrom = 0;
  /** No planned change of a router is applied before. */
  #plannedFrom = 0;
  /** Routers are not judged before. */
  #judgeFrom = 0;

  constructor(deps: FailoverDeps) {
    this.#deps = deps;
    this.#echoes = new Echoes(deps);
    const { via, kept } = readRouteChoice(deps.directory);
    this.#applied = JSON.stringify({ via, kept });
    const now = deps.monotonic();
    for (const [network, router] of Object.entries(via))
      // Round trips are compared again after the first round of echoes. `failed`: how often routers failed while in use, by address.
      this.#choices.set(network, { via: router, reviewAt: now + usedEveryMs, failed: {} });
    for (const [host, router] of Object.entries(kept))
      this.#kept.set(host, { via: router, until: now + keptMs, network: "" });
  }

  close(): void {
    this.#echoes.close();
  }

  async step(): Promise<void> {
    this.#read();
    await this.#ask();
    const now = this.#deps.monotonic();
    if (now >= this.#judgeFrom)
      for (const [network, routers] of this.#gateways) this.#choose(network, routers, now);
    this.#releaseFlows(now);
    await this.#apply(now);
  }

  /** Reads the files again if they changed, and sets which routers are asked. */
  #read(): void {
    const { directory } = this.#deps;
    const paths = ["config.yml", "host.crt"].map((name) => join(directory, name));
    const stamp = paths.map(fileStamp).join(" ");
    if (stamp === this.#stamp) return;
    const [config = "", hostCrt = ""] = paths.map((path) => textOrEmpty(path));
    this.#gateways = routeGateways(config);
    this.#own = addressesIn(hostCrt);
    this.#stamp = stamp;
    for (const [host, kept] of this.#kept)
      kept.network ||= narrowestNetwork(host, this.#gateways.keys()) ?? "";
    for (const network of this.#choices.keys())
      if (!this.#gateways.has(network)) this.#choices.delete(network);
    const echoes = new Map<string, { from: string; to: string; mark: string }>();
    for (const [network, routers] of this.#gateways) {
      for (const { via } of routers) {
        const from = this.#own.find((address) => address.includes(":") === via.includes(":"));
        if (from !== undefined)
          echoes.set(echoKey(network, via), { from, to: via, mark: probeMark(network) });
      }
    }
    this.#echoes.set(echoes);
  }

  async #ask(): Promise<void> {
    await this.#echoes.send((key) => {
      const [network = "", via = ""] = key.split(" ");
      const used = this.#choices.get(network)?.via;
      const echo = used === undefined ? undefined : this.#echoes.get(echoKey(network, used));
      const isMissed =
        echo?.silentSince !== undefined && this.#deps.monotonic() - echo.silentSince > missedMs;
      if (isMissed) return urgentEveryMs;
      return via === used || used === undefined ? usedEveryMs : otherEveryMs;
    });
  }

  #choose(network: string, routers: readonly Gateway[], now: number): void {
    const before = this.#choices.get(network);
    const seen = routers.map(({ via, metric }): RouterSeen => {
      const echo = this.#echoes.get(echoKey(network, via));
      // A router that was silent for `silentMs` is not alive: noteSilence says so, and clears `aliveSince`.
      const isAlive = echo !== undefined && !this.#echoes.noteSilence(echo, silentMs);
      const { aliveSince, rttMs, answeredAt } = echo ?? {};
      return { via, metric, isAlive, aliveSince, rttMs, hasAnswered: answeredAt !== undefined };
    });
    // Before the first answer or silence, the engine uses what its configuration has.
    const isAllUnknown = seen.every(({ isAlive, aliveSince }) => isAlive && aliveSince === undefined);
    if (before === undefined && isAllUnknown) return;
    const decided = chooseRouter(before, seen, now);
    if (decided === undefined) return;
    this.#choices.set(network, decided.choice);
    const { via } = decided.choice;
    // Flows do not stay with a router that is dead.
    for (const [host, kept] of this.#kept)
      if (kept.network === network && seen.find((each) => each.via === kept.via)?.isAlive !== true)
        this.#kept.delete(host);
    if (before === undefined || before.via === via) return;
    const { log, directory } = this.#deps;
    const evidence = { team: basename(directory), network, from: before.via, to: via };
    if (!decided.isPlanned) {
      this.#isUrgent = true;
      return log.warn("The router of a network does not answer: using another one", evidence);
    }
    log.info("Using another router of a network", evidence);
    this.#keepFlows(network, before.via, now);
  }

  /** Lets the open flows to a network stay with its former router. */
  #keepFlows(network: string, via: string, now: number): void {
    const hosts = openHosts(network).filter(
      (host) => narrowestNetwork(host, this.#gateways.keys()) === network,
    );
    for (const host of hosts.slice(0, mostKept - this.#kept.size))
      this.#kept.set(host, { via, until: now + keptMs, network });
  }

  /** Ends what was kept for flows that have ended. */
  #releaseFlows(now: number): void {
    if (this.#kept.size === 0 || now < this.#flowsDueAt) return;
    this.#flowsDueAt = now + flowsEveryMs;
    const open = new Set(openTcpPeers());
    for (const [host, { until, via, network }] of this.#kept)
      if (now >= until || !open.has(host.replace(/\/\d+$/, "")) || this.#choices.get(network)?.via === via)
        this.#kept.delete(host);
  }

  /** Gives the engine the choice, if it has another one, as soon as that is permitted. */
  async #apply(now: number): Promise<void> {
    const choice: RouteChoice = {
      via: Object.fromEntries([...this.#choices].map(([network, { via }]) => [network, via])),
      kept: Object.fromEntries([...this.#kept].map(([host, { via }]) => [host, via])),
    };
    const text = JSON.stringify(choice);
    const from = this.#isUrgent ? this.#applyFrom : Math.max(this.#applyFrom, this.#plannedFrom);
    if (text === this.#applied || now < from) return;
    try {
      const hasRestarted = await this.#deps.apply(choice);
      if (hasRestarted) {
        this.#judgeFrom = this.#deps.monotonic() + settlesMs;
        this.#applyFrom = now + settlesMs;
        this.#plannedFrom = now + plannedAfterMs;
        // Forget the echoes: a silence before the restart says nothing.
        this.#echoes.set(new Map());
        this.#stamp = "";
      }
      this.#applied = text;
      this.#isUrgent = false;
      this.#failures = 0;
    } catch (error) {
      this.#applyFrom = now + Math.min(longestPauseMs, firstPauseMs * 2 ** this.#failures++);
      this.#deps.log.warn("Cannot change the routes of the engine", {
        team: basename(this.#deps.directory),
        reason: messageOf(error),
      });
    }
  }
}

/** The hosts of a network with which this machine has open TCP connections, as networks of one address. */
function openHosts(network: string): string[] {
  return openTcpPeers()
    .map((host) => `${host}/${host.includes(":") ? 128 : 32}`)
    .filter((host) => isInNetwork(host, network));
}
