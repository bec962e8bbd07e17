// Examines whether an organization carries traffic: lighthouses and why one does not answer, routes, forwarding, and other
// interfaces with the same network.

import { join } from "node:path";
import { brand } from "../../brand.ts";
import { describeConfirmation } from "../health/confirmation-shown.ts";
import type { Confirmation } from "../../protocol/confirmation.ts";
import type { LeftOut } from "../../engine/left-out.ts";
import { readTextIfThere } from "../../base/files.ts";
import { parseNetwork } from "../../base/ip.ts";
import { quoteWord } from "../../base/quote.ts";
import type { System } from "../../base/system.ts";
import { unsafeRoutes } from "../files/config/read-config.ts";
import { addressesIn, subnetsIn } from "../files/granted/networks.ts";
import type { Organization } from "../files/organizations.ts";
import { doctorStatusOf, type Finding as HealthFinding } from "../health/findings.ts";
import type { Health } from "../health/verdict.ts";
import { unreachedRoutes } from "../routing/ask-routers.ts";
import { overlayOffers } from "../routing/offers.ts";
import { readRouterFile, unreachedNetworks } from "../routing/router-file.ts";
import { describeRoutesHere, examineInterfaces } from "./machine-use.ts";
import { asRoot, fail, ok, runCheck, skipped, warn, type Check, type Finding } from "./check.ts";
import { readHubs } from "./hubs.ts";
import { openEchoSocket, type OpenEcho } from "../../platform/network/echo-socket.ts";
import { askHubs, whyUnreached } from "./underlay.ts";
import { readText } from "../../base/open-file.ts";

const run = brand.executable;

/** What `status` shows of an organization. */
export type ShownStatus = {
  state: string;
  wanted: "up" | "down";
  health?: Health;
  findings?: readonly HealthFinding[];
  restart_pending?: readonly string[];
  left_out?: readonly LeftOut[];
  confirm?: Confirmation;
};

/** `hasEngine`: without one, a start cures nothing. Default: true. `isPlaneSilent`: the control plane is unreachable. */
type ExamineOptions = { hasEngine?: boolean; isPlaneSilent?: Promise<boolean>; open?: OpenEcho };

/** `status`: undefined if this user may not see it. */
export async function examineTraffic(
  organization: Organization,
  status: ShownStatus | undefined,
  system: Pick<System, "machineState" | "lookup" | "sleep" | "monotonic">,
  options: ExamineOptions = {},
): Promise<Check[]> {
  const { slug } = organization;
  const { open = openEchoSocket } = options;
  const found = await examineFindings(organization, status, system, options);
  const checks = await Promise.all([
    runCheck({ id: "routes", slug }, () => examineRoutes(organization, status, { open, system })),
    runCheck({ id: "forwarding", slug }, () => examineForwarding(organization)),
    runCheck({ id: "interfaces", slug }, () => examineInterfaces(organization, system)),
    ...confirmationChecks(slug, status),
  ]);
  return [...found, ...checks];
}

/** Warns of a confirmation that a user must give soon. The control plane asks for it from 7 days before on. */
function confirmationChecks(slug: string, status: ShownStatus | undefined): Promise<Check>[] {
  if (status?.confirm === undefined || status.state === "revoked") return [];
  const { what, next } = describeConfirmation(status.confirm);
  return [runCheck({ id: "confirmation", slug }, () => warn(what, next))];
}

/** One check for each finding of `status`, and one of the engine's state if the findings do not say it. */
export async function examineFindings(
  organization: Organization,
  status: ShownStatus | undefined,
  system: Pick<System, "lookup">,
  options: ExamineOptions = {},
): Promise<Check[]> {
  const { slug } = organization;
  const { findings = [] } = status ?? {};
  const found = await Promise.all(
    findings.map((finding) => examineFinding(finding, organization, system, options)),
  );
  /** Whether the findings tell the engine's state. */
  const saysState =
    status?.state === "running" ? findings.length > 0 : findings.some(({ kind }) => kind === "not_running");
  const results = saysState ? found : [engineState(slug, status), ...found];
  return Promise.all(results.map((result) => runCheck({ id: "traffic", slug }, () => result)));
}

/** A finding of `status` as the doctor's. It asks silent lighthouses itself, to say why they do not answer. */
async function examineFinding(
  { kind, what, cure }: HealthFinding,
  organization: Organization,
  system: Pick<System, "lookup">,
  { hasEngine = true, isPlaneSilent }: ExamineOptions,
): Promise<Finding> {
  const isGrave = doctorStatusOf(kind) === "fail";
  if (kind === "not_running" && !hasEngine) return fail(what, `${run} overlay install && ${cure}`);
  if (kind !== "lighthouses_silent") return isGrave ? fail(what, cure) : warn(what, cure);
  const { hubs } = readHubs(organization);
  const hubAnswers = await askHubs(
    hubs.filter(({ isLighthouse }) => isLighthouse),
    system,
  );
  const unreached = whyUnreached(hubAnswers, organization.slug, await isPlaneSilent);
  return fail(`${what}: ${unreached.why}`, unreached.cure);
}

function engineState(slug: string, status: ShownStatus | undefined): Finding {
  if (status === undefined) return skipped(`cannot see it without root: ${asRoot}`);
  if (status.state !== "running") return notRunning(slug, status);
  const { answering = 0, of = 0 } = status.health?.lighthouses ?? {};
  return ok(of === 0 ? "no lighthouse is needed" : `${answering} of ${of} lighthouses answer`);
}

function notRunning(slug: string, { state, wanted, findings = [] }: ShownStatus): Finding {
  if (state === "revoked") return skipped("it does not run: access was revoked");
  // Its finding is then `forgotten`: without a record, nothing says that it should be stopped.
  if (wanted === "down")
    return findings.length > 0 ? skipped("it is stopped") : ok("it is stopped, as wanted");
  return fail(`it should run, but is ${state}`, `${run} start ${quoteWord(slug)}`);
}

/** Routes that the control plane switched on, and relays: each must be in effect. */
async function examineRoutes(
  organization: Organization,
  status: ShownStatus | undefined,
  {
    open,
    system,
  }: { open: OpenEcho; system: Pick<System, "machineState" | "lookup" | "sleep" | "monotonic"> },
): Promise<Finding> {
  const { slug, directory } = organization;
  const restart = `${run} restart ${quoteWord(slug)}`;
  const pending = (status?.restart_pending ?? []).filter((key) => /^(relay|tun)\b/.test(key));
  if (pending.length > 0)
    return fail(`${pending.join(", ")}: switched on, but the engine takes it only at its start`, restart);
  const routes = unsafeRoutes(readText(join(directory, "config.yml")));
  const networks = routes.map(({ network }) => network);
  const here = await describeRoutesHere(organization, system);
  if (networks.length === 0) return ok(`no routes through other nodes${here}`);
  const machine = await system.machineState();
  if (machine.interfaces.length === 0) return skipped("checked only on Linux");
  if (status?.state !== "running") return skipped("the engine does not run");
  const routed = new Set(machine.routes.map(({ network }) => network));
  // The machine's state lists neither default routes nor the two halves that replace one.
  const missing = networks.filter((network) => {
    const { prefix = 0, text = network } = parseNetwork(network) ?? {};
    return prefix > 1 && !routed.has(text);
  });
  if (missing.length > 0)
    return fail(`the engine runs, but there is no route to ${missing.join(", ")}`, restart);
  const silent = status.findings?.find(({ kind }) => kind === "routers_silent");
  if (silent !== undefined) return fail(silent.what, silent.cure);
  const used = routes.flatMap(({ network, routers: [router] }) =>
    router === undefined ? [] : [{ network, router }],
  );
  const own = addressesIn(readText(join(directory, "host.crt")));
  const [unreached] = await unreachedRoutes(used, own, { open, system });
  if (unreached !== undefined) {
    const { network, router } = unreached;
    const name = status.health?.routes?.used?.find((each) => each.network === network)?.router ?? router;
    return fail(
      `${network} is not reached: its router ${name} answers, and what is behind it does not`,
      `On ${name}: ${run} doctor`,
    );
  }
  const { answering = 0, of = networks.length } = status.health?.routes ?? {};
  const what = of === 1 ? "1 route through other nodes is" : `${of} routes through other nodes are`;
  return answering === of
    ? ok(`${what} in effect${here}`)
    : ok(`${what} set, and the routers of ${answering} are known to answer${here}`);
}

/** A node with subnets behind it receives packets for them, and the kernel must pass them on. */
function examineForwarding({ directory, slug }: Organization): Finding {
  const [refused] = overlayOffers(directory);
  if (refused !== undefined) {
    const { network, overlay } = refused;
    const evidence = `the offer ${network} is left out: it overlaps the overlay's own network ${overlay}`;
    return warn(
      evidence,
      `${run} up ${quoteWord(slug)} --advertise none # or the networks behind this machine`,
    );
  }
  const subnets = subnetsIn(readTextIfThere(join(directory, "host.crt")) ?? "");
  if (subnets.length === 0) return ok("this node routes no subnets");
  // What this program has set up, by network.
  const setUp = Object.entries(readRouterFile(directory)?.networks ?? {});
  const [unreached] = unreachedNetworks(directory);
  if (unreached !== undefined) return fail(unreached.what, unreached.cure);
  const others = subnets.filter((subnet) => !setUp.some(([network]) => network === subnet));
  if (others.length === 0) return ok(`this node is made ready to route ${subnets.join(", ")}`);
  const off = [
    { key: "net.ipv4.ip_forward", path: "/proc/sys/net/ipv4/ip_forward", is6: false },
    { key: "net.ipv6.conf.all.forwarding", path: "/proc/sys/net/ipv6/conf/all/forwarding", is6: true },
  ].filter(
    ({ path, is6 }) =>
      others.some((subnet) => subnet.includes(":") === is6) && readTextIfThere(path)?.trim() === "0",
  );
  if (off.length === 0) return ok(`this node may forward packets to ${subnets.join(", ")}`);
  const keys = off.map(({ key }) => key);
  const remedy = `sysctl -w ${keys.map((key) => `${key}=1`).join(" ")} # and in /etc/sysctl.d/, for the next boot`;
  return fail(`this node is the router of ${subnets.join(", ")}, but ${keys.join(" and ")} is 0`, remedy);
}
