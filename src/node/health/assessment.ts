// Assesses the health that `status` shows: joins files, engine and tunnels (inventory.ts) with the answers to probes (prober.ts), and has
// verdict.ts judge that. Changes nothing.

import { given } from "../../base/given.ts";
import { join } from "node:path";
import { brand } from "../../brand.ts";
import type { DiskSpace } from "../../base/disk-space.ts";
import { formatTime } from "../../base/quantities.ts";
import { quoteWord } from "../../base/quote.ts";
import type { CheckinAnswer } from "../../protocol/checkin.ts";
import type { Organization } from "../files/organizations.ts";
import type { Facts } from "./configured-facts.ts";
import type { Certified } from "./findings.ts";
import { failedHandshakes, lastHandshake } from "./handshakes.ts";
import type { Healer } from "./healer.ts";
import { outlivesMs } from "./healing.ts";
import type { EngineSeen, Inventory, Snapshot } from "./inventory.ts";
import { conclude, type Contact, type Health, type LighthouseState, type Observation } from "./verdict.ts";
import type { Prober } from "./prober.ts";
import { isAnswering, isBroken, brokenAfter } from "./probe-record.ts";

/** Facts that only the control plane knows. `at`: when it said so, monotonic ms. */
export type PlaneFacts = {
  /** For a lighthouse: whether other nodes are online. */
  others?: { online: boolean; at: number } | undefined;
  /** Another machine uses the keys of this node. */
  cloned?: { at: number } | undefined;
  /** For a lighthouse: the control plane sees it at another underlay address than the one that nodes look for. */
  elsewhere?: { said: NonNullable<CheckinAnswer["elsewhere"]>; at: number } | undefined;
  /** The last check-in reached no control plane. Only an answer ends that. */
  unreached?: { at: number } | undefined;
  /** Set only if the last two answers agree. */
  clockAhead?: { ms: number; at: number } | undefined;
};

/** What one process knows of an organization. The list of peers and the healer's input are made of it, too. */
export type AssessmentInput = {
  place: Pick<Organization, "slug" | "directory">;
  inventory: Inventory;
  prober: Pick<Prober, "record" | "records" | "problem">;
  /** The state of healing. */
  healing: Pick<Healer, "noteOf" | "givenUp"> | undefined;
  /** The last lines of the engine's log; empty unless they may explain something. */
  log: readonly string[];
  /** Overlay address → the size in bytes above which packets to it are lost. */
  lostLarge: ReadonlyMap<string, number>;
  disk: DiskSpace | undefined;
  /** Of this router. */
  unreached: Observation["unreached"];
  /** The peers whose addresses the engine has without a lighthouse; none while a lighthouse answers. */
  keptPeers: readonly string[];
  planeFacts: PlaneFacts;
  /** Monotonic ms. */
  now: number;
  /** ms since 1970. */
  time: number;
};

/** The most names of silent peers that `status` gets. */
const mostBroken = 20;
/** Facts of the control plane count for this time: three times the interval of check-ins. */
const planeFactsForMs = 180_000;
const leastIpv6Mtu = 1280;
/** Bytes of the headers of IPv6, UDP and the engine, and of the engine's authentication tag. */
const tunnelBytes = 80;
/** For this time after the start of a lighthouse's engine, missing nodes prove nothing: they come back within 20 s. */
const earlyMs = 30_000;
/** The most routes in force that `status` names. */
const mostShownRoutes = 64;

/** The fact, unless it is too old to be true still. */
const recent = <T extends { at: number }>(
  fact: T | undefined,
  { now }: Pick<AssessmentInput, "now">,
): T | undefined => (fact !== undefined && now - fact.at < planeFactsForMs ? fact : undefined);

/** Undefined if no engine runs, or before the first refresh. */
export function assessHealth(input: AssessmentInput): Health | undefined {
  const { inventory } = input;
  const { snapshot } = inventory;
  if (snapshot === undefined) return undefined;
  const { facts, engine, lookedAt } = snapshot;
  const lighthouses = facts.lighthouses.map((address) => ({
    name: inventory.nameOf(address),
    state: stateOfHub(address, input),
  }));
  const routes = routeStates(input, facts);
  const silent = silentNames(input, facts, lighthouses);
  return {
    ...conclude(observe(input, snapshot, { lighthouses, routes, silent })),
    lighthouses: {
      answering: lighthouses.filter(({ state }) => isUsable(state)).length,
      of: lighthouses.length,
    },
    ...routesShown(routes),
    ...tunnelsShown(input),
    broken: silent,
    ...given({ engine_version: engine.version }),
    ...(facts.isLighthouse ? { is_lighthouse: true as const } : {}),
    checked_at: formatTime(lookedAt),
  };
}

/** A network behind nodes, with the names and states of its routers, the one in use first. */
type RouteStates = { network: string; routers: string[]; states: LighthouseState[] };

const routeStates = (input: AssessmentInput, { routes }: Facts): RouteStates[] =>
  routes.map(({ network, routers }) => ({
    network,
    routers: routers.map((each) => input.inventory.nameOf(each)),
    states: routers.map((each) => stateOfHub(each, input)),
  }));

/** Names of lighthouses and peers that answered and have stopped. */
function silentNames(
  { inventory, prober }: AssessmentInput,
  facts: Facts,
  lighthouses: Observation["lighthouses"],
): string[] {
  const peers = prober
    .records()
    .filter(([address, record]) => !facts.lighthouses.includes(address) && isBroken(record))
    .map(([address]) => inventory.nameOf(address));
  const lost = lighthouses.filter(({ state }) => state === "lost").map(({ name }) => name);
  return [...lost, ...peers].slice(0, mostBroken);
}

/** What verdict.ts judges. */
function observe(
  input: AssessmentInput,
  { facts, engine }: Snapshot,
  {
    lighthouses,
    routes,
    silent,
  }: Pick<Observation, "lighthouses" | "silent"> & { routes: readonly RouteStates[] },
): Observation {
  const { inventory, planeFacts, prober, time } = input;
  const nameOf = (address: string) => inventory.nameOf(address);
  return {
    slug: input.place.slug,
    lighthouses,
    contact: facts.isLighthouse ? contactOf(input, facts, engine) : undefined,
    silent,
    unrouted: routes.filter(({ states }) => states.length > 0 && states.every((each) => each === "lost")),
    unreached: input.unreached,
    stuck: stuckPeers(input).map(nameOf),
    // An address that is kept proves nothing: only an answer, or a tunnel, does.
    keptCount: input.keptPeers.filter((each) => isUsable(stateOfHub(each, input))).length,
    unmet: unmetPeers(input, facts).map(nameOf).sort(),
    hasOthers: inventory.hasOthers,
    certificate: certifiedAt(time, facts.certificate),
    engineVersion: engine.version,
    reportsTunnels: inventory.reportsTunnels,
    isDenied: facts.own.every((each) => prober.problem(each) === "denied"),
    disk: input.disk,
    isCutOff: planeFacts.unreached !== undefined,
    isCloned: recent(planeFacts.cloned, input) !== undefined,
    elsewhere: recent(planeFacts.elsewhere, input)?.said,
    clockAheadMs: recent(planeFacts.clockAhead, input)?.ms,
    large: lostLargePackets(input, facts),
  };
}

function routesShown(routes: readonly RouteStates[]): Pick<Health, "routes"> {
  if (routes.length === 0) return {};
  const used = routes
    .slice(0, mostShownRoutes)
    .flatMap(({ network, routers: [router] }) => (router === undefined ? [] : [{ network, router }]));
  const answering = routes.filter(({ states }) => states.some(isUsable)).length;
  return { routes: { answering, of: routes.length, used } };
}

/** Without the tunnels of broken peers, which are counted by themselves. */
function tunnelsShown({ inventory, prober }: AssessmentInput): Pick<Health, "tunnels"> {
  if (!inventory.reportsTunnels) return {};
  const carrying = inventory.tunnels.all.filter(({ address }) => {
    const record = prober.record(address);
    return record === undefined || !isBroken(record);
  });
  const direct = carrying.filter(({ remote }) => remote !== undefined).length;
  return { tunnels: { direct, relayed: carrying.length - direct } };
}

function certifiedAt(time: number, { from, to }: Facts["certificate"]): Certified {
  if (time >= to) return "expired";
  return time < from ? "not valid yet" : "valid";
}

const isUsable = (state: LighthouseState) => state === "answers" || state === "tunnel";

/** A tunnel to a node that refuses ICMP counts as contact: probes are packets too, and the engine tests tunnels with traffic itself. */
function contactOf(input: AssessmentInput, facts: Facts, { ageMs }: EngineSeen): Contact {
  const { inventory, prober, now } = input;
  const records = prober.records().filter(([address]) => !facts.lighthouses.includes(address));
  // Nodes with a tunnel that have never answered.
  const refusing = records.filter(
    ([address, { answeredAt }]) => answeredAt === undefined && inventory.tunnels.get(address) !== undefined,
  );
  const isMade =
    records.some(([, record]) => isAnswering(record, now)) ||
    // The engine drops a dead tunnel before this time.
    refusing.some(([, { since }]) => now - since >= outlivesMs);
  // An answer since then shows that another node is online, whatever the control plane said.
  const answeredAt = Math.max(...records.map(([, record]) => record.answeredAt ?? -Infinity));
  const others = recent(input.planeFacts.others, input);
  const isOutdated = others?.online === false && answeredAt > others.at;
  return {
    isMade,
    silent: records.filter(([, record]) => isBroken(record)).length,
    isEarly: ageMs < earlyMs || refusing.length > 0,
    othersOnline: isOutdated ? undefined : others?.online,
  };
}

/** What is lost, and its cure: one size must fit all paths, so the narrowest counts. Skips addresses whose path has ended. */
function lostLargePackets(
  { lostLarge, inventory, place }: AssessmentInput,
  facts: Facts,
): Observation["large"] {
  const current = [...lostLarge].filter(
    ([to]) => facts.lighthouses.includes(to) || inventory.tunnels.get(to) !== undefined,
  );
  if (current.length === 0) return undefined;
  const bytes = Math.min(...current.map(([, each]) => each));
  const to = current.map(([each]) => inventory.nameOf(each)).toSorted();
  return { to, bytes, cure: smallerPackets({ bytes }, facts, place) };
}

/** The cure of lost packets above `bytes`. IPv6 needs 1280 bytes: an interface with less has no IPv6. */
export function smallerPackets(
  { bytes }: { bytes: number },
  { own }: Pick<Facts, "own">,
  { slug, directory }: AssessmentInput["place"],
): string {
  const file = join(directory, "overrides.yml");
  const isIpv6 = own.some((each) => each.includes(":"));
  if (isIpv6 && bytes < leastIpv6Mtu)
    return `Let packets of ${leastIpv6Mtu + tunnelBytes} bytes pass on the path: the overlay uses IPv6, which permits no smaller interface than ${leastIpv6Mtu} bytes`;
  return `In ${file} set tun: { mtu: ${bytes} }, then: ${brand.executable} sync-config --org-slug ${quoteWord(slug)}`;
}

/** The state of one lighthouse, router or kept peer. Its probes decide before the engine's tunnels, and these before the engine's log. */
function stateOfHub(
  address: string,
  { inventory, prober, log, now, time }: AssessmentInput,
): LighthouseState {
  const record = prober.record(address);
  if (record === undefined) return "early";
  if (isAnswering(record, now)) return "answers";
  // Wait for the next probes, also after this process has paused.
  if (record.missed < brokenAfter) return "early";
  if (isBroken(record)) return "lost";
  if (inventory.tunnels.get(address) !== undefined) return "tunnel";
  // An engine that reports its tunnels has none to it.
  return inventory.reportsTunnels || lastHandshake(log, address, time) === "failed" ? "lost" : "unknown";
}

/** Peers with which handshakes fail now. Skips lighthouses, relays, and peers that are gone. */
function unmetPeers(
  { inventory, log, time }: AssessmentInput,
  { lighthouses, relays, own, isInside }: Facts,
): string[] {
  const others = new Set([...lighthouses, ...relays, ...own]);
  const tried = failedHandshakes(log, time).filter((each) => !others.has(each) && isInside(each));
  const gone = new Set(inventory.goneAmong(tried));
  return tried.filter((each) => !gone.has(each) && inventory.tunnels.get(each) === undefined);
}

/** Peers whose tunnels stay dead. A peer that is off has no tunnel and does not count. */
function stuckPeers({ healing, inventory, prober }: AssessmentInput): string[] {
  return (healing?.givenUp ?? []).filter((address) => {
    const record = prober.record(address);
    return record !== undefined && isBroken(record) && inventory.tunnels.get(address) !== undefined;
  });
}
