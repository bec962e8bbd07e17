// The status of an organization as `status` shows it: desired state, observed state, and facts from its files.

import { given } from "../base/given.ts";
import { readSyncState } from "../node/files/generations.ts";
import { statSync } from "node:fs";
import { join } from "node:path";
import { messageWithHint } from "../base/errors.ts";
import { certificateEnd } from "../node/files/certificate-end.ts";
import { countTunnels, metricsUrl } from "../node/engine/count-tunnels.ts";
import { shownDataPlane } from "../node/files/config/data-plane-in-force.ts";
import { openOrganization } from "../node/files/organizations.ts";
import {
  certificateWarning,
  readOrganizationFacts,
  type OrganizationFacts,
} from "../node/files/organization-facts.ts";
import { readRemains } from "../node/files/damaged-organization.ts";
import { readRevokedNote } from "../node/files/revoked-notes.ts";
import type { System } from "../base/system.ts";
import { clean } from "../base/log.ts";
import { flowsShown } from "../node/files/flows-state.ts";
import type { OrganizationState } from "./ipc/messages.ts";
import type { Phase } from "./lifecycle.ts";
import type { OrganizationRecord } from "./organization-record.ts";
import type { Supervisor } from "./supervisor.ts";

/** The facts are cached only if the last change of the files is older than this. */
const settledMs = 1000;

type Observed = { record: OrganizationRecord; supervisor: Supervisor };

/** Caches the facts, because `status` is called often. Reads the files again after a change. */
export class OrganizationStatus {
  readonly #configRoot: string;
  readonly #system: Pick<System, "now" | "fetch">;
  readonly #cache = new Map<string, CachedFacts & { changedAt: number | undefined }>();

  constructor(configRoot: string, system: Pick<System, "now" | "fetch">) {
    this.#configRoot = configRoot;
    this.#system = system;
  }

  /**
   * The status but for what health and engine know. `active`: the user switched to this organization last. `notice`: a message that
   * is shown if there is no other one.
   */
  describe(
    slug: string,
    { supervisor, record }: Observed,
    { active, notice }: { active: boolean; notice: string | undefined },
  ): OrganizationState {
    const now = this.#system.now();
    const { facts, problem, flows } = this.#read(slug);
    const { phase } = supervisor.state;
    const { process } = supervisor;
    const revoked = facts.revoked !== undefined;
    const message = problem ?? supervisor.message ?? warning(facts, now) ?? notice;
    const uptimeS = process === undefined ? 0 : Math.floor((now - process.startedAt) / 1000);
    return {
      team: slug,
      state: stateOf(phase, revoked),
      wanted: record.wanted,
      mode: "desktop",
      name: facts.name,
      ip_address: facts.ip_address,
      certificate_not_after: facts.certificate_not_after,
      ...(process === undefined ? {} : { pid: process.pid, uptime_s: Math.max(0, uptimeS) }),
      ...given({ last_checkin_at: record.lastCheckinAt }),
      ...(record.restartPending?.length ? { restart_pending: record.restartPending } : {}),
      ...given({ left_out: facts.left_out, seal: facts.seal, flows: flows?.() }),
      ...shownDataPlane(facts.dataPlane, process?.startedAt),
      ...(active ? { active } : {}),
      ...(message === undefined ? {} : { message: clean(message) }),
    };
  }

  /** Adds the number of peers, if the engine reports it. */
  async addPeers(status: OrganizationState): Promise<OrganizationState> {
    const url = status.state === "running" ? this.#read(status.team).metrics : undefined;
    const peers = url === undefined ? undefined : await countTunnels(url, this.#system);
    return peers === undefined ? status : { ...status, peers };
  }

  #read(slug: string): CachedFacts {
    const changedAt = lastChange(join(this.#configRoot, slug));
    const cached = this.#cache.get(slug);
    if (cached !== undefined && cached.changedAt === changedAt) return cached;
    const fresh = readFacts(this.#configRoot, slug);
    // The file system's clock could hide a second change within the same tick: cache only what is old enough.
    const isSettled = changedAt !== undefined && this.#system.now() - changedAt > settledMs;
    // A failure may pass without a change of the files, such as one of a process that had too many files open.
    if (isSettled && fresh.problem === undefined) this.#cache.set(slug, { ...fresh, changedAt });
    return fresh;
  }
}

function stateOf(phase: Phase, revoked: boolean): OrganizationState["state"] {
  if (phase.is === "running") return phase.ready ? "running" : "starting";
  return revoked && phase.is !== "stopping" ? "revoked" : phase.is;
}

function warning(facts: OrganizationFacts, now: number): string | undefined {
  if (facts.revoked !== undefined) return `Access was revoked: ${facts.revoked}`;
  return certificateWarning(facts, now);
}

type CachedFacts = {
  facts: OrganizationFacts;
  /** Where the engine tells its counters; undefined: it does not. */
  metrics: string | undefined;
  /** Why the files could not be read. */
  problem: string | undefined;
  /** Not cached: these files are in a directory whose time is not compared. */
  flows?: () => OrganizationState["flows"];
};

function readFacts(configRoot: string, slug: string): CachedFacts {
  try {
    const organization = openOrganization(configRoot, slug);
    const metrics = metricsUrl(organization.directory);
    return {
      facts: readOrganizationFacts(
        organization,
        readSyncState(organization.directory),
        certificateEnd(organization.directory),
      ),
      metrics,
      problem: undefined,
      flows: () => flowsShown(organization),
    };
  } catch (error) {
    // The directory is missing or damaged: show the error instead.
    const { name = "", directory } = readRemains(configRoot, slug);
    const revoked = readRevokedNote(directory)?.reason;
    const facts = { name, ip_address: "", certificate_not_after: "", ...given({ revoked }) };
    return { facts, metrics: undefined, problem: messageWithHint(error) };
  }
}

/** Every change renames a file into the directory or removes one: its time is cheaper to read than all files. */
function lastChange(directory: string): number | undefined {
  return statSync(directory, { throwIfNoEntry: false })?.mtimeMs;
}
