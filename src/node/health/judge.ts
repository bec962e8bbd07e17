// Decides from what was observed whether an organization carries traffic. Pure: it neither probes nor asks.

import { brand } from "../../brand.ts";
import { mostFailures } from "./healing.ts";

/** running: traffic passes. degraded: it does not. not_probed: the engine runs, and more cannot be known. */
export type Verdict = "running" | "degraded" | "not_probed";

/** What `status` shows of an organization whose engine runs. */
export type Health = {
  verdict: Verdict;
  /** One sentence, unless it is running. */
  reason?: string;
  lighthouses: { answering: number; of: number };
  /** Peers with a tunnel; undefined if the engine does not report them. */
  tunnels?: { direct: number; relayed: number };
  /** Names of peers that answered in the last ten minutes and have stopped. */
  broken: string[];
  engine_version?: string;
  is_lighthouse?: true;
  /** RFC 3339: when it was looked at. */
  checked_at: string;
};

/**
 * answers: within 15 s. tunnel: it does not answer probes and never did, but the engine has a tunnel, which it tests by
 * itself. lost: it answered before, or the engine says that it has no tunnel. unknown: it never answered, and nothing else
 * is known. early: the first probes are under way.
 */
export type LighthouseState = "answers" | "tunnel" | "lost" | "unknown" | "early";

export type Observation = {
  lighthouses: readonly { name: string; state: LighthouseState }[];
  isLighthouse: boolean;
  /** Peers, not lighthouses, that answered in the last ten minutes. */
  probed: readonly { name: string; broken: boolean }[];
  /** Names of peers whose tunnels stay dead after all attempts to heal them. */
  stuck: readonly string[];
  /** False: certain that the organization has no other node. */
  hasOthers: boolean;
  isExpired: boolean;
  engineVersion: string | undefined;
  /** The engine reports its tunnels (from 1.12 on). */
  reportsTunnels: boolean;
  /** This process may not send ICMP. */
  isDenied: boolean;
};

type Judgement = Pick<Health, "verdict" | "reason">;

const running: Judgement = { verdict: "running" };
const degraded = (reason: string): Judgement => ({ verdict: "degraded", reason });
const notProbed = (reason: string): Judgement => ({ verdict: "not_probed", reason });

export function judge(seen: Observation): Judgement {
  const { lighthouses, probed, stuck } = seen;
  if (seen.isExpired) return degraded("The certificate has expired");
  if (stuck.length > 0)
    return degraded(
      `Tunnels stay dead after ${mostFailures} attempts to heal each: ${stuck.slice(0, 5).join(", ")}`,
    );
  if (seen.isLighthouse) {
    return probed.length > 0 && probed.every(({ broken }) => broken)
      ? degraded(`None of the ${probed.length} probed peers answers this lighthouse`)
      : running;
  }
  if (!seen.hasOthers) return running;
  if (lighthouses.length === 0)
    return degraded("There is no lighthouse: this node cannot find other nodes, nor they this one");
  const states = new Set(lighthouses.map(({ state }) => state));
  if (states.has("answers") || states.has("tunnel")) return running;
  if (states.has("early")) return notProbed("The first probes are under way");
  if (!states.has("unknown")) return degraded(silence(lighthouses));
  if (seen.isDenied) return notProbed("This process may not send ICMP");
  const version = seen.engineVersion === undefined ? "this engine" : `engine ${seen.engineVersion}`;
  return notProbed(
    `No lighthouse answers ICMP, and ${version} does not report its tunnels; \`${brand.executable} overlay update\``,
  );
}

function silence(lighthouses: Observation["lighthouses"]): string {
  const [only] = lighthouses;
  if (lighthouses.length === 1 && only !== undefined) return `The lighthouse ${only.name} does not answer`;
  return `None of the ${lighthouses.length} lighthouses answers`;
}
