// Keeps a UDP port of the router mapped to the engine. A renewal is the same request as the first one: so a router that has
// forgotten everything makes the mapping again. Between renewals nothing is sent. Times are ms since the boot, with the time in which
// the machine slept.

import { given } from "../../../base/given.ts";
import type { Step } from "../../../base/plan/plan.ts";
import { planRemoved } from "../../../base/plan/plan-file.ts";
import { formatTime } from "../../../base/quantities.ts";
import { parseUnderlay, withoutPort } from "../../../base/ip.ts";
import { repeat } from "../../../base/within.ts";
import { portsOf } from "../../../platform/network/port-holder.ts";
import { controlSocket } from "../../../platform/systemd/control-socket.ts";
import { localApi } from "../../engine/local-api.ts";
import { listenPort } from "../../files/config/read-config.ts";
import {
  isMappingWanted,
  mappingStatePath,
  readMappingState,
  writeMappingState,
  type MappingState,
} from "../../files/mapping-state.ts";
import type { Organization } from "../../files/organizations.ts";
import { readRevokedNote } from "../../files/revoked-notes.ts";
import { isStopped } from "../../files/stopped-by-user.ts";
import { applyChanges } from "../../health/apply-changes.ts";
import { runPart, type EdgeContext, type RunningPart } from "../part.ts";
import { watchFiles } from "../watch-files.ts";
import {
  addressTowards,
  askRouter,
  endMapping,
  endRequest,
  type HeldMapping,
  type Mapping,
  type Refusal,
} from "./ask-router.ts";

const lookEveryMs = 10_000;
/** A longer life of a mapping does not count: the router may be replaced by one that does not know the mapping. */
const longestLifeMs = 3_600_000;
/** A mapping is renewed after half its life (RFC 6887, section 11.2.1), but not more often than this. */
const shortestMs = 15_000;
/** A router that mapped nothing is asked again after this time, doubled each time. In another network a router is asked at once. */
const retryMs = 30_000;
const longestRetryMs = 3_600_000;
/** How often lighthouses are asked at which address they see this node: they learn a new one from its next report. */
const confirmTries = 5;
const confirmEveryMs = 1000;

export const startPortMapping = (context: EdgeContext): RunningPart =>
  runPart(
    (signal) => keepMapping(context, signal),
    () => withdraw(context).catch(() => undefined),
  );

/** Runs until the signal, and does not wait for a router then. Does not reject. */
export async function keepMapping(context: EdgeContext, signal: AbortSignal): Promise<void> {
  const { slug, log, system } = context;
  const files = watchFiles(context);
  let organization: Organization | undefined;
  const look = async () => {
    organization = files.openIfChanged() ?? organization;
    if (organization !== undefined) await lookAt(organization, context, signal);
  };
  const failed = (reason: string) => log.warn("Cannot map a port of the router", { team: slug, reason });
  const { promise, resolve } = Promise.withResolvers<void>();
  signal.addEventListener("abort", () => resolve());
  await Promise.race([promise, repeat(look, { everyMs: lookEveryMs, signal, system, failed })]);
}

/** One look: renews the mapping if it is due, or if engine, router or address have changed. */
async function lookAt(organization: Organization, context: EdgeContext, signal: AbortSignal): Promise<void> {
  const { directory, control, system } = context;
  if (!isMappingWanted(organization) || isStopped(directory) || readRevokedNote(directory) !== undefined)
    return withdraw(context);
  const engine = await control.process();
  const port = engine === undefined ? undefined : portOfEngine(engine.pid, directory);
  // The engine is starting: a later look finds its port.
  if (port === undefined) return;
  const former = readMappingState(directory);
  const router = await findRouter(system);
  // In no network, or in one without a router: the mapping is of no use, and cannot be ended from here.
  if (router === undefined) return settle(former, undefined, context);
  const { id: boot = "", ms: now } = system.bootTime();
  const place = { ...router, port, boot };
  // Router, own address, engine's port and boot are those of the state.
  const isSamePlace = former !== undefined && Bun.deepEquals({ ...former, ...place }, former);
  if (isSamePlace && now < former.nextAt) return;
  const held = former === undefined ? undefined : heldOf(former);
  const { gateway } = router;
  // The same router still maps a port or address that the engine no longer has.
  if (!isSamePlace && held !== undefined && former?.gateway === gateway) await endMapping(gateway, held);
  const asked = await askRouter({
    gateway,
    port,
    nonce: system.random(12),
    overlays: [organization.config.network],
    held: isSamePlace ? held : undefined,
  });
  const answer = await confirm(asked, organization, former, context);
  // Lighthouses see this node elsewhere, so this mapping is of no use.
  if (answer !== asked && isMapping(asked)) await endMapping(gateway, asked);
  if (signal.aborted) {
    // No state will name this mapping.
    if (isMapping(answer)) await endMapping(gateway, answer);
    return;
  }
  const next = stateAfter(isSamePlace ? former : undefined, place, answer, system);
  // The mapping could not be renewed. End it: this node no longer reports it, so peers do not use it.
  if (isSamePlace && held !== undefined && next.mapped === undefined) await endMapping(gateway, held);
  await settle(former, next, context);
}

const isMapping = (answer: Mapping | Refusal | undefined): answer is Mapping =>
  answer !== undefined && "at" in answer;

/** The router of the default route, and this machine's own address on the way there. Undefined: there is none. */
async function findRouter(
  system: EdgeContext["system"],
): Promise<Pick<MappingState, "gateway" | "client"> | undefined> {
  const { gateways } = await system.machineState();
  const gateway = gateways.find((each) => !each.includes(":"));
  const client = gateway === undefined ? undefined : await addressTowards(gateway);
  return gateway === undefined || client === undefined ? undefined : { gateway, client };
}

/** The UDP port by which the engine talks to peers; undefined: it has none yet. */
function portOfEngine(pid: number, directory: string): number | undefined {
  const ports = portsOf(pid);
  const configured = listenPort(directory);
  return ports.length === 1 ? ports[0] : ports.find((each) => each === configured);
}

/** The mapping of the state; undefined: there is none. */
const heldOf = ({ port, mapped }: MappingState): HeldMapping | undefined =>
  mapped === undefined ? undefined : { ...mapped, port, nonce: Uint8Array.fromHex(mapped.nonce) };

/** The next state. `former`: the last one, if it is of this place. `answer`: of the router; undefined: it did not answer. */
export function stateAfter(
  former: MappingState | undefined,
  place: Pick<MappingState, "gateway" | "client" | "port" | "boot">,
  answer: Mapping | Refusal | undefined,
  system: Pick<EdgeContext["system"], "now" | "bootTime">,
): MappingState {
  const now = system.bootTime().ms;
  if (isMapping(answer)) {
    const { by, at, external, nonce, control, lifetimeS } = answer;
    // 0: the router keeps it without an end.
    const lifeMs = lifetimeS === 0 ? longestLifeMs : Math.min(longestLifeMs, lifetimeS * 1000);
    const since = former?.mapped?.at === at ? former.mapped.since : formatTime(system.now());
    const until = now + lifeMs;
    return {
      ...place,
      nextAt: now + Math.max(shortestMs, lifeMs / 2),
      failures: 0,
      mapped: { by, at, since, external, nonce: nonce.toHex(), ...given({ control }), until },
    };
  }
  const failures = former?.failures ?? 0;
  const nextAt = now + Math.min(longestRetryMs, retryMs * 2 ** Math.min(failures, 10));
  const common = { ...place, nextAt, failures: failures + 1 };
  const { mapped } = former ?? {};
  // Neither a lost answer nor a request that failed without one (`isUncertain`) ends a mapping.
  if ((answer === undefined || answer.isUncertain) && mapped !== undefined && mapped.until >= now)
    return { ...common, mapped };
  return answer === undefined ? common : { ...common, refused: answer.refused.slice(0, 200) };
}

/**
 * The router's answer, or a refusal if lighthouses see this node at another address: a router could name an address of another
 * network. An engine that cannot ask lighthouses confirms all.
 */
async function confirm(
  answer: Mapping | Refusal | undefined,
  { config, directory }: Organization,
  former: MappingState | undefined,
  { system }: EdgeContext,
): Promise<Mapping | Refusal | undefined> {
  if (!isMapping(answer)) return answer;
  const api = localApi(controlSocket(directory), system);
  // This node reports its mappings itself: they show nothing of what a lighthouse sees.
  const mapped = [former?.mapped?.at, answer.at];
  for (let tries = 0; tries < confirmTries; tries++) {
    const known = await api.queryLighthouse(config.ip_address).catch(() => undefined);
    if (known === undefined) return answer;
    const seen = Object.values(known)
      .flatMap(({ reported }) => reported ?? [])
      .filter(
        // IPv6 addresses begin with a bracket: only IPv4 is mapped.
        (each) => !mapped.includes(each) && !each.startsWith("[") && parseUnderlay(each)?.isPrivate === false,
      );
    if (seen.some((each) => withoutPort(each) === withoutPort(answer.at))) return answer;
    if (seen.length > 0)
      return { refused: `it names ${answer.at}, and lighthouses see this node at ${seen[0]}` };
    await system.sleep(confirmEveryMs);
  }
  return answer;
}

/** Stores the state, and tells the engine if the mapped address has changed. `next` undefined: no router is asked any more. */
async function settle(
  former: MappingState | undefined,
  next: MappingState | undefined,
  context: EdgeContext,
): Promise<void> {
  const { slug, directory, log, command, control, system } = context;
  if (former !== undefined || next !== undefined) writeMappingState(directory, next);
  if (former?.mapped?.at === next?.mapped?.at) return;
  await applyChanges({ slug, directory }, {}, { command, control, system });
  if (next?.mapped === undefined)
    log.info("No port of the router is mapped any more", { team: slug, reason: next?.refused });
  else
    log.info("The router maps a port to the engine", { team: slug, at: next.mapped.at, by: next.mapped.by });
}

/** Ends the mapping, and removes its state. */
async function withdraw(context: EdgeContext): Promise<void> {
  const former = readMappingState(context.directory);
  await endHeld(former);
  await settle(former, undefined, context);
}

const endHeld = async (state: MappingState | undefined) => {
  const held = state === undefined ? undefined : heldOf(state);
  if (state !== undefined && held !== undefined) await endMapping(state.gateway, held);
};

/** Ends the mapping of an organization that leaves, or whose program is uninstalled, after the engine has stopped. Does not reject. */
export async function endMappingOf(directory: string): Promise<void> {
  await endHeld(readMappingState(directory));
  writeMappingState(directory, undefined);
}

/** The plan of endMappingOf, for --dry-run. */
export function planMappingEnd(directory: string): Step[] {
  const state = readMappingState(directory);
  const held = state === undefined ? undefined : heldOf(state);
  const step = state === undefined || held === undefined ? undefined : endRequest(state.gateway, held);
  return [...(step === undefined ? [] : [step]), ...planRemoved(mappingStatePath(directory))];
}
