// The peers of an organization as text.

import { brand } from "../../brand.ts";
import { can } from "../../engine/features.ts";
import type { PeerReport } from "../../node/health/shown-peer.ts";
import type { OrganizationPeers } from "./read-peers.ts";
import { daysLeft, roughly, textTable } from "./text-table.ts";

const head = ["NAME", "ADDRESS", "PATH", "ROUND TRIP", "LOSS", "TUNNEL", "CERTIFICATE"];

/** `width`: of the terminal. */
export function renderPeers(slug: string, seen: OrganizationPeers, now: number, width?: number): string {
  const { peers } = seen;
  const lines = [`${slug}: ${summary(seen)}`];
  if (peers.length > 0) lines.push("", ...textTable([head, ...peers.map((peer) => row(peer, now))], width));
  if (!seen.reports_tunnels && seen.engine_version !== undefined)
    lines.push("", `Other peers are unknown: ${notReported(seen.engine_version)}`);
  return `${lines.join("\n")}\n`;
}

/** Why peers are not reported: the engine has not answered yet, or is too old. */
function notReported(version: string): string {
  if (can(version, "local_api"))
    return `the engine has not reported its tunnels yet; try again, or \`${brand.executable} doctor\``;
  return `engine ${version} does not report its tunnels; \`${brand.executable} overlay update\``;
}

function summary({ peers, reports_tunnels, engine_version }: OrganizationPeers): string {
  if (engine_version === undefined && peers.length === 0) return "no engine runs";
  const count = (is: (peer: PeerReport) => boolean) => peers.filter(is).length;
  const broken = count(({ probe }) => probe === "broken");
  const counted = `${peers.length} ${peers.length === 1 ? "peer" : "peers"}`;
  if (!reports_tunnels)
    return `${counted}, ${count(({ probe }) => probe === "answers")} answer, ${broken} broken`;
  // Each peer counts once: a tunnel may still be there although nothing passes.
  const direct = count(({ path, probe }) => path === "direct" && probe !== "broken");
  const relayed = count(({ path, probe }) => path === "relayed" && probe !== "broken");
  return `${counted}, ${direct} direct, ${relayed} relayed, ${broken} broken`;
}

function row(peer: PeerReport, now: number): string[] {
  const { name, address, probe, rtt_ms, loss, age_s, certificate_not_after: end } = peer;
  const answer = rtt_ms === undefined ? "-" : milliseconds(rtt_ms);
  return [
    peer.lighthouse === true ? `${name} (lighthouse)` : name,
    address,
    `${probe === "broken" ? "broken, " : ""}${pathText(peer)}${peer.note === undefined ? "" : `: ${peer.note}`}`,
    probe === "not_probed" ? "not probed" : answer,
    loss === undefined ? "-" : `${Math.round(loss * 100)} %`,
    age_s === undefined ? "-" : roughly(age_s),
    end === undefined ? "-" : daysLeft(end, now),
  ];
}

/** "direct 203.0.113.7:4242", "relayed by lh1". */
export function pathText({ path, remote, relays = [] }: PeerReport): string {
  if (path === "direct") return `direct ${remote ?? ""}`.trim();
  if (path === "relayed") return relays.length === 0 ? "relayed" : `relayed by ${relays.join(", ")}`;
  return path === "none" ? "no tunnel" : "unknown";
}

export function milliseconds(ms: number): string {
  return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
}
