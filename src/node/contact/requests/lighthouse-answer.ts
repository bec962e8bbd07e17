// Waits until a lighthouse answers through the tunnel: the proof that a node has joined. Sends ICMP echo, which the
// firewall of a new organization permits.

import { join } from "node:path";
import { joinHostPort } from "../../../base/ip.ts";
import { textOrEmpty } from "../../../base/files.ts";
import { openEchoSocket, type OpenEcho } from "../../../platform/network/echo-socket.ts";
import type { System } from "../../../base/system.ts";
import { peerNames } from "../../files/hosts.ts";
import { underlayOf } from "../../files/config/read-config.ts";
import { lighthouseTargets, type Target } from "../../files/granted/lighthouse-targets.ts";
import { openOrganization, type Organization } from "../../files/organizations.ts";

/**
 * `none`: the organization has no other lighthouse. `unknown`: this system sends no echo requests. `silent`: none
 * answered in time; `lighthouses` are their names, each with its public addresses. `lighthouse`: an overlay address.
 */
export type LighthouseAnswer =
  | { result: "answered"; lighthouse: string; name: string; afterMs: number }
  | { result: "none" | "unknown" }
  | { result: "silent"; lighthouses: readonly string[] };

type Deps = { system: Pick<System, "sleep" | "random">; openEcho?: OpenEcho };

/** Requests are repeated this often: an engine that has just started drops what comes before its interface is up. */
const roundMs = 500;
/** How often awaitLighthouse looks whether an answer has come. */
const lookMs = 20;

/** Waits for the first answer, for at most `waitMs`. */
export async function awaitLighthouse(
  { slug, directory }: Pick<Organization, "slug" | "directory">,
  waitMs: number,
  { system, openEcho = openEchoSocket }: Deps,
): Promise<LighthouseAnswer> {
  // A registration can arrive before the newest configuration, so the targets are read again.
  const readTargets = () => lighthouseTargets(openOrganization(join(directory, ".."), slug));
  const mark = system.random(16);
  const answer: { from?: string } = {};
  let isDenied = false;
  let targets = readTargets();
  let waited = 0;
  while (waited < waitMs && targets.length > 0 && !isDenied) {
    const asked = await Promise.all(
      targets.map((target) => ask(target, mark, openEcho, () => (answer.from ??= target.to))),
    );
    for (const end = waited + roundMs; waited < end && answer.from === undefined; waited += lookMs)
      await system.sleep(lookMs);
    for (const { close } of asked) close();
    isDenied = asked.every(({ failure }) => failure === "denied");
    if (answer.from !== undefined) {
      const name = peerNames(slug, directory)(answer.from);
      return { result: "answered", lighthouse: answer.from, name, afterMs: waited };
    }
    targets = readTargets();
  }
  if (isDenied) return { result: "unknown" };
  if (targets.length === 0) return { result: "none" };
  const text = textOrEmpty(directory, "config.yml");
  const nameOf = peerNames(slug, directory);
  const lighthouses = targets.map(({ to }) => {
    const ways = underlayOf(text).filter(({ lighthouse }) => lighthouse === to);
    return `${nameOf(to)} (${ways.map(({ host, port }) => joinHostPort(host, port)).join(", ") || "no public address"})`;
  });
  return { result: "silent", lighthouses };
}

/** Sends one request. `failure`: why nothing could be sent. */
async function ask(
  { from, to }: Target,
  mark: Uint8Array,
  openEcho: OpenEcho,
  onAnswer: () => void,
): Promise<{ failure?: "denied" | "absent"; close(): void }> {
  const request = Buffer.concat([mark, Buffer.from(to)]);
  const socket = await openEcho(from, ({ payload }) => {
    if (Buffer.from(payload).equals(request)) onAnswer();
  });
  if (typeof socket === "string") return { failure: socket, close: () => undefined };
  const sequence = 1;
  socket.send(to, sequence, request);
  return { close: () => socket.close() };
}
