// Runs a CA rotation or certificate version migration in a separate network while some of its tunnels are in use, and
// reports the lost pings. Several can run concurrently.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { decodeBundle } from "../../src/pki/bundle.ts";
import { decodeCaBundle, fingerprint } from "../../src/pki/nebula.ts";
import { paths } from "./paths.ts";
import { Authorities } from "../../src/api/certificates/authorities.ts";
import { startControlPlane } from "./agent.ts";
import type { Engine } from "./engines.ts";
import { makeMembers, pingAll, until, type Member } from "./members.ts";
import { makeLan, startPing, type Pinger } from "./namespaces.ts";
import { makeOrganization, type Organization } from "./overlay.ts";
import { temporaryDirectory } from "./temporary.ts";

/** Tunnels in use during the change: all, those from the second to the third and from the fourth to the second, none. */
export const traffics = ["all", "two", "none"] as const;
export type Traffic = (typeof traffics)[number];
export const changes = ["rotation", "migration"] as const;
export type Change = (typeof changes)[number];

export type Outcome = {
  what: string;
  /** Unanswered pings during the change and right after it, for each pair. */
  lost: { pair: string; during: number; after: number }[];
  /** Unanswered pings beside the tunnels, between the second and the third node: what the machine itself loses. */
  control: number;
  sent: number;
  seconds: number;
};

type Pair = { name: string; ping: Pinger };

/** How long pings continue after the change: engines check their tunnels every few seconds. */
const watchedMs = 8000;

/** `names` of the nodes, the lighthouse first. */
export async function measureChange(
  engine: Pick<Engine, "nebula" | "version">,
  change: Change,
  traffic: Traffic,
  names: readonly string[] = ["lighthouse", "alpha", "beta", "gamma", "delta"],
): Promise<Outcome> {
  using directory = temporaryDirectory();
  using lan = makeLan(names);
  await using plane = await startControlPlane(join(directory.path, "server"));
  const acme = await makeOrganization(plane);
  await using scene = await makeMembers(acme, lan, directory.path, engine.nebula);
  const { members } = scene;
  // All tunnels exist before the change.
  const first = await pingAll(members);
  await Promise.all(first.map((ping) => ping.stop()));
  const busy = pairsOf(members, traffic);
  await Promise.all(busy.map(({ ping }) => ping.reply(20_000)));
  await renew(acme, members[1]);
  const [, a, b] = members;
  const control = startPing(a?.host ?? notThere(), b?.host.address ?? notThere());
  const from = performance.now();
  await (change === "rotation" ? rotate(acme, members) : migrate(acme, members));
  const seconds = (performance.now() - from) / 1000;
  // Pings on tunnels in use continue; the idle tunnels are used right now.
  const after = pairsOf(members, "all");
  await Bun.sleep(watchedMs);
  const all = [...busy, ...after];
  // A tunnel without any answer appears in the lost pings.
  await Promise.all(all.map(({ ping }) => ping.reply(2000).catch(() => undefined)));
  await Promise.all([control, ...all.map(({ ping }) => ping)].map((ping) => ping.stop()));
  const during = new Map(busy.map(({ name, ping }) => [name, lostOf(ping)]));
  return {
    what: `${change} on ${engine.version}, ${traffic} in use`,
    lost: after
      .map(({ name, ping }) => ({ pair: name, during: during.get(name) ?? 0, after: lostOf(ping) }))
      .filter((each) => each.during + each.after > 0),
    control: lostOf(control),
    sent: all.reduce((sum, { ping }) => sum + ping.replies.length, 0),
    seconds,
  };
}

/** One line of progress for a long run. */
export function describeOutcome({ what, lost, control, sent, seconds }: Outcome): string {
  const pairs = lost.map(({ pair, during, after }) => `${pair} ${during}+${after}`).join(", ");
  return `${what}: ${seconds.toFixed(0)} s, ${sent} answers, lost: ${pairs || "none"}, by the machine: ${control}\n`;
}

function pairsOf(members: readonly Member[], traffic: Traffic): Pair[] {
  if (traffic === "none") return [];
  const pair = (from: Member, to: Member) => ({
    name: `${from.name}-${to.name}`,
    ping: startPing(from.host, to.ip),
  });
  const [, a, b, c] = members;
  if (a === undefined || b === undefined) throw new Error("Three nodes at least");
  if (traffic === "two") return [pair(a, b), pair(c ?? b, a)];
  return members.slice(1).flatMap((from) => members.filter((to) => to !== from).map((to) => pair(from, to)));
}

/** From the first ping on: those before the first answer count too. */
function lostOf({ replies }: Pinger): number {
  const last = Math.max(0, ...replies.map(({ seq }) => seq));
  return last === 0 ? watchedMs / 100 : last - new Set(replies.map(({ seq }) => seq)).size;
}

/** Its tunnels keep the previous certificate for a while. */
async function renew({ api, slug }: Organization, member: Member | undefined): Promise<void> {
  const answer = await api("POST", paths.renewCert(slug, member?.id ?? 0), {});
  if (answer.status !== 200) throw new Error(`Renewal: ${answer.status} ${await answer.text()}`);
  await Bun.sleep(2000);
}

const file = ({ places }: Member, name: string) =>
  readFileSync(join(places.configRoot, "acme", name), "utf8");

async function rotate({ api, slug }: Organization, members: readonly Member[]): Promise<void> {
  const before = decodeCaBundle(file(members[0] ?? notThere(), "ca.crt")).map(fingerprint);
  const begun = await api("POST", `/api/org/${slug}/ca/rotate/`, { action: "start" });
  if (begun.status !== 200) throw new Error(`Rotation: ${begun.status} ${await begun.text()}`);
  const phase = async () =>
    v.parse(Authorities, await (await api("GET", `/api/org/${slug}/ca/`)).json()).rotation.phase;
  await until("the end of the rotation", async () => (await phase()) === "none", 240_000);
  for (const member of members) {
    const trusted = decodeCaBundle(file(member, "ca.crt")).map(fingerprint);
    if (trusted.length !== 1 || before.includes(trusted[0] ?? ""))
      throw new Error(`${member.name} trusts ${trusted.join()}`);
  }
}

function notThere(): never {
  throw new Error("No nodes");
}

async function migrate(acme: Organization, members: readonly Member[]): Promise<void> {
  for (const [to, there] of [
    ["both", "1,2"],
    [2, "2"],
    ["both", "1,2"],
    [1, "1"],
  ] as const) {
    await stepTo(acme, to);
    const versions = (member: Member) => decodeBundle(file(member, "host.crt")).map(({ version }) => version);
    await until(`version ${to}`, () => members.every((each) => versions(each).join() === there));
  }
}

/** The server refuses a step until the previous one is confirmed by every node. */
export async function stepTo(acme: Organization, version: 1 | "both" | 2): Promise<void> {
  for (let waited = 0; ; waited += 200) {
    const answer = await acme.api("PATCH", paths.organization("acme"), { certificate_version: version });
    if (answer.status === 200) return;
    const text = await answer.text();
    if (answer.status !== 409 || waited > 60_000) throw new Error(`To ${version}: ${answer.status} ${text}`);
    await Bun.sleep(200);
  }
}
