// Carries out what healing.ts decides: closes tunnels, denies addresses by a reload, and logs each step with its evidence.

import { given } from "../../base/given.ts";
import { messageOf } from "../../base/errors.ts";
import type { Log } from "../../base/log.ts";
import { maxHealings, type Healing } from "../../protocol/path-report.ts";
import type { LocalApi } from "../engine/local-api.ts";
import type { LocalChanges } from "../files/config/local-changes.ts";
import {
  changesOf,
  decide,
  givenUp,
  initialHealing,
  urgentFor,
  type Action,
  type HealingState,
  type Evidence,
} from "./healing.ts";
import type { ObservedPeers } from "./observed-peers.ts";
import type { SeenTunnel } from "./tunnels.ts";

type HealerDeps = {
  slug: string;
  api: Pick<LocalApi, "closeTunnel" | "createTunnel" | "queryLighthouse">;
  /** Stores the changes, rewrites config.yml and reloads the engine. */
  apply(changes: LocalChanges): Promise<unknown>;
  log: Pick<Log, "warn" | "info">;
};

type Tell = Extract<Action, { do: "tell" }>;

const sentences: Readonly<Record<Tell["what"], string>> = {
  healed: "A dead tunnel works again after it was closed",
  denied: "Closing a dead tunnel did not help: its direct path loses packets, so a relay is used for a while",
  relayed: "The peer answers through a relay",
  "no effect": "A dead tunnel stays dead; trying again later",
  "given up": "A dead tunnel stays dead after several attempts; no more follow until the peer answers",
  lifted: "Trying the direct path to a peer again",
};

/** What is reported to the control plane, with the name of the result in the report. */
const reportedResults: Readonly<Partial<Record<Tell["what"], string>>> = {
  healed: "healed",
  relayed: "relayed",
  "given up": "given_up",
};

/** Addresses that an earlier process denied are tried again after this time. */
const inheritedMs = 300_000;
/** The most tunnels that the engine keeps with one peer. */
const mostTunnels = 5;
/** How often a lighthouse is asked for one of the relayed peers, in turn. */
const askEveryMs = 20_000;
/** Pauses between attempts to have a lighthouse know a peer by both addresses are doubled from the first to the longest. */
const firstCompletionMs = 15_000;
const longestCompletionMs = 600_000;
/** Pauses between attempts to apply a change are doubled from the first to the longest. */
const firstPauseMs = 1000;
const longestPauseMs = 300_000;

export class Healer {
  readonly #deps: HealerDeps;
  /** Healings for the control plane, oldest first. A reporter removes those that arrived. */
  readonly healings: Healing[] = [];
  #state: HealingState;
  /** What config.yml has of the state. After a failure it may have more. */
  #applied: LocalChanges;
  /** Tunnels, by index, for which completeAddresses() has nothing left to do. */
  #complete: ReadonlySet<number> = new Set();
  /** By address: when completeAddresses() created its tunnel again, monotonic ms. */
  readonly #begun = new Map<string, { at: number; times: number }>();
  /** No lighthouse is asked before, monotonic ms. */
  #askAt = Number.NEGATIVE_INFINITY;
  /** Failed attempts to apply changes, in a row. */
  #failures = 0;
  /** No attempt to apply changes before, monotonic ms. */
  #notBefore = Number.NEGATIVE_INFINITY;

  /** `inherited`: what config.yml has of an earlier process. `saved`: what that process knew, if it is not too old. */
  constructor(
    deps: HealerDeps,
    inherited: LocalChanges,
    now: number,
    saved?: { state: HealingState; healings: readonly Healing[] },
  ) {
    this.#deps = deps;
    this.healings.push(...(saved?.healings ?? []));
    const until = now + inheritedMs;
    // config.yml does not say whose addresses these are. Each stands in place of its peer, which no peer matches.
    const denials = inherited.denied.map((underlay) => ({ peer: underlay, underlay, until }));
    const relays = inherited.relays && { chosen: inherited.relays, reviewAt: until };
    this.#state = saved?.state ?? { ...initialHealing, denials, relays, tryPromote: inherited.try_promote };
    this.#applied = inherited;
  }

  /** The state that the next process goes on with. */
  get state(): HealingState {
    return this.#state;
  }

  /** Addresses whose tunnels stay dead after all attempts. */
  get givenUp(): string[] {
    return givenUp(this.#state);
  }

  /** The note of `agent peers` beside the path of a peer. */
  noteOf(address: string): string | undefined {
    return noteOn(this.#state, address);
  }

  /** Heals what the observation shows. Resolves with the addresses that are to be probed within a second. Does not reject. */
  async step(seen: ObservedPeers): Promise<string[]> {
    const { state, actions } = decide(this.#state, seen);
    this.#state = state;
    for (const action of actions) await this.#execute(action);
    const changes = changesOf(state);
    const isApplied = this.#failures === 0 && Bun.deepEquals(changes, this.#applied);
    if (!isApplied && seen.now >= this.#notBefore) await this.#apply(changes, seen.now);
    await this.#askForAddresses(seen);
    return urgentFor(this.#state, seen);
  }

  /**
   * Has the engine ask a lighthouse for the addresses of one relayed peer. The peer may have a new one, such as a port that its router
   * maps, and the engine itself asks only every 5000 packets.
   */
  async #askForAddresses({ now, peers }: ObservedPeers): Promise<void> {
    if (now < this.#askAt) return;
    const relayed = peers.filter(({ tunnel }) => tunnel !== undefined && tunnel.remote === undefined);
    const asked = relayed[Math.floor(now / askEveryMs) % Math.max(1, relayed.length)];
    if (asked === undefined) return;
    this.#askAt = now + askEveryMs;
    await this.#deps.api.queryLighthouse(asked.address).catch(() => undefined);
  }

  /**
   * To be called on a lighthouse. If a program on it sends to one of two addresses of a peer before there is a tunnel, its engine answers
   * no questions about the other address as long as that tunnel lasts (QueryCache in Nebula's lighthouse.go, 1.12). A new tunnel whose
   * handshake goes to the last address makes both known. Resolves with whether a handshake was started. Does not reject.
   */
  async completeAddresses(
    tunnels: readonly Pick<SeenTunnel, "addresses" | "index" | "remote">[],
    now: number,
  ): Promise<boolean> {
    const { api, log, slug } = this.#deps;
    let hasBegun = false;
    const isKnownBy = async (address: string) =>
      Object.values(await api.queryLighthouse(address)).some(({ reported }) => reported.length > 0);
    const withTwo = tunnels.filter(({ addresses }) => addresses.length > 1);
    const complete = new Set(withTwo.map(({ index }) => index)).intersection(this.#complete);
    this.#complete = complete;
    const present = new Set(withTwo.map(({ addresses }) => addresses.at(-1)));
    for (const address of this.#begun.keys()) if (!present.has(address)) this.#begun.delete(address);
    for (const { addresses, index, remote } of withTwo) {
      const [first = "", last = ""] = [addresses[0], addresses.at(-1)];
      const { at, times } = this.#begun.get(last) ?? { at: Number.NEGATIVE_INFINITY, times: 0 };
      const pauseMs = Math.min(longestCompletionMs, firstCompletionMs * 2 ** (times - 1));
      if (complete.has(index) || now - at < pauseMs) continue;
      try {
        // Without it, the peer has not reported yet where it is.
        if (!(await isKnownBy(first))) continue;
        if (await isKnownBy(last)) {
          complete.add(index);
          this.#begun.delete(last);
          continue;
        }
      } catch {
        return hasBegun;
      }
      log.info("Peers cannot find a node by one of its addresses: creating its tunnel again", {
        team: slug,
        address: last,
      });
      this.#begun.set(last, { at: now, times: times + 1 });
      await this.#close(first);
      await this.#open(last, remote);
      hasBegun = true;
    }
    return hasBegun;
  }

  async #execute(action: Action): Promise<void> {
    const { log, slug } = this.#deps;
    if (action.do === "tell") {
      const isGood = action.what === "healed" || action.what === "relayed" || action.what === "lifted";
      log[isGood ? "info" : "warn"](sentences[action.what], { team: slug, ...action.evidence });
      const result = reportedResults[action.what];
      if (result !== undefined) this.#report(action.evidence.address, result, action.evidence);
    } else {
      const { relay } = action.evidence;
      if (relay !== undefined) this.#report(relay, "relay_left", action.evidence);
      const why = relay === undefined ? "A tunnel is dead" : "The relay of a tunnel is lost";
      log.warn(`${why}: closing it`, { team: slug, ...action.evidence });
      await this.#close(action.address);
      if (relay !== undefined) await this.#open(action.address);
    }
  }

  /** Adds a result, unless the same one waits already: many tunnels leave one relay at the same time. */
  #report(peer: string, result: string, { silentS, witness }: Evidence): void {
    if (this.healings.some((each) => each.peer === peer && each.result === result)) return;
    const evidence = given({ witness });
    this.healings.push({ peer, result, silent_s: Math.min(86_400, Math.max(0, silentS)), ...evidence });
    if (this.healings.length > maxHealings) this.healings.shift();
  }

  /** Starts a handshake: the peer may not have noticed the loss yet, and its packets then take the new tunnel too. */
  async #open(address: string, remote?: string): Promise<void> {
    const { api, log, slug } = this.#deps;
    try {
      await api.createTunnel(address, remote);
    } catch (error) {
      log.warn("Cannot start a handshake", { team: slug, address, reason: messageOf(error) });
    }
  }

  /** Closes all tunnels with the peer: the engine keeps former ones, and would go back to one, with its dead path. */
  async #close(address: string): Promise<void> {
    const { api, log, slug } = this.#deps;
    try {
      for (let closed = 0; closed < mostTunnels; closed++)
        if (!(await api.closeTunnel(address, { localOnly: true }))) return;
    } catch (error) {
      log.warn("Cannot close a dead tunnel", { team: slug, reason: messageOf(error) });
    }
  }

  /**
   * Applies the changes, then closes the tunnels of the newly denied addresses, so that they use a relay. On a failure, such as a full
   * disk, step() tries again, after pauses that grow, because each attempt reloads the engine.
   */
  async #apply(changes: LocalChanges, now: number): Promise<void> {
    try {
      await this.#deps.apply(changes);
      const { denied } = this.#applied;
      this.#applied = changes;
      this.#failures = 0;
      for (const { peer, underlay } of this.#state.denials)
        if (!denied.includes(underlay)) await this.#close(peer);
    } catch (error) {
      this.#notBefore = now + Math.min(longestPauseMs, firstPauseMs * 2 ** this.#failures);
      this.#failures += 1;
      this.#deps.log.warn("Cannot change the paths of tunnels", {
        team: this.#deps.slug,
        reason: messageOf(error),
      });
    }
  }
}

function noteOn(state: HealingState, address: string): string | undefined {
  if (state.denials.some(({ peer }) => peer === address)) return "direct path loses packets";
  return givenUp(state).includes(address) ? "several attempts to heal it had no effect" : undefined;
}

/** The state of another process's healer, for a check that heals nothing. */
export function knownHealing(state: HealingState): Pick<Healer, "noteOf" | "givenUp"> {
  return { noteOf: (address) => noteOn(state, address), givenUp: givenUp(state) };
}
