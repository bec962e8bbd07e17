// `agent netcheck`: what the network between this machine and an organization permits. Each check is one sentence. It changes
// nothing, and sends a few packets, only to lighthouses, relays and peers with a direct tunnel.

import { join } from "node:path";
import { brand } from "../../brand.ts";
import { can } from "../../engine/features.ts";
import { AppError } from "../../base/errors.ts";
import { withoutPort } from "../../base/ip.ts";
import { quoteWord } from "../../base/quote.ts";
import { controlSocket } from "../../platform/systemd/control-socket.ts";
import type { OpenEcho } from "../../platform/network/echo-socket.ts";
import type { System } from "../../base/system.ts";
import type { EngineInUse } from "../engine/engine-in-use.ts";
import { localApi, type KnownAddresses, type LocalApi } from "../engine/local-api.ts";
import { isAbsent } from "../engine/control-exchange.ts";
import { mostHubs, roles, type Hub } from "./hubs.ts";
import type { Organization } from "../files/organizations.ts";
import { fail, ok, runCheck, skipped, warn, type Check, type Finding } from "./check.ts";
import { smallerPackets } from "../health/assessment.ts";
import { fullBytes, largestThrough } from "../health/paths/path-mtu.ts";
import { peerNames } from "../files/hosts.ts";
import { overlaySettings } from "../files/config/read-config.ts";
import { readText } from "../../base/open-file.ts";
import { examineFindings, type ShownStatus } from "./traffic.ts";
import { isSilent } from "./control-plane.ts";
import { portMapping } from "./port-mapping.ts";
import { askHubs, udpFinding, whyUnreached, type AskedHub } from "./underlay.ts";
import { firstByTcp, tcpHubs } from "../edge/notice-blocked-udp.ts";
import { isTcpOff, tcpShown } from "../files/tcp-state.ts";
import { isHub } from "../../protocol/routing/roles.ts";

const run = brand.executable;

type Deps = {
  system: Pick<System, "lookup" | "sleep" | "machineState" | "env">;
  open: OpenEcho;
  /** The organization's status after a probe; undefined if this user may not see it. */
  seen(): Promise<ShownStatus | undefined>;
  /** The check of control plane and clock (control-plane.ts). */
  controlPlane(): Promise<Finding>;
  engine(): Promise<Pick<EngineInUse, "isRunning" | "running">>;
};

const milliseconds = (ms: number) => (ms < 10 ? `${ms.toFixed(1)} ms` : `${Math.round(ms)} ms`);

export async function netcheck(organization: Organization, deps: Deps): Promise<Check[]> {
  const { slug, directory } = organization;
  const { hubs, isLighthouse } = roles(organization);
  const hubAnswers = await askHubs(hubs, deps.system);
  const observed = await deps.seen();
  const api = localApi(controlSocket(directory), deps.system);
  const own = organization.config.ip_address;
  const lighthouses = hubs.filter((hub) => hub.isLighthouse).map(({ overlay }) => overlay);
  // A lighthouse's configuration names the others without their roles.
  const asking = hubs.filter((hub) => isLighthouse || isHub(hub));
  const plane = deps.controlPlane();
  const isPlaneSilent = isSilent(plane);
  const judged = await examineFindings(organization, observed, deps.system, { isPlaneSilent });
  const checks = await Promise.all([
    runCheck({ id: "udp", slug }, async () =>
      udp(hubAnswers, {
        isLighthouse,
        slug,
        seen: observed,
        isPlaneSilent: await isPlaneSilent,
        byTcp: tcpShown(directory),
      }),
    ),
    runCheck({ id: "tcp", slug }, () => tcp(organization, deps.system)),
    runCheck({ id: "mapping", slug }, () =>
      isLighthouse
        ? skipped("A lighthouse reports to no other, so none says where it sees this node")
        : mapping(own, lighthouses, api, deps).catch((error: unknown) =>
            withoutReport(slug, error, observed, deps),
          ),
    ),
    runCheck({ id: "port_mapping", slug }, () => portMapping(organization)),
    runCheck({ id: "round_trips", slug }, () => roundTrips(hubAnswers)),
    runCheck({ id: "mtu", slug }, async () =>
      mtu(organization, await pathsOf(asking, organization, api), observed, deps),
    ),
    runCheck({ id: "control_plane", slug }, () => plane),
  ]);
  return [...judged, ...checks];
}

const stopped = (slug: string, seen: ShownStatus | undefined): Finding =>
  seen?.state === "revoked"
    ? skipped("The overlay does not run: access was revoked")
    : { ...skipped("The overlay is stopped"), remedy: `${run} up ${quoteWord(slug)}` };

/** The engine has no control socket: it does not run, or it is older than 1.12. */
async function withoutReport(
  slug: string,
  error: unknown,
  seen: ShownStatus | undefined,
  { engine }: Deps,
): Promise<Finding> {
  if (!(error instanceof AppError) || !isAbsent(error)) throw error;
  const { isRunning, running } = await engine();
  if (!isRunning) return stopped(slug, seen);
  if (running === undefined) throw error;
  if (can(running, "local_api"))
    return warn(
      "The engine does not serve its control socket, as in the first minute after an update from an engine before 1.12",
      `${run} restart ${quoteWord(slug)} # if it stays so`,
    );
  const evidence = `Engine ${running} does not report where lighthouses see this node`;
  return { ...skipped(evidence), remedy: `${run} overlay update` };
}

type UdpFacts = {
  isLighthouse: boolean;
  slug: string;
  seen: ShownStatus | undefined;
  isPlaneSilent: boolean;
  byTcp: ReturnType<typeof tcpShown>;
};

function udp(
  asked: readonly AskedHub[],
  { isLighthouse, slug, seen, isPlaneSilent, byTcp }: UdpFacts,
): Finding {
  if (asked.length === 0)
    return isLighthouse
      ? skipped("This node is the only lighthouse, so there is no other engine to ask")
      : fail("There is no lighthouse or relay to ask", `${run} doctor`);
  if (byTcp !== undefined && !asked.some(({ is }) => is === "answers")) {
    const { why, cure } = whyUnreached(asked, slug, isPlaneSilent);
    return warn(`UDP does not pass: ${why}. This node goes by TCP, ${byTcp.at}, since ${byTcp.since}`, cure);
  }
  return udpFinding(asked, slug, {
    carries: (seen?.health?.lighthouses.answering ?? 0) > 0,
    isPlaneSilent,
  });
}

/** Whether lighthouses and relays would answer by TCP, if UDP were blocked. */
async function tcp(organization: Organization, system: Deps["system"]): Promise<Finding> {
  if (organization.config.is_lighthouse) return skipped("This node is a lighthouse: others come to it");
  const ways = tcpHubs(organization);
  if (ways.length === 0)
    return isTcpOff(organization)
      ? skipped("Root of this machine does not want TCP")
      : skipped("No lighthouse or relay can be reached by TCP, for networks that block UDP");
  const found = await firstByTcp(ways, system);
  if (found !== undefined) return ok(`If UDP is blocked, ${found} is used: an engine answers there by TCP`);
  const places = ways.map(({ url }) => new URL(url).host).join(", ");
  return warn(
    `No engine answers by TCP (${[...new Set(places.split(", "))].join(", ")}), so nothing helps where UDP is blocked`,
    "Let TCP and WebSocket pass to these addresses; a proxy before the control plane must pass /tcp/ on",
  );
}

/** A lighthouse tells the address and port that it sees this node's packets come from. */
async function mapping(
  own: string,
  lighthouses: readonly string[],
  api: Pick<LocalApi, "queryLighthouse">,
  { system }: Deps,
): Promise<Finding> {
  if (lighthouses.length === 0) return skipped("There is no lighthouse that could see this node");
  let known: KnownAddresses = {};
  for (let tries = 0; tries < 5; tries++) {
    known = await api.queryLighthouse(own);
    if (lighthouses.every((each) => known[each] !== undefined)) break;
    await system.sleep(200);
  }
  const local = new Set((await system.machineState()).addresses.map(({ address }) => address.split("/")[0]));
  const reports = lighthouses.map((each) => known[each]?.reported ?? []);
  if (reports.every((addresses) => addresses.length === 0))
    return warn("No lighthouse says where it sees this node", `${run} status --check`);
  const outside = reports.map((addresses) => addresses.filter((at) => !local.has(withoutPort(at))));
  const mapped = [...new Set(outside.flat())];
  if (mapped.length === 0)
    return ok("There is no NAT before the lighthouses: they see this machine's own address");
  const ports = new Set(mapped.map((at) => at.slice(at.lastIndexOf(":"))));
  const names = mapped.slice(0, 4).join(", ");
  if (reports.filter((addresses) => addresses.length > 0).length < 2)
    return ok(`A NAT maps this node to ${names}; with one lighthouse its kind cannot be told`);
  return ports.size === 1
    ? ok(`The NAT maps this node to the same port for each lighthouse (${names}): direct paths are likely`)
    : warn(
        `The NAT maps this node to another port for each lighthouse (${names}): with other NATs like it there is no direct path`,
        "Forward a UDP port to this machine and set --external-port, or rely on relays",
      );
}

function roundTrips(asked: readonly AskedHub[]): Finding {
  const measured = asked.flatMap((each) =>
    each.rttMs === undefined ? [] : [{ ...each, rttMs: each.rttMs }],
  );
  if (measured.length === 0) return skipped("No lighthouse or relay answers outside of the overlay");
  const texts = measured
    .toSorted((a, b) => a.rttMs - b.rttMs)
    .map(({ name, isLighthouse, isRelay, rttMs }) => {
      const role = [...(isLighthouse ? ["lighthouse"] : []), ...(isRelay ? ["relay"] : [])].join(" and ");
      return `${role === "" ? "lighthouse or relay" : role} ${name} ${milliseconds(rttMs)}`;
    });
  const more = asked.length === mostHubs ? "; more were not asked" : "";
  return ok(`Round trips: ${texts.join(", ")}${more}`);
}

/** Paths that are measured at once. */
const mostPaths = 8;

/** Lighthouses and relays, and peers with a direct tunnel: one size must fit all of them. */
async function pathsOf(hubs: readonly Hub[], organization: Organization, api: Pick<LocalApi, "hostmap">) {
  const nameOf = peerNames(organization.slug, organization.directory);
  const tunnels = await api.hostmap().catch(() => []);
  const direct = tunnels
    .filter(({ currentRemote }) => currentRemote !== "")
    .map(({ vpnAddrs }) => vpnAddrs[0] ?? "");
  const paths = new Map(hubs.map(({ overlay, name }) => [overlay, name]));
  for (const each of direct) paths.set(each, paths.get(each) ?? nameOf(each));
  paths.delete(organization.config.ip_address);
  return [...paths].slice(0, mostPaths).map(([overlay, name]) => ({ overlay, name }));
}

/** `seen` knows, with the cure, that a packet of the full size was lost on the way to a lighthouse. */
async function mtu(
  { slug, directory, config }: Organization,
  paths: readonly { overlay: string; name: string }[],
  seen: ShownStatus | undefined,
  { open, system }: Deps,
): Promise<Finding> {
  const [first] = paths;
  if (first === undefined) return skipped("There is no lighthouse, relay or peer to send to");
  const known = seen?.findings?.find(({ kind }) => kind === "large_packets_lost");
  const size = overlaySettings(readText(join(directory, "config.yml"))).mtu ?? fullBytes;
  const found = await Promise.all(
    paths.map(async (path) => ({
      ...path,
      through: await largestThrough(
        { from: config.ip_address, to: path.overlay, full: size },
        { open, system },
      ),
    })),
  );
  const measured = found.flatMap(({ name, through }) =>
    typeof through === "object" ? [{ name, ...through }] : [],
  );
  const [narrowest] = measured.toSorted((a, b) => a.bytes - b.bytes);
  if (narrowest === undefined) {
    if (known !== undefined) return fail(known.what, known.cure);
    const [why] = found.map(({ through }) => through);
    if (why === "absent") return stopped(slug, seen);
    if (why === "denied") return skipped("This process may not send ICMP: run it as root");
    return skipped(`${first.name} answers no ICMP, so the size of packets is unknown`);
  }
  const { bytes, name, isFull } = narrowest;
  const all = measured.length === 1 ? "" : ` on all ${measured.length} measured paths`;
  if (isFull && known !== undefined) return fail(known.what, known.cure);
  if (isFull) return ok(`Packets of the overlay's full size (${bytes} bytes) pass${all}`);
  const fit = all === "" ? "" : `; ${bytes} bytes pass${all}`;
  const own = [config.ip_address, config.ip_address6].filter((each) => typeof each === "string");
  return fail(
    `Packets above ${bytes} bytes are lost on the way to ${name}: large transfers hang${fit}`,
    smallerPackets({ bytes }, { own }, { slug, directory }),
  );
}
