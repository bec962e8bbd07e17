// Decides how dead tunnels are healed. Pure: state and observation in, state and actions out. Only a tunnel whose
// peer has answered probes before can be dead: administrators may delete the rule for ICMP, so silence alone proves
// nothing. First this node closes its own side, so that the engines shake hands again: that cures lost
// tunnel state. If the new tunnel carries nothing either, the path is lost in one direction: the peer's underlay
// address is denied for a while, so that both engines use a relay.

import { given } from "../../base/given.ts";
import { withoutPort } from "../../base/ip.ts";
import type { LocalChanges } from "../files/config/local-changes.ts";
import { decidePromotion, initialPromotion, type Promotion } from "./paths/promotion.ts";
import { chooseRelays, type RelayChoice } from "./paths/relay-choice.ts";
import { isRelayJustLost, leaveLostRelays, noLoss, type RelayLoss } from "./paths/relay-loss.ts";
import type { ObservedPeer, ObservedPeers } from "./observed-peers.ts";

// All times in this file are monotonic ms, unless a unit is named.

/** The underlay address of a peer that is denied until a time, so that the peer is reached through a relay. */
type Denial = { peer: string; underlay: string; until: number };

/** An attempt to heal the tunnel with one peer. */
type Attempt = {
  closedAt: number;
  /** Index of the closed tunnel. */
  index: number;
  /** The peer's underlay address and port in that tunnel; undefined if it was relayed. */
  remote: string | undefined;
  /** When its address was denied, because closing did not help. Undefined: not yet. */
  deniedAt: number | undefined;
};

type PeerState = {
  attempt: Attempt | undefined;
  /** Attempts in a row without effect. */
  failures: number;
  /** No attempt is made before. */
  notBefore: number;
  /** How often its address was denied lately, and when last. */
  denials: number;
  deniedAt: number;
  /** The last closing that helped. */
  healed: { at: number } | undefined;
};

export type HealingState = Promotion & {
  /** By overlay address. */
  peers: Readonly<Record<string, PeerState>>;
  denials: readonly Denial[];
  /** When this node closed tunnels, in the last minute. */
  closings: readonly number[];
  /** The relays through which other nodes may reach this one. Undefined: all, because they are few. */
  relays: RelayChoice | undefined;
  loss: RelayLoss;
};

export type Evidence = {
  /** The peer's name; its address if no name is known. */
  peer: string;
  address: string;
  remote: string | undefined;
  silentS: number;
  /** The peer that proves that this node is connected: another one that answered, or the same one (witnessOf). */
  witness?: string;
  /** The relay that was lost. */
  relay?: string;
};

export type Action =
  | { do: "close"; address: string; evidence: Evidence }
  | {
      do: "tell";
      what: "denied" | "healed" | "relayed" | "no effect" | "given up" | "lifted";
      evidence: Evidence;
    };

const second = 1000;
const minute = 60 * second;
/** Closing has this time to help before its effect is judged. */
const closeHelpsMs = 5 * second;
/** How long the handshake after a closing may take: through a relay, and after a question to a lighthouse. */
const handshakeMs = 15 * second;
/** An answer at most this old shows that the new tunnel works: the peer is probed every second then. */
const steadyMs = 2500;
/** A tunnel that dies within this time after a closing that helped has the same fault. */
const relapseMs = 3 * minute;
/** How long a healed tunnel is watched: the engine returns to a dead direct path within seconds. */
const watchMs = 20 * second;
/** A denial has this time to help. Measured: both sides use a relay after 12 s. */
const denyHelpsMs = 15 * second;
/** The engine tests a tunnel that packets are sent through, and drops a dead one before this time. An older one works. */
export const outlivesMs = 30 * second;
/** An answer at most this old shows that this node itself is connected: probes come every 10 s. */
const freshMs = 15 * second;
export const mostDenials = 20;
export const mostClosings = 10;
export const mostFailures = 3;
/** The longest pause between attempts, and the longest denial. Both are doubled each time. */
const longestMinutes = 60;
const firstDenialMinutes = 5;
/** After this time without a denial, the next one is short again. */
const forgetDenialsMs = 4 * 60 * minute;
/** A peer that is not observed any more is forgotten this long after its next attempt was due. */
const forgetPeerMs = 10 * minute;
/** For this time after a relay was lost, tunnels leave it, and its own tunnel is not healed. */
const leaveFirstMs = 5 * second;

export const initialHealing: HealingState = {
  ...initialPromotion,
  peers: {},
  denials: [],
  closings: [],
  relays: undefined,
  loss: noLoss,
};

/** The addresses whose next answers decide something: probe them soon. */
export function urgentFor(
  { peers, loss }: HealingState,
  seen: Pick<ObservedPeers, "now" | "peers">,
): string[] {
  const broken = new Set(seen.peers.filter(({ isBroken }) => isBroken).map(({ address }) => address));
  const healing = Object.entries(peers).flatMap(([address, { attempt, healed }]) => {
    const healedMs = seen.now - (healed?.at ?? Number.NEGATIVE_INFINITY);
    const isRelapse = healedMs < relapseMs && broken.has(address);
    return attempt !== undefined || healedMs < watchMs || isRelapse ? [address] : [];
  });
  if (!isRelayJustLost(loss, seen.now)) return healing;
  const lighthouses = seen.peers.filter(({ isLighthouse }) => isLighthouse);
  return [...new Set([...healing, ...lighthouses.map(({ address }) => address)])];
}

/** Peers whose tunnels stay dead: this node has stopped trying. */
export function givenUp({ peers }: HealingState): string[] {
  return Object.entries(peers).flatMap(([address, { failures }]) =>
    failures >= mostFailures ? [address] : [],
  );
}

/** One step, at a new observation. Each part adds its actions to `actions`, and returns the next state. */
export function decide(
  before: HealingState,
  seen: ObservedPeers,
): { state: HealingState; actions: Action[] } {
  const actions: Action[] = [];
  let state: HealingState = {
    ...before,
    closings: before.closings.filter((at) => seen.now - at < minute),
  };
  state = liftDenials(state, seen, actions);
  state = leaveRelays(state, seen, actions);
  // Tunnels leave a lost relay first: without its tunnel, the engine no longer says which ones went through it.
  const mayHeal = ({ address }: ObservedPeer) =>
    seen.now - (state.loss.foundAt[address] ?? Number.NEGATIVE_INFINITY) > leaveFirstMs;
  for (const peer of seen.peers) if (mayHeal(peer)) state = healPeer(state, peer, seen, actions);
  state = { ...state, ...decidePromotion(state, countersToPromote(state, seen), seen.now) };
  state = { ...state, relays: chooseRelays(state.relays, seen.candidates, seen.now) };
  const observed = new Set(seen.peers.map(({ address }) => address));
  state = {
    ...state,
    peers: filterEntries(state.peers, (address, known) => observed.has(address) || isRecent(known, seen)),
  };
  return { state, actions };
}

/** What config.yml gets from the state. */
export function changesOf({ denials, tryPromote, relays }: HealingState): LocalChanges {
  return {
    denied: denials.map(({ underlay }) => underlay),
    ...given({ try_promote: tryPromote }),
    ...(relays === undefined ? {} : { relays: [...relays.chosen] }),
  };
}

/** Closes tunnels through a lost relay: with their next packet they are made through another relay. */
function leaveRelays(state: HealingState, seen: ObservedPeers, actions: Action[]): HealingState {
  const { loss, leave } = leaveLostRelays(state.loss, seen);
  for (const { peer, relay } of leave) {
    const evidence = { ...evidenceOf(peer, peer.address, seen.now, undefined), relay };
    actions.push({ do: "close", address: peer.address, evidence });
  }
  return { ...state, loss };
}

const isRecent = ({ notBefore, deniedAt }: PeerState, { now }: ObservedPeers) =>
  now < notBefore + forgetPeerMs || now - deniedAt < forgetDenialsMs;

function filterEntries<T>(record: Readonly<Record<string, T>>, isKept: (key: string, value: T) => boolean) {
  return Object.fromEntries(Object.entries(record).filter(([key, value]) => isKept(key, value)));
}

const newPeer: PeerState = {
  attempt: undefined,
  failures: 0,
  notBefore: Number.NEGATIVE_INFINITY,
  denials: 0,
  deniedAt: Number.NEGATIVE_INFINITY,
  healed: undefined,
};

/** Ends the denials whose time is over: the engine tries these addresses again. */
function liftDenials(state: HealingState, { now, peers }: ObservedPeers, actions: Action[]): HealingState {
  const ended = state.denials.filter(({ until }) => until <= now);
  for (const { peer, underlay } of ended) {
    const known = peers.find(({ address }) => address === peer);
    actions.push({ do: "tell", what: "lifted", evidence: evidenceOf(known, peer, now, underlay) });
  }
  return { ...state, denials: state.denials.filter(({ until }) => until > now) };
}

/**
 * What the steps of healing one peer work on. `known`: what `state` has of the peer. `next`: returns the state with these changes
 * of the peer, and others. `actions`: each step adds its own.
 */
type PeerCase = {
  state: HealingState;
  peer: ObservedPeer;
  known: PeerState;
  seen: ObservedPeers;
  actions: Action[];
  next(change: Partial<PeerState>, more?: Partial<HealingState>): HealingState;
};

function healPeer(
  state: HealingState,
  peer: ObservedPeer,
  seen: ObservedPeers,
  actions: Action[],
): HealingState {
  const known = state.peers[peer.address] ?? newPeer;
  const next: PeerCase["next"] = (change, more = {}) => ({
    ...state,
    ...more,
    peers: { ...state.peers, [peer.address]: { ...known, ...change } },
  });
  const peerCase: PeerCase = { state, peer, known, seen, actions, next };
  const { attempt } = known;
  if (attempt?.deniedAt !== undefined) return afterDenial(peerCase, attempt, attempt.deniedAt);
  if (attempt !== undefined) return afterClosing(peerCase, attempt);
  return withoutAttempt(peerCase);
}

/** Begins an attempt if the tunnel is dead. */
function withoutAttempt(peerCase: PeerCase): HealingState {
  const { state, peer, known, seen, actions, next } = peerCase;
  // The peer answers again, so a later failure counts as new.
  if (known.failures > 0 && !peer.isBroken && isFresh(peer, seen.now)) return next({ failures: 0 });
  const witness = witnessOf(peer, seen);
  const { tunnel } = peer;
  if (!peer.isBroken || tunnel === undefined || witness === undefined) return state;
  const evidence = { ...evidenceOf(peer, peer.address, seen.now, tunnel.remote), witness };
  const { index, remote } = tunnel;
  const attempt = { closedAt: seen.now, index, remote, deniedAt: undefined };
  // Closing helped lately, until a packet from the peer led the engine back to the direct path: deny that path.
  const isRelapse = known.healed !== undefined && seen.now - known.healed.at < relapseMs;
  if (isRelapse && mayDeny(state, peer, remote, seen)) return deny(peerCase, attempt, remote, evidence);
  if (known.failures >= mostFailures || seen.now < known.notBefore || state.closings.length >= mostClosings)
    return state;
  actions.push({ do: "close", address: peer.address, evidence });
  return next(
    { attempt, notBefore: seen.now + backoffMs(known.failures) },
    { closings: [...state.closings, seen.now] },
  );
}

/** 1, 2, 4 … 60 minutes. */
function backoffMs(failures: number): number {
  return Math.min(longestMinutes, 2 ** failures) * minute;
}

/** After the tunnel was closed. If it works again, the attempt ends. If the engines made a new one that is dead too, denies its path. */
function afterClosing(peerCase: PeerCase, attempt: Attempt): HealingState {
  const { state, peer, seen, actions, next } = peerCase;
  const { now } = seen;
  const { answeredAt = 0, tunnel } = peer;
  const sinceClosed = now - attempt.closedAt;
  // The first answer may come through the relay, just before the engine goes back to the dead direct path.
  if (sinceClosed < closeHelpsMs) return state;
  const evidence = evidenceOf(peer, peer.address, now, attempt.remote);
  if (answeredAt > attempt.closedAt && now - answeredAt < steadyMs) {
    actions.push({ do: "tell", what: "healed", evidence });
    return next({ attempt: undefined, failures: 0, healed: { at: now } });
  }
  // A new tunnel came up, so the peer is there, and some path leads to it.
  const isNew = tunnel !== undefined && tunnel.index !== attempt.index;
  const remote = tunnel?.remote ?? attempt.remote;
  if (isNew && mayDeny(state, peer, remote, seen)) return deny(peerCase, attempt, remote, evidence);
  if (!isNew && sinceClosed < handshakeMs) return state;
  return countFailure(peerCase, attempt, state.denials);
}

/** After the peer's underlay address was denied, so that both engines use a relay. */
function afterDenial(peerCase: PeerCase, attempt: Attempt, deniedAt: number): HealingState {
  const { state, peer, seen, actions, next } = peerCase;
  if ((peer.answeredAt ?? 0) > deniedAt) {
    const evidence = evidenceOf(peer, peer.address, seen.now, attempt.remote);
    actions.push({ do: "tell", what: "relayed", evidence });
    return next({ attempt: undefined, failures: 0, healed: undefined });
  }
  if (seen.now - deniedAt < denyHelpsMs) return state;
  // Lift the denial: it had no effect, and keeps a direct path from coming back.
  const denials = state.denials.filter((each) => each.peer !== peer.address);
  return countFailure(peerCase, attempt, denials);
}

/** Ends an attempt that had no effect. `denials`: those that stay. */
function countFailure(
  { known, peer, seen, actions, next }: PeerCase,
  { closedAt, remote }: Attempt,
  denials: readonly Denial[],
): HealingState {
  const failures = known.failures + 1;
  const evidence = evidenceOf(peer, peer.address, seen.now, remote);
  actions.push({ do: "tell", what: failures >= mostFailures ? "given up" : "no effect", evidence });
  return next({ attempt: undefined, failures, notBefore: closedAt + backoffMs(failures - 1) }, { denials });
}

/** How often the address of the peer was denied in the last hours. */
const recentDenials = ({ denials, deniedAt }: PeerState, now: number) =>
  now - deniedAt < forgetDenialsMs ? denials : 0;

function deny(
  { state, known, seen, actions, next }: PeerCase,
  attempt: Attempt,
  remote: string | undefined,
  evidence: Evidence,
): HealingState {
  const { now } = seen;
  const earlier = recentDenials(known, now);
  const minutes = Math.min(longestMinutes, firstDenialMinutes * 2 ** earlier);
  const denial = {
    peer: evidence.address,
    underlay: withoutPort(remote ?? ""),
    until: now + minutes * minute,
  };
  actions.push({ do: "tell", what: "denied", evidence: { ...evidence, remote } });
  return next(
    { attempt: { ...attempt, deniedAt: now }, denials: earlier + 1, deniedAt: now },
    { denials: [...state.denials, denial] },
  );
}

/**
 * Whether the peer's underlay address may be denied: only if a relay can take over, and no other peer needs the address. Peers behind
 * one router share an address, and a peer can send from an address that is not its own.
 */
function mayDeny(
  { denials }: HealingState,
  peer: ObservedPeer,
  remote: string | undefined,
  { relays, neverDenied, peers }: ObservedPeers,
): boolean {
  if (peer.isLighthouse || remote === undefined || relays.length === 0 || relays.includes(peer.address))
    return false;
  const underlay = withoutPort(remote);
  const isDenied = denials.some((each) => each.underlay === underlay);
  const isShared = peers.some(
    ({ address, isBroken, tunnel }) =>
      address !== peer.address && !isBroken && withoutPort(tunnel?.remote ?? "") === underlay,
  );
  return denials.length < mostDenials && !neverDenied.includes(underlay) && !isDenied && !isShared;
}

/** The peer that proves that this node itself is connected; undefined: there is no proof. */
function witnessOf(peer: ObservedPeer, { peers, now }: ObservedPeers): string | undefined {
  const other = peers.find((each) => each.address !== peer.address && !each.isBroken && isFresh(each, now));
  if (other !== undefined) return other.address;
  // Although the peer does not answer probes, the engine has tested its tunnel and kept it: so packets arrive.
  const { answeredAt = now, tunnel } = peer;
  const silentSince = Math.max(answeredAt, tunnel?.since ?? now);
  return now - silentSince >= outlivesMs ? peer.address : undefined;
}

function isFresh({ answeredAt }: ObservedPeer, now: number): boolean {
  return answeredAt !== undefined && now - answeredAt < freshMs;
}

function evidenceOf(
  peer: ObservedPeer | undefined,
  address: string,
  now: number,
  remote: string | undefined,
): Evidence {
  const silentS = Math.round((now - (peer?.answeredAt ?? now)) / second);
  return { peer: peer?.name ?? address, address, remote, silentS };
}

/** How many packets relayed tunnels have sent, by overlay address. Peers with a denied address are relayed on purpose. */
function countersToPromote({ denials }: HealingState, { peers }: ObservedPeers): Record<string, number> {
  const denied = new Set(denials.map(({ peer }) => peer));
  const counters = peers.flatMap(({ address, tunnel }) => {
    const isRelayed = tunnel !== undefined && tunnel.remote === undefined;
    return isRelayed && !denied.has(address) ? [[address, tunnel.counter]] : [];
  });
  return Object.fromEntries(counters);
}
