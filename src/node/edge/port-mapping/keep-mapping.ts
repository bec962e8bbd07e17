// Keeps a UDP port of the router mapped to the engine. A renewal is the same request as the first one: so a router that has
// forgotten everything makes the mapping again. Between renewals nothing is sent. Times are
// ms since the boot; the time in which the machine slept counts.

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
  type Held,
  type Mapping,
  type Refusal,
} from "./ask-router.ts";

const lookEveryMs = 10_000;
/** A mapping is renewed although the router promised more: it may have been replaced by one that does not know the mapping. */
const longestLifeMs = 3_600_000;
/** A mapping is renewed after half its life (RFC 6887, section 11.2.1), but not more often than this. */
const shortestMs = 15_000;
/** A router that gave nothing is asked again after this time, doubled each time. Another network is asked at once. */
const againMs = 30_000;
const longestAgainMs = 3_600_000;
/** How often lighthouses are asked at which address they see this node: they learn it from its next report. */
const confirmTries = 5;
const confirmEveryMs = 1000;

export const startPortMapping = (context: EdgeContext): RunningPart =>
  runPart(
    (signal) => keepMapping(context, signal),
    () => withdraw(context).catch(() => undefined),
  );

/** Until the signal; does not wait for a router then. Does not reject. */
export async function keepMapping(context: EdgeContext, signal: AbortSignal): Promise<void> {
  const { slug, log, system } = context;
  const files = watchFiles(context);
  let organization: Organization | undefined;
  const look = async () => {
    organization = files.look() ?? organization;
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
  const former = readMappingState(directory);
  if (!isMappingWanted(organization) || isStopped(directory) || readRevokedNote(directory) !== undefined)
    return withdraw(context);
  const engine = await control.process();
  const port = engine === undefined ? undefined : portOfEngine(engine.pid, directory);
  // The engine is starting: the next call finds its port.
  if (port === undefined) return;
  const { gateways } = await system.machineState();
  const gateway = gateways.find((each) => !each.includes(":"));
  const client = gateway === undefined ? undefined : await addressTowards(gateway);
  if (gateway === undefined || client === undefined) return settle(former, undefined, context);
  const { id: boot = "", ms: now } = system.bootTime();
  const place = { gateway, client, port, boot };
  const isSamePlace = former !== undefined && Bun.deepEquals({ ...former, ...place }, former);
  if (isSamePlace && now < former.nextAt) return;
  const held = former === undefined ? undefined : heldOf(former);
  // This router still maps a port or address that the engine no longer has.
  if (!isSamePlace && held !== undefined && former?.gateway === gateway) await endMapping(gateway, held);
  const asked = await askRouter({
    gateway,
    port,
    nonce: system.random(12),
    overlays: [organization.config.network],
    before: isSamePlace ? held : undefined,
  });
  const answer = await confirm(asked, organization, former, context);
  const isRefusedByUs = answer !== asked;
  if (isRefusedByUs && isMapping(asked)) await endMapping(gateway, asked);
  if (signal.aborted) {
    // No state will name this mapping.
    if (isMapping(answer)) await endMapping(gateway, answer);
    return;
  }
  const next = stateAfter(isSamePlace ? former : undefined, place, answer, system);
  // End the former mapping: this node no longer reports it, so peers do not use it.
  if (isSamePlace && held !== undefined && next.mapped === undefined) await endMapping(gateway, held);
  await settle(former, next, context);
}

const isMapping = (answer: Mapping | Refusal | undefined): answer is Mapping =>
  answer !== undefined && "at" in answer;

function portOfEngine(pid: number, directory: string): number | undefined {
  const ports = portsOf(pid);
  const configured = listenPort(directory);
  return ports.length === 1 ? ports[0] : ports.find((each) => each === configured);
}

/** The mapping of the state; undefined: there is none. */
const heldOf = ({ port, mapped }: MappingState): Held | undefined =>
  mapped === undefined ? undefined : { ...mapped, port, nonce: Uint8Array.fromHex(mapped.nonce) };

/** The next state. `before`: the last one in this place. `answer`: of the router; undefined: it did not answer. */
export function stateAfter(
  before: MappingState | undefined,
  place: Pick<MappingState, "gateway" | "client" | "port" | "boot">,
  answer: Mapping | Refusal | undefined,
  system: Pick<EdgeContext["system"], "now" | "bootTime">,
): MappingState {
  const now = system.bootTime().ms;
  if (isMapping(answer)) {
    const { by, at, external, nonce, control, lifetimeS } = answer;
    const lifeMs = lifetimeS === 0 ? longestLifeMs : Math.min(longestLifeMs, lifetimeS * 1000);
    const since = before?.mapped?.at === at ? before.mapped.since : formatTime(system.now());
    const more = { ...given({ control }), until: now + lifeMs };
    const nextAt = now + Math.max(shortestMs, lifeMs / 2);
    return {
      ...place,
      nextAt,
      failures: 0,
      mapped: { by, at, since, external, nonce: nonce.toHex(), ...more },
    };
  }
  const failures = before?.failures ?? 0;
  const nextAt = now + Math.min(longestAgainMs, againMs * 2 ** Math.min(failures, 10));
  const common = { ...place, nextAt, failures: failures + 1 };
  const { mapped } = before ?? {};
  // Neither a lost answer nor a failed request is the end of a mapping.
  if ((answer === undefined || answer.isUncertain) && mapped !== undefined && mapped.until >= now)
    return { ...common, mapped };
  return answer === undefined ? common : { ...common, refused: answer.refused.slice(0, 200) };
}

/**
 * If the engine can ask lighthouses, they must see this node at the same address: a router could answer with the address
 * of another network.
 */
async function confirm(
  answer: Mapping | Refusal | undefined,
  { config, directory }: Organization,
  before: MappingState | undefined,
  { system }: EdgeContext,
): Promise<Mapping | Refusal | undefined> {
  if (!isMapping(answer)) return answer;
  const api = localApi(controlSocket(directory), system);
  const own = [before?.mapped?.at, answer.at];
  for (let tries = 0; tries < confirmTries; tries++) {
    const known = await api.queryLighthouse(config.ip_address).catch(() => undefined);
    if (known === undefined) return answer;
    const seen = Object.values(known)
      .flatMap(({ reported }) => reported ?? [])
      .filter(
        (each) => !own.includes(each) && !each.startsWith("[") && parseUnderlay(each)?.isPrivate === false,
      );
    if (seen.some((each) => withoutPort(each) === withoutPort(answer.at))) return answer;
    if (seen.length > 0)
      return { refused: `it names ${answer.at}, and lighthouses see this node at ${seen[0]}` };
    await system.sleep(confirmEveryMs);
  }
  return answer;
}

/** Stores the state, and tells the engine if the mapped address is another one. */
async function settle(
  before: MappingState | undefined,
  next: MappingState | undefined,
  context: EdgeContext,
): Promise<void> {
  const { slug, directory, log, command, control, system } = context;
  if (before !== undefined || next !== undefined) writeMappingState(directory, next);
  if (before?.mapped?.at === next?.mapped?.at) return;
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
