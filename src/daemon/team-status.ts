// A team as `status` shows it, put together from what is wanted, what is observed, and its files.

import { statSync } from "node:fs";
import { join } from "node:path";
import { messageOf } from "../errors.ts";
import { certificateEnd } from "../node/contact/certificate-end.ts";
import { countPeers, metricsUrl } from "../node/engine/peers.ts";
import { openOrganization } from "../node/files/organizations.ts";
import {
  certificateWarning,
  readOrganizationFacts,
  type OrganizationFacts,
} from "../node/files/organization-facts.ts";
import type { System } from "../system.ts";
import { clean } from "../log.ts";
import type { TeamStatus } from "./ipc/messages.ts";
import type { Phase } from "./lifecycle.ts";
import type { TeamRecord } from "./state.ts";
import type { Supervisor } from "./supervisor.ts";

const settledMs = 1000;

type Observed = { record: TeamRecord; supervisor: Supervisor };

/** Files are read again only when they have changed: `status` is asked often. */
export function makeTeamStatus(configRoot: string, system: Pick<System, "now" | "fetch">) {
  const cache = new Map<string, Read & { changedAt: number | undefined }>();

  function facts(slug: string): Read {
    const changedAt = lastChange(join(configRoot, slug));
    const known = cache.get(slug);
    if (known !== undefined && known.changedAt === changedAt) return known;
    const fresh = readFacts(configRoot, slug);
    // A change within the same tick of the file system's clock would go unseen: look again later.
    const settled = changedAt !== undefined && system.now() - changedAt > settledMs;
    if (settled) cache.set(slug, { ...fresh, changedAt });
    return fresh;
  }

  function describe(slug: string, { supervisor, record }: Observed, active: boolean): TeamStatus {
    const { facts: known, problem } = facts(slug);
    const { phase, wanted } = supervisor.state();
    const process = supervisor.process();
    const revoked = known.revoked !== undefined;
    const message = problem ?? supervisor.message() ?? warning(known, system.now());
    const uptimeS = process === undefined ? 0 : Math.floor((system.now() - process.startedAt) / 1000);
    return {
      team: slug,
      state: stateOf(phase, revoked),
      wanted: revoked ? wanted : record.wanted,
      mode: "desktop",
      name: known.name,
      ip_address: known.ip_address,
      certificate_not_after: known.certificate_not_after,
      ...(process === undefined ? {} : { pid: process.pid, uptime_s: Math.max(0, uptimeS) }),
      ...(record.lastCheckinAt === undefined ? {} : { last_checkin_at: record.lastCheckinAt }),
      ...(record.restartPending?.length ? { restart_pending: record.restartPending } : {}),
      ...(known.left_out === undefined ? {} : { left_out: known.left_out }),
      ...(active ? { active } : {}),
      ...(message === undefined ? {} : { message: clean(message) }),
    };
  }

  return {
    describe,
    /** The same with what only the engine itself knows, if it says it. */
    async ask(status: TeamStatus): Promise<TeamStatus> {
      const url = status.state === "running" ? facts(status.team).metrics : undefined;
      const peers = url === undefined ? undefined : await countPeers(url, system);
      return peers === undefined ? status : { ...status, peers };
    },
  };
}

function stateOf(phase: Phase, revoked: boolean): TeamStatus["state"] {
  if (phase.is === "running") return phase.ready ? "running" : "starting";
  return revoked && phase.is !== "stopping" ? "revoked" : phase.is;
}

function warning(facts: OrganizationFacts, now: number): string | undefined {
  if (facts.revoked !== undefined) return `Access was revoked: ${facts.revoked}`;
  return certificateWarning(facts.certificate_not_after, now);
}

type Read = { facts: OrganizationFacts; metrics: string | undefined; problem: string | undefined };

function readFacts(configRoot: string, slug: string): Read {
  try {
    const organization = openOrganization(configRoot, slug);
    const metrics = metricsUrl(organization.directory);
    return {
      facts: readOrganizationFacts(organization, certificateEnd(organization.directory)),
      metrics,
      problem: undefined,
    };
  } catch (error) {
    // Its directory is gone or damaged: that is what there is to say.
    const facts = { name: "", ip_address: "", certificate_not_after: "" };
    return { facts, metrics: undefined, problem: messageOf(error) };
  }
}

/** Whatever changes a team is renamed into or removed from its directory, which is cheaper to look at than its files. */
function lastChange(directory: string): number | undefined {
  return statSync(directory, { throwIfNoEntry: false })?.mtimeMs;
}
