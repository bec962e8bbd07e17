// Decides from what was observed whether an organization carries traffic. Pure: it neither probes nor asks, and it does not
// look at the time. Only an answer makes the verdict `running`, or the knowledge that this node needs none.

import { brand } from "../../brand.ts";
import { inWords } from "../../base/quantities.ts";
import { parseAddress } from "../../base/ip.ts";
import { quoteWord } from "../../base/quote.ts";
import type { CheckinAnswer } from "../../protocol/checkin.ts";
import type { DiskSpace } from "../../base/disk-space.ts";
import { mostFailures } from "./healing.ts";
import {
  byGravity,
  certificateFindings,
  checkWayOut,
  makeFinding,
  lightOf,
  type Certified,
  type Finding,
  type Kind,
} from "./findings.ts";

/** running: traffic passes. degraded: it does not. not_probed: the engine runs, and more cannot be known. */
export type Verdict = "running" | "degraded" | "not_probed";

/** The health of an organization whose engine runs, as `status` shows it. */
export type Health = {
  verdict: Verdict;
  /** One sentence, unless it is running. */
  reason?: string;
  /** Everything that was found, the gravest first. Older daemons do not tell. */
  findings?: Finding[];
  lighthouses: { answering: number; of: number };
  /** Subnets behind other nodes, of how many a router answers, and which router the engine uses. Older daemons do not tell the last. */
  routes?: { answering: number; of: number; used?: { network: string; router: string }[] };
  /** Peers with a tunnel, without the broken ones; undefined if the engine does not report them. */
  tunnels?: { direct: number; relayed: number };
  /** Names of peers that answered and have stopped. */
  broken: string[];
  engine_version?: string;
  is_lighthouse?: true;
  /** RFC 3339: when it was looked at. */
  checked_at: string;
};

/**
 * answers: within 15 s. tunnel: it answers no probes, but the engine has a tunnel, which it tests by itself. lost: it
 * answered before, or the engine says that it has no tunnel. unknown: it never answered, and nothing else is known. early:
 * the first probes are under way.
 */
export type LighthouseState = "answers" | "tunnel" | "lost" | "unknown" | "early";

/** A lighthouse's contact with the nodes that it serves. */
export type Contact = {
  /** A node answers, or has a tunnel. The engine tests tunnels every few seconds. */
  isMade: boolean;
  /** Number of nodes that answered and have stopped. */
  silent: number;
  /** Its engine started just now: nodes need up to 20 s to come back. */
  isEarly: boolean;
  /** Whether another node is online, as the control plane says; undefined: it has not said so lately. */
  othersOnline: boolean | undefined;
};

export type Observation = {
  slug: string;
  lighthouses: readonly { name: string; state: LighthouseState }[];
  /** Set for a lighthouse only. */
  contact: Contact | undefined;
  /** Names of peers that answered, and have stopped. */
  silent: readonly string[];
  /** Subnets without a router that answers, each with the names of its routers. */
  unrouted: readonly { network: string; routers: readonly string[] }[];
  /** Networks that this node offers as their router and does not reach, each with a cure. */
  unreached: readonly { what: string; cure: string }[];
  /** Names of peers whose tunnels stay dead after all attempts to heal them. */
  stuck: readonly string[];
  /** Number of peers that are reached without a lighthouse, by addresses that this node keeps. */
  keptCount: number;
  /** Names of peers with which handshakes timed out within the last minute; only while no lighthouse answers. */
  unmet: readonly string[];
  /** False: certain that the organization has no other node that this one may talk to. */
  hasOthers: boolean;
  certificate: Certified;
  engineVersion: string | undefined;
  /** The engine reports its tunnels (from 1.12 on). */
  reportsTunnels: boolean;
  /** This process may not send ICMP. */
  isDenied: boolean;
  /** The control plane cannot be reached either. */
  isCutOff: boolean;
  /** The control plane says that another machine uses the keys of this node. */
  isCloned: boolean;
  /** For a lighthouse: the address at which nodes look for it, and the one that the control plane sees instead. */
  elsewhere: CheckinAnswer["elsewhere"];
  /** How many ms this machine's clock is ahead of the control plane's; undefined if that is tolerable. */
  clockAheadMs: number | undefined;
  /** Disk space of the organization's directory. */
  disk: DiskSpace | undefined;
  /** Larger packets are lost on the way to lighthouses or peers, though small ones pass. */
  large: { to: readonly string[]; bytes: number; cure: string } | undefined;
};

type Conclusion = Pick<Health, "verdict" | "reason"> & { findings: Finding[] };

/** The most networks of this router that have a finding of their own. */
const mostUnreached = 5;

/** The findings, and the verdict that follows from them. */
export function conclude(observation: Observation): Conclusion {
  const { slug, stuck, silent, contact } = observation;
  const findingIf = (isSo: boolean, kind: Kind, what: string) =>
    isSo ? [makeFinding(kind, slug, what)] : [];
  const findings = byGravity([
    ...certificateFindings(slug, observation.certificate),
    ...findingIf(observation.isCloned, "cloned", "Another machine uses the keys of this node"),
    ...findingIf(
      stuck.length > 0,
      "tunnels_dead",
      `Tunnels stay dead after ${mostFailures} attempts to heal each: ${few(stuck)}`,
    ),
    ...(contact === undefined ? nodeFindings(observation) : lighthouseFindings(observation, contact)),
    ...silentRouters(observation),
    ...observation.unreached
      .slice(0, mostUnreached)
      .map(({ what, cure }) => makeFinding("network_unreached", slug, what, cure)),
    ...largePacketsLost(observation),
    ...clockDiffers(observation),
    ...addressMoved(observation),
    ...diskFindings(observation),
    ...findingIf(silent.length > 0, "peers_silent", `No answer from ${few(silent, 20)}`),
  ]);
  return { ...verdictOf(findings), findings };
}

function largePacketsLost({ slug, large }: Observation): Finding[] {
  if (large === undefined) return [];
  const what = `Packets above ${large.bytes} bytes are lost on the way to ${few(large.to)}: large transfers hang`;
  return [makeFinding("large_packets_lost", slug, what, large.cure)];
}

function clockDiffers({ slug, certificate, clockAheadMs: ahead }: Observation): Finding[] {
  if (ahead === undefined || certificate === "not valid yet") return [];
  const by = `${inWords(Math.abs(ahead))} ${ahead > 0 ? "ahead of" : "behind"}`;
  return [makeFinding("clock_differs", slug, `The clock of this machine is ${by} the control plane's`)];
}

/** Tunnels that exist follow a lighthouse to another address, but nodes that start then do not find it. */
function addressMoved({ slug, contact, elsewhere }: Observation): Finding[] {
  if (contact === undefined || elsewhere === undefined) return [];
  const { seen, public_ip: configured } = elsewhere;
  // These texts come from the control plane and are printed: accept only addresses.
  if ([seen, configured].some((address) => parseAddress(address) === undefined)) return [];
  const what = `The control plane sees this lighthouse at ${seen}, and other nodes look for it at ${configured}`;
  const update = `${brand.executable} admin node update ${quoteWord(slug)} NODE --public-ip ${quoteWord(seen)}`;
  return [makeFinding("address_moved", slug, what, `If its address has changed: ${update}`)];
}

/** By the worst `light` of the findings; without one, traffic passes. `findings`: the gravest first. */
export function verdictOf(findings: readonly Finding[]): Pick<Health, "verdict" | "reason"> {
  const light = lightOf(findings);
  if (light === undefined) return { verdict: "running" };
  const reason = findings.find((each) => each.light === light)?.what ?? "";
  return { verdict: light === "degraded" ? "degraded" : "not_probed", reason };
}

/** The first names, for a sentence. */
const few = (names: readonly string[], most = 5) => names.slice(0, most).join(", ");

/** The first reason why a lighthouse is not in contact; none if it is, or needs no contact. */
function lighthouseFindings(
  { slug, hasOthers, reportsTunnels, isCutOff }: Observation,
  { isMade, silent, isEarly, othersOnline }: Contact,
): Finding[] {
  // No peer is missing if no other node is online.
  if (isMade || othersOnline === false || (silent === 0 && !hasOthers)) return [];
  const findingOf = (kind: Kind, what: string) => [makeFinding(kind, slug, what)];
  if (silent > 0) {
    const what = `None of the ${silent} probed peers answers this lighthouse`;
    return isCutOff ? [cutOffFinding("nodes_silent", slug, what)] : findingOf("nodes_silent", what);
  }
  if (isEarly) return findingOf("probing", "The engine started just now, and waits for the first node");
  if (othersOnline === true && reportsTunnels)
    return findingOf("no_node_came", "Other nodes are online, and none has reached this lighthouse");
  return findingOf(
    "contact_unknown",
    "No node has reached this lighthouse yet, as far as this machine can tell",
  );
}

/** The first reason why a node is not in contact with a lighthouse; none if it is, or needs none. */
function nodeFindings(observation: Observation): Finding[] {
  const { slug, lighthouses, hasOthers, keptCount, engineVersion } = observation;
  const findingOf = (kind: Kind, what: string) => [makeFinding(kind, slug, what)];
  // If the configuration has lighthouses, one must answer, even if no rule connects this node with another one.
  if (lighthouses.length === 0)
    return hasOthers
      ? findingOf(
          "no_lighthouse",
          "There is no lighthouse: this node cannot find other nodes, nor they this one",
        )
      : [];
  const states = new Set(lighthouses.map(({ state }) => state));
  if (states.has("answers") || states.has("tunnel")) return [];
  if (states.has("early")) return findingOf("probing", "The first probes are under way");
  if (!states.has("unknown")) {
    const what = silenceOf(lighthouses);
    const ways = waysWithoutLighthouse(observation);
    if (!observation.isCutOff) return findingOf("lighthouses_silent", `${what}${ways}`);
    // A peer that is found proves a connection: the doctor tells whether lighthouse, name or uplink is missing.
    const cure = keptCount > 0 ? `${brand.executable} doctor` : undefined;
    return [cutOffFinding("lighthouses_silent", slug, what, ways, cure)];
  }
  if (observation.isDenied) return findingOf("icmp_denied", "This process may not send ICMP");
  const version = engineVersion === undefined ? "this engine" : `engine ${engineVersion}`;
  return findingOf(
    "tunnels_unknown",
    `No lighthouse answers ICMP, and ${version} does not report its tunnels`,
  );
}

/** Neither overlay nor control plane answers: the cause is this machine's connection, unless a peer is found. */
const cutOffFinding = (kind: Kind, slug: string, what: string, ways = "", cure: string = checkWayOut) =>
  makeFinding(kind, slug, `${what}, nor does the control plane${ways}`, cure);

function diskFindings({ slug, disk }: Observation): Finding[] {
  if (disk === undefined || disk.state === "ok") return [];
  return disk.state === "full"
    ? [makeFinding("disk_full", slug, `The disk is full: ${disk.text}`)]
    : [makeFinding("disk_filling", slug, `The disk is nearly full: ${disk.text}`)];
}

function silentRouters({ slug, unrouted }: Observation): Finding[] {
  if (unrouted.length === 0) return [];
  const networks = few(unrouted.map(({ network }) => network));
  const routers = few([...new Set(unrouted.flatMap((each) => each.routers))]);
  const what = `${networks} cannot be reached: no answer from the router ${routers}`;
  return [makeFinding("routers_silent", slug, what, `On ${routers}: ${brand.executable} doctor`)];
}

function silenceOf(lighthouses: Observation["lighthouses"]): string {
  const [only] = lighthouses;
  if (lighthouses.length === 1 && only !== undefined) return `The lighthouse ${only.name} does not answer`;
  return `None of the ${lighthouses.length} lighthouses answers`;
}

/** What works until a lighthouse answers again: the rest of a sentence, or nothing. */
function waysWithoutLighthouse({ keptCount, unmet }: Observation): string {
  const reached =
    keptCount === 0
      ? ""
      : `; ${keptCount === 1 ? "1 peer is" : `${keptCount} peers are`} found by addresses that this node keeps`;
  const missed =
    unmet.length === 0
      ? ""
      : `; no handshake with ${few(unmet)}: off, moved, or behind a NAT for which both need a lighthouse and a relay`;
  return `${reached}${missed}`;
}
