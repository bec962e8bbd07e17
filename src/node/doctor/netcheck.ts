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
import { readHubs, type Hub } from "./hubs.ts";
import type { Organization } from "../files/organizations.ts";
import { fail, ok, runCheck, skipped, warn, type Check, type Finding } from "./check.ts";
import { smallerPackets } from "../health/assessment.ts";
import { fullBytes, largestThrough } from "../health/paths/path-mtu.ts";
import { peerNames } from "../files/hosts.ts";
import { advertisedAddresses, overlaySettings } from "../files/config/read-config.ts";
import { readText } from "../../base/open-file.ts";
import { examineFindings, type ShownStatus } from "./traffic.ts";
import { isSilent } from "./control-plane.ts";
import { examinePortMapping } from "./port-mapping.ts";
import { askHubs, udpFinding, whyUnreached, type AskedHub } from "./underlay.ts";
import { firstByTcp, tcpHubs } from "../edge/notice-blocked-udp.ts";
import { isTcpOff, tcpShown } from "../files/tcp-state.ts";
import { isHub } from "../../protocol/routing/roles.ts";

const run = brand.executable;

type Deps = {
  system: Pick<System, "lookup" | "sleep" | "machineState" | "env">;
  open: OpenEcho;
  /** Probes, and returns the organization's status; undefined if this user may not see it. */
  probedStatus(): Promise<ShownStatus | undefined>;
  /** The check of control plane and clock (control-plane.ts). */
  controlPlane(): Promise<Finding>;
  engine(): Promise<Pick<EngineInUse, "isRunning" | "running">>;
};

const milliseconds = (ms: number) => (ms < 10 ? `${ms.toFixed(1)} ms` : `${Math.round(ms)} ms`);

export async function netcheck(organization: Organization, deps: Deps): Promise<Check[]> {
  const { slug, directory } = organization;
  const { hubs, isLighthouse, hasMore } = readHubs(organization);
  const hubAnswers = await askHubs(hubs, deps.system);
  const status = await deps.probedStatus();
  const api = localApi(controlSocket(directory), deps.system);
  const own = organization.config.ip_address;
  const lighthouses = hubs.filter((hub) => hub.isLighthouse).map(({ overlay }) => overlay);
  // A lighthouse's configuration has no roles: it names only other lighthouses and relays. Another node's may also name others.
  const namedHubs = hubs.filter((hub) => isLighthouse || isHub(hub));
  const plane = deps.controlPlane();
  const isPlaneSilent = isSilent(plane);
  const findings = await examineFindings(organization, status, deps.system, { isPlaneSilent });
  const checks = await Promise.all([
    runCheck({ id: "udp", slug }, async () =>
      examineUdp(hubAnswers, {
        isLighthouse,
        slug,
        status,
        isPlaneSilent: await isPlaneSilent,
        byTcp: tcpShown(directory),
      }),
    ),
    runCheck({ id: "tcp", slug }, () => examineTcp(organization, deps.system)),
    runCheck({ id: "mapping", slug }, () =>
      isLighthouse
        ? skipped("A lighthouse reports to no other, so none says where it sees this node")
        : examineMapping(
            {
              own,
              lighthouses,
              advertised: advertisedAddresses(readText(join(directory, "config.yml"))),
            },
            api,
            deps,
          ).catch((error: unknown) => withoutReport(slug, error, status, deps)),
    ),
    runCheck({ id: "port_mapping", slug }, () =>
      examinePortMapping(organization, status?.state === "running", deps.system),
    ),
    runCheck({ id: "round_trips", slug }, () => examineRoundTrips(hubAnswers, hasMore)),
    runCheck({ id: "mtu", slug }, async () =>
      examineMtu(organization, await pathsOf(namedHubs, organization, api), status, deps),
    ),
    runCheck({ id: "control_plane", slug }, () => plane),
  ]);
  return [...findings, ...checks];
}

const notRunning = (slug: string, status: ShownStatus | undefined): Finding =>
  status?.state === "revoked"
    ? skipped("The overlay does not run: access was revoked")
    : { ...skipped("The overlay is stopped"), remedy: `${run} up ${quoteWord(slug)}` };

/** The finding if the engine has no control socket: it does not run, or it is older than 1.12. Throws other errors. */
async function withoutReport(
  slug: string,
  error: unknown,
  status: ShownStatus | undefined,
  { engine }: Deps,
): Promise<Finding> {
  if (!(error instanceof AppError) || !isAbsent(error)) throw error;
  const { isRunning, running } = await engine();
  if (!isRunning) return notRunning(slug, status);
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
  status: ShownStatus | undefined;
  isPlaneSilent: boolean;
  /** Set if this node goes by TCP now. */
  byTcp: ReturnType<typeof tcpShown>;
};

function examineUdp(
  asked: readonly AskedHub[],
  { isLighthouse, slug, status, isPlaneSilent, byTcp }: UdpFacts,
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
    carries: (status?.health?.lighthouses.answering ?? 0) > 0,
    isPlaneSilent,
  });
}

/** Whether lighthouses and relays would answer by TCP, if UDP were blocked. */
async function examineTcp(organization: Organization, system: Deps["system"]): Promise<Finding> {
  if (organization.config.is_lighthouse) return skipped("This node is a lighthouse: others come to it");
  const ways = tcpHubs(organization);
  if (ways.length === 0)
    return isTcpOff(organization)
      ? skipped("Root of this machine does not want TCP")
      : skipped("No lighthouse or relay can be reached by TCP, for networks that block UDP");
  const found = await firstByTcp(ways, system);
  if (found !== undefined) return ok(`If UDP is blocked, ${found} is used: an engine answers there by TCP`);
  const places = new Set(ways.map(({ url }) => new URL(url).host));
  return warn(
    `No engine answers by TCP (${[...places].join(", ")}), so nothing helps where UDP is blocked`,
    "Let TCP and WebSocket pass to these addresses; a proxy before the control plane must pass /tcp/ on",
  );
}

/** How often the engine is asked. It sends questions to lighthouses each time, and shows the answers that have come so far. */
const mostQueries = 5;
const queryEveryMs = 200;

type Mapping = {
  own: string;
  lighthouses: readonly string[];
  /** The underlay addresses, with ports, that this node tells lighthouses itself. */
  advertised: readonly string[];
};

/** Which NAT there is, by the addresses and ports from which lighthouses see this node's packets come. Exported for its test. */
export async function examineMapping(
  { own, lighthouses, advertised }: Mapping,
  api: Pick<LocalApi, "queryLighthouse">,
  { system }: { system: Pick<System, "sleep" | "machineState"> },
): Promise<Finding> {
  if (lighthouses.length === 0) return skipped("There is no lighthouse that could see this node");
  let known: KnownAddresses = {};
  for (let query = 0; query < mostQueries; query++) {
    known = await api.queryLighthouse(own);
    if (lighthouses.every((lighthouse) => known[lighthouse] !== undefined)) break;
    await system.sleep(queryEveryMs);
  }
  const local = new Set((await system.machineState()).addresses.map(({ address }) => address.split("/")[0]));
  const reports = lighthouses.map((lighthouse) => known[lighthouse]?.reported ?? []);
  if (reports.every((addresses) => addresses.length === 0))
    return warn("No lighthouse says where it sees this node", `${run} status --check`);
  const foreign = reports.flat().filter((address) => !local.has(withoutPort(address)));
  if (foreign.length === 0)
    return ok("There is no NAT before the lighthouses: they see this machine's own address");
  // Lighthouses repeat what this node tells them: its own addresses and those that it advertises.
  const isMapped = (address: string) => foreign.includes(address) && !advertised.includes(address);
  const mapped = [...new Set(foreign.filter(isMapped))];
  if (mapped.length === 0) {
    const names = [...new Set(foreign)].slice(0, 4).join(", ");
    return ok(
      `Lighthouses see this node only at its own addresses and at those that it advertises (${names})`,
    );
  }
  const ports = new Set(mapped.map((address) => address.slice(address.lastIndexOf(":"))));
  const names = mapped.slice(0, 4).join(", ");
  if (reports.filter((addresses) => addresses.some(isMapped)).length < 2)
    return ok(`A NAT maps this node to ${names}; with one lighthouse its kind cannot be told`);
  return ports.size === 1
    ? ok(`The NAT maps this node to the same port for each lighthouse (${names}): direct paths are likely`)
    : warn(
        `The NAT maps this node to another port for each lighthouse (${names}): with other NATs like it there is no direct path`,
        "Forward a UDP port to this machine and set --external-port, or rely on relays",
      );
}

function examineRoundTrips(asked: readonly AskedHub[], hasMore: boolean): Finding {
  const measured = asked.flatMap((hub) => (hub.rttMs === undefined ? [] : [{ ...hub, rttMs: hub.rttMs }]));
  if (measured.length === 0) return skipped("No lighthouse or relay answers outside of the overlay");
  const texts = measured
    .toSorted((a, b) => a.rttMs - b.rttMs)
    .map(({ name, isLighthouse, isRelay, rttMs }) => {
      const role = [...(isLighthouse ? ["lighthouse"] : []), ...(isRelay ? ["relay"] : [])].join(" and ");
      return `${role === "" ? "lighthouse or relay" : role} ${name} ${milliseconds(rttMs)}`;
    });
  const more = hasMore ? "; more were not asked" : "";
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
  for (const overlay of direct) paths.set(overlay, paths.get(overlay) ?? nameOf(overlay));
  paths.delete(organization.config.ip_address);
  return [...paths].slice(0, mostPaths).map(([overlay, name]) => ({ overlay, name }));
}

/** Measures the size of packets that pass on these paths. `status` may already know that large ones are lost, and the cure. */
async function examineMtu(
  { slug, directory, config }: Organization,
  paths: readonly { overlay: string; name: string }[],
  status: ShownStatus | undefined,
  { open, system }: Deps,
): Promise<Finding> {
  const [first] = paths;
  if (first === undefined) return skipped("There is no lighthouse, relay or peer to send to");
  const lostLarge = status?.findings?.find(({ kind }) => kind === "large_packets_lost");
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
    if (lostLarge !== undefined) return fail(lostLarge.what, lostLarge.cure);
    const [why] = found.map(({ through }) => through);
    if (why === "absent") return notRunning(slug, status);
    if (why === "denied") return skipped("This process may not send ICMP: run it as root");
    return skipped(`${first.name} answers no ICMP, so the size of packets is unknown`);
  }
  const { bytes, name, isFull } = narrowest;
  const all = measured.length === 1 ? "" : ` on all ${measured.length} measured paths`;
  // All measured paths are well. `status` also measures other ones, so what it found stays.
  if (isFull && lostLarge !== undefined) return fail(lostLarge.what, lostLarge.cure);
  if (isFull) return ok(`Packets of the overlay's full size (${bytes} bytes) pass${all}`);
  const fit = all === "" ? "" : `; ${bytes} bytes pass${all}`;
  const own = [config.ip_address, config.ip_address6].filter((each) => typeof each === "string");
  return fail(
    `Packets above ${bytes} bytes are lost on the way to ${name}: large transfers hang${fit}`,
    smallerPackets({ bytes }, { own }, { slug, directory }),
  );
}
