// The health of an organization in words, for `agent status`. Loads little: the command must start fast.

import { brand } from "../../brand.ts";
import { formatSize } from "../../base/quantities.ts";
import { lightOf } from "../../node/health/findings.ts";
import type { OrganizationState } from "../ipc/messages.ts";

/** "running", "degraded", "running, not probed", "running, not checked", or why no engine runs. */
export function stateText(status: OrganizationState): string {
  if (status.state !== "running") return status.state;
  const light = lightOfOrganization(status);
  if (light === "degraded") return "degraded";
  if (light === undefined) return "running";
  // With a full disk, checks cannot save what they found.
  const isUnchecked = (status.findings ?? []).some(
    ({ kind }) => kind === "not_checked" || kind === "disk_full",
  );
  return isUnchecked ? "running, not checked" : "running, not probed";
}

function lightOfOrganization({ findings, health }: OrganizationState): ReturnType<typeof lightOf> {
  if (findings !== undefined) return lightOf(findings);
  if (health === undefined || health.verdict === "running") return undefined;
  return health.verdict === "degraded" ? "degraded" : "unknown";
}

/** Whether traffic passes, as far as is known: the meaning of `status --check`. */
export function isHealthy(status: OrganizationState): boolean {
  return (
    status.state === "running" && status.health !== undefined && lightOfOrganization(status) !== "degraded"
  );
}

/** Every finding with what to do about it. A cure in lower case is a command line. */
export function findingNotes({ findings = [] }: OrganizationState): string[] {
  return findings.map(({ what, cure }) => `${what}: ${/^[a-z]/.test(cure) ? `\`${cure}\`` : cure}`);
}

/** The engine's reports, and how long it works without the control plane. */
export function healthNotes(status: OrganizationState, now: number): string[] {
  const { health, state } = status;
  if (state !== "running" || health === undefined) return [];
  const { engine_version: version, lighthouses, tunnels, broken } = health;
  const parts = [
    ...(version === undefined ? [] : [`engine ${version}`]),
    // Before the first probe, nothing is known of lighthouses.
    ...(health.verdict === "not_probed" ? [] : [lighthouseText(lighthouses, health.is_lighthouse === true)]),
    ...(tunnels === undefined
      ? []
      : [`tunnels: ${tunnels.direct} direct, ${tunnels.relayed} relayed, ${broken.length} broken`]),
    ...offloadNotes(status),
    ...offlineNotes(status, now),
    ...ageNotes(status, now),
  ];
  return [parts.join("; ")];
}

function offloadNotes({ data_plane: seen }: OrganizationState): string[] {
  if (seen === undefined || seen.why === "platform") return [];
  return [seen.tun_offloads && seen.udp_offloads ? "offloads on" : "offloads off"];
}

/** Says that UDP is blocked, and which way this node goes instead. */
export function tcpNotes({ tcp }: Pick<OrganizationState, "tcp">): string[] {
  return tcp === undefined ? [] : [`UDP is blocked: over TCP, ${tcp.at}, since ${tcp.since}`];
}

export function mappingNotes({ port_mapping: mapped }: Pick<OrganizationState, "port_mapping">): string[] {
  return mapped === undefined
    ? []
    : [`the router maps ${mapped.at} to this node, by ${mapped.by}, since ${mapped.since}`];
}

export function flowNotes({ flows }: Pick<OrganizationState, "flows">): string[] {
  if (flows === undefined) return [];
  if (flows.state === "off") return ["flows are not reported, as root of this machine said"];
  if (flows.state === "failed") return [`flows are not reported: ${flows.reason}`];
  return [
    `flows are reported: which peers this machine talks to, on which ports (root ends it: \`${brand.executable} sync-config --no-flows\`)`,
  ];
}

/** Settings that an administrator would not expect. */
export function dataPlaneNotes({ data_plane: seen, state }: OrganizationState): string[] {
  const isOdd =
    seen?.why !== undefined && ["restart", "refused", "limit", "segments", "traffic"].includes(seen.why);
  return state === "running" && isOdd && seen.reason !== undefined ? [seen.reason] : [];
}

function lighthouseText({ answering, of }: { answering: number; of: number }, isLighthouse: boolean): string {
  if (isLighthouse) return "it is a lighthouse, and asks no other";
  if (of === 0) return "no lighthouse to ask";
  if (of === 1) return answering === 1 ? "the lighthouse answers" : "the lighthouse does not answer";
  return `${answering} of ${of} lighthouses answer`;
}

/** Without the control plane, only the certificate limits how long the engine works. */
function offlineNotes({ certificate_not_after: end, ephemeral }: OrganizationState, now: number): string[] {
  if (ephemeral === true) return ["ephemeral: works an hour at most without the control plane"];
  const days = Math.floor((Date.parse(end) - now) / 86_400_000);
  return Number.isNaN(days) || days < 0
    ? []
    : [`works ${days} more ${days === 1 ? "day" : "days"} without the control plane`];
}

/** Bytes that a relay forwarded for others, and its limit. */
export function relayNotes({ relayed }: Pick<OrganizationState, "relayed">): string[] {
  if (relayed === undefined) return [];
  const { bytes, limit_bytes: limit, paused } = relayed;
  const share = limit === null ? "" : ` of ${formatSize(limit)}`;
  const end = paused ? "; the limit is reached, so no node uses this relay until the next month (UTC)" : "";
  return [`forwarded ${formatSize(bytes)}${share} for other nodes this month${end}`];
}

/** The networks behind other nodes that are in force, and by which router. */
export function routeNotes({ health, state }: Pick<OrganizationState, "health" | "state">): string[] {
  const used = health?.routes?.used ?? [];
  if (state !== "running" || used.length === 0) return [];
  const hidden = (health?.routes?.of ?? 0) - used.length;
  const list = used.map(({ network, router }) => `${network} by ${router}`).join(", ");
  return [`routes in force: ${list}${hidden > 0 ? `, and ${hidden} more` : ""}`];
}

/** The age of the health in server mode: it was stored by the last run of check-auth. */
function ageNotes({ mode, health }: OrganizationState, now: number): string[] {
  const seconds = Math.round((now - Date.parse(health?.checked_at ?? "")) / 1000);
  return mode === "server" && seconds >= 1 ? [`as of ${seconds} s ago`] : [];
}
