// Examines whether an organization carries traffic: lighthouses and why one does not answer, routes, forwarding, and other
// interfaces with the same network.

import { join } from "node:path";
import { brand } from "../../brand.ts";
import { describeConfirmation, type Confirmation } from "../../confirmation.ts";
import type { LeftOut } from "../../left-out.ts";
import { readTextIfThere } from "../../files.ts";
import { joinHostPort, parseAddress, parseNetwork } from "../../ip.ts";
import { quoteWord } from "../../plan.ts";
import type { System } from "../../system.ts";
import { askEngine } from "../engine/ask-engine.ts";
import { unsafeRoutes, underlayOf } from "../files/read-config.ts";
import { subnetsIn } from "../files/networks.ts";
import type { Organization } from "../files/organizations.ts";
import type { Health } from "../health/judge.ts";
import { interfaces, routesHere } from "./taken.ts";
import { asRoot, fail, ok, runCheck, skipped, warn, type Check, type Finding } from "./check.ts";
import { readText } from "../../open-file.ts";

const run = brand.executable;

/** What `status` says of an organization. */
export type Seen = {
  state: string;
  wanted: "up" | "down";
  health?: Health;
  message?: string;
  restart_pending?: readonly string[];
  left_out?: readonly LeftOut[];
  confirm?: Confirmation;
};

/** `seen`: undefined if this user may not see it. */
export async function examineTraffic(
  organization: Organization,
  seen: Seen | undefined,
  system: Pick<System, "machineState" | "lookup" | "sleep">,
): Promise<Check[]> {
  const { slug } = organization;
  return Promise.all([
    runCheck("traffic", slug, () => traffic(organization, seen, system)),
    runCheck("routes", slug, () => routes(organization, seen, system)),
    runCheck("forwarding", slug, () => forwarding(organization)),
    runCheck("interfaces", slug, () => interfaces(organization, system)),
    ...confirmation(slug, seen),
  ]);
}

/** The control plane asks for it 7 days before. */
function confirmation(slug: string, seen: Seen | undefined): Promise<Check>[] {
  if (seen?.confirm === undefined || seen.state === "revoked") return [];
  const { what, next } = describeConfirmation(seen.confirm);
  return [runCheck("confirmation", slug, () => warn(what, next))];
}

async function traffic(
  organization: Organization,
  seen: Seen | undefined,
  system: Pick<System, "lookup">,
): Promise<Finding> {
  const { slug } = organization;
  if (seen === undefined) return skipped(`cannot see it without root: ${asRoot}`);
  if (seen.state !== "running") return notRunning(slug, seen);
  const { health } = seen;
  if (health === undefined) return skipped(`cannot see whether traffic passes without root: ${asRoot}`);
  const { verdict, reason = "", lighthouses, broken } = health;
  if (verdict === "not_probed") return warn(reason, `${run} overlay update`);
  if (verdict === "running") {
    const text =
      lighthouses.of === 0 ? "" : `${lighthouses.answering} of ${lighthouses.of} lighthouses answer`;
    if (broken.length > 0)
      return warn(`no answer from ${broken.join(", ")}`, `${run} peers ${quoteWord(slug)}`);
    return ok(text === "" ? "no lighthouse is needed" : text);
  }
  if (lighthouses.of > 0) return diagnose(organization, reason, system);
  return fail(reason, remedyWithout(organization));
}

function notRunning(slug: string, { state, wanted, message }: Seen): Finding {
  if (state === "revoked") return skipped("it does not run: access was revoked");
  if (wanted === "down") return ok("it is stopped, as wanted");
  const why = message === undefined ? "" : `: ${message}`;
  return fail(`it should run, but is ${state}${why}`, `${run} start ${quoteWord(slug)}`);
}

function remedyWithout({ slug }: Organization): string {
  const words = `${run} admin node update ${quoteWord(slug)} NODE --lighthouse --public-ip ADDRESS`;
  return `Ask the organization's administrator to make a node with a public address a lighthouse: ${words}`;
}

/** Why no lighthouse answers: asks the first one from outside of the overlay. */
async function diagnose(
  { slug, directory }: Organization,
  reason: string,
  system: Pick<System, "lookup">,
): Promise<Finding> {
  const targets = underlayOf(readText(join(directory, "config.yml")));
  const found: Finding[] = [];
  for (const { host, port } of targets.slice(0, 4)) {
    const [address] = parseAddress(host) === undefined ? await system.lookup(host, "system") : [host];
    if (address === undefined) {
      found.push(
        fail(
          `${reason}: its name ${host} is unknown`,
          `Correct this machine's name server: getent hosts ${quoteWord(host)}`,
        ),
      );
      continue;
    }
    const { is } = await askEngine(address, port);
    const where = `UDP ${joinHostPort(address, port)}`;
    if (is === "answers") {
      return fail(
        `${reason}: an engine listens at ${where}, but makes no tunnel with this node: a certificate or CA differs, or this node is blocked`,
        `${run} sync-config; then the reason is in the lighthouse's log: ${run} logs ${quoteWord(slug)}`,
      );
    }
    if (is === "no route")
      found.push(
        fail(
          `${reason}: no route to ${where}`,
          `Connect this machine to the network, then: ip route get ${address}`,
        ),
      );
    else if (is === "closed")
      found.push(
        fail(
          `${reason}: ${where} is closed, no engine listens there`,
          `On the lighthouse: ${run} start ${quoteWord(slug)}`,
        ),
      );
    else
      found.push(
        fail(
          `${reason}: nothing comes back from ${where}: a firewall drops it, or the machine is off`,
          `Permit UDP ${port} in every firewall before the lighthouse, then on the lighthouse: ${run} check-port ${port}`,
        ),
      );
  }
  return found[0] ?? fail(`${reason}: no address of it is known`, `${run} sync-config`);
}

/** Routes that the control plane switched on, and relays: each must be in effect. */
async function routes(
  organization: Organization,
  seen: Seen | undefined,
  system: Pick<System, "machineState" | "lookup" | "sleep">,
): Promise<Finding> {
  const { slug, directory } = organization;
  const restart = `${run} restart ${quoteWord(slug)}`;
  const pending = (seen?.restart_pending ?? []).filter((key) => /^(relay|tun)\b/.test(key));
  if (pending.length > 0)
    return fail(`${pending.join(", ")}: switched on, but the engine takes it only at its start`, restart);
  const wanted = unsafeRoutes(readText(join(directory, "config.yml")));
  const here = await routesHere(organization, system);
  if (wanted.length === 0) return ok(`no routes through other nodes${here}`);
  const { routes: present, interfaces: all } = await system.machineState();
  if (all.length === 0) return skipped("checked only on Linux");
  if (seen?.state !== "running") return skipped("the engine does not run");
  const there = new Set(present.map(({ network }) => network));
  // The state names no default routes, and the halves that stand for one.
  const missing = wanted.filter((each) => {
    const { prefix = 0, text = each } = parseNetwork(each) ?? {};
    return prefix > 1 && !there.has(text);
  });
  return missing.length === 0
    ? ok(`${wanted.length} routes through other nodes are in effect${here}`)
    : fail(`the engine runs, but there is no route to ${missing.join(", ")}`, restart);
}

/** A node with subnets behind it receives packets for them, and the kernel must pass them on. */
function forwarding({ directory }: Organization): Finding {
  const subnets = subnetsIn(readTextIfThere(join(directory, "host.crt")) ?? "");
  if (subnets.length === 0) return ok("this node routes no subnets");
  const off = [
    { key: "net.ipv4.ip_forward", path: "/proc/sys/net/ipv4/ip_forward", is6: false },
    { key: "net.ipv6.conf.all.forwarding", path: "/proc/sys/net/ipv6/conf/all/forwarding", is6: true },
  ].filter(
    ({ path, is6 }) =>
      subnets.some((each) => each.includes(":") === is6) && readTextIfThere(path)?.trim() === "0",
  );
  if (off.length === 0) return ok(`this node may forward packets to ${subnets.join(", ")}`);
  const keys = off.map(({ key }) => key);
  const remedy = `sysctl -w ${keys.map((key) => `${key}=1`).join(" ")} (and in /etc/sysctl.d/, for the next boot)`;
  return fail(`this node is the router of ${subnets.join(", ")}, but ${keys.join(" and ")} is 0`, remedy);
}
