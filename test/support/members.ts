// A network of daemons with long polls, each in a separate host, and a control plane on this process's loopback: the setup
// of the tests for certificates, rotation and revocation.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { Node } from "../../src/protocol/node.ts";
import { paths } from "./paths.ts";
import { bridgePort } from "./bridge.ts";
import {
  placesBelow,
  registerDesktop,
  startDaemon,
  untilStatus,
  type Daemon,
  type Places,
} from "./daemon.ts";
import { startPing, type Host, type Lan, type Pinger } from "./namespaces.ts";
import type { Organization } from "./overlay.ts";
import { until as waitUntil } from "./until.ts";

export type Member = { name: string; host: Host; places: Places; id: number; ip: string; daemon: Daemon };

/**
 * One member for each host of the network. The first ones are lighthouses, with their address or another one as public
 * address. Resolves when all engines run.
 */
export async function makeMembers(
  organization: Organization,
  lan: Lan,
  directory: string,
  nebula: string,
  { lighthouses = 1, publicIp }: { lighthouses?: number; publicIp?: string } = {},
): Promise<{ members: Member[] } & AsyncDisposable> {
  const stack = new AsyncDisposableStack();
  try {
    const token = await organization.makeToken(["--uses", String(lan.hosts.length), "--lighthouse"]);
    const members: Member[] = [];
    for (const host of lan.hosts) {
      const isHub = members.length < lighthouses;
      const hub = isHub ? ["--is-lighthouse", "--public-ip", publicIp ?? host.address] : [];
      members.push(stack.use(await joinMember(organization, host, directory, nebula, token, hub)));
    }
    return { members, [Symbol.asyncDispose]: () => stack.disposeAsync() };
  } catch (error) {
    await stack.disposeAsync();
    throw error;
  }
}

/** Registers one member and starts its daemon. Resolves when its engine runs. */
export async function joinMember(
  organization: Organization,
  host: Host,
  directory: string,
  nebula: string,
  token: string,
  flags: readonly string[] = [],
): Promise<Member & AsyncDisposable> {
  const { name } = host;
  const stack = new AsyncDisposableStack();
  try {
    const places = placesBelow(join(directory, name), nebula);
    await registerDesktop(organization, places, token, name, flags);
    stack.use(await bridgePort(host, join(directory, name), Number(new URL(organization.plane.url).port)));
    const daemon = await startDaemon(host, places);
    const node = (await nodesOf(organization, name)).find((each) => each.name === name);
    const member: Member = { name, host, places, id: node?.id ?? 0, ip: node?.ip_address ?? "", daemon };
    stack.defer(async () => {
      member.daemon.signal("SIGTERM");
      await member.daemon.exited;
    });
    await untilStatus(places, organization.slug, ({ state }) => state === "running", 60_000);
    return Object.assign(member, { [Symbol.asyncDispose]: () => stack.disposeAsync() });
  } catch (error) {
    await stack.disposeAsync();
    throw error;
  }
}

/** The first hundred nodes, or those of a search. */
export async function nodesOf({ api, slug }: Organization, search = ""): Promise<Node[]> {
  const query = new URLSearchParams({ search });
  return v.parse(v.array(Node), await (await api("GET", `${paths.nodes(slug)}?${query.toString()}`)).json());
}

/**
 * Each two members, once: a ping and its answer pass in both directions. The first member, which may be a lighthouse, only
 * answers.
 */
export function pairsOf(members: readonly Member[]): [from: Member, to: Member][] {
  return members.flatMap((one, at) =>
    members
      .slice(0, at)
      .map((other, before): [Member, Member] =>
        before === 0 || (at + before) % 2 === 0 ? [one, other] : [other, one],
      ),
  );
}

/** Pings between pairsOf these members every `everyMs`. Resolves when all have had an answer. */
export async function pingAll(members: readonly Member[], everyMs?: number): Promise<Pinger[]> {
  const pings = pairsOf(members).map(([from, to]) => startPing(from.host, to.ip, everyMs));
  await Promise.all(pings.map((ping) => ping.reply(60_000)));
  return pings;
}

/** The complete log of a member's engine, including the rotated part. */
export function engineLog({ places }: Pick<Member, "places">, slug = "acme"): string {
  const logs = join(places.stateDb, "../logs");
  return readdirSync(logs)
    .filter((name) => name.startsWith(slug))
    .map((name) => readFileSync(join(logs, name), "utf8"))
    .join("");
}

/** Polls until the condition is true. Throws after `ms`. */
export async function until(
  what: string,
  isSo: () => Promise<boolean> | boolean,
  ms = 60_000,
): Promise<void> {
  await waitUntil(isSo, { what, ms, everyMs: 50 });
}
