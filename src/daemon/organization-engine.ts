// One organization in the daemon: the supervisor of its engine, its health, its connection to the control plane, and its record
// for the next daemon. It must not know other organizations.

import { given } from "../base/given.ts";
import { join } from "node:path";
import { because } from "../base/errors.ts";
import { textOrEmpty } from "../base/files.ts";
import type { Log } from "../base/log.ts";
import { isSilent } from "../node/files/config/read-config.ts";
import type { OverlayControl } from "../node/engine/control-engine.ts";
import { runEdge } from "../node/edge/run-edge.ts";
import { edgeParts } from "../node/edge/parts.ts";
import { findEngineProcess } from "../node/engine/engine-process.ts";
import { ageOf } from "../platform/process-identity.ts";
import { openOrganization, type Organization } from "../node/files/organizations.ts";
import { openForRevocations } from "../node/files/damaged-organization.ts";
import { certificateWarning } from "../node/files/organization-facts.ts";
import { mappingShown } from "../node/files/mapping-state.ts";
import { tcpShown } from "../node/files/tcp-state.ts";
import { hasInterface } from "../platform/machine-state.ts";
import { controlSocket } from "../platform/systemd/control-socket.ts";
import { writesTo } from "../platform/processes.ts";
import type { System } from "../base/system.ts";
import type { ControlPlane, ControlPlaneNews, SyncOutcome } from "./control-plane.ts";
import { makeDaemonHealth, type DaemonHealthDeps } from "./daemon-health.ts";
import { logPath } from "./engine-logs.ts";
import type { Gate } from "./start-checks.ts";
import type { OrganizationState, Request } from "./ipc/messages.ts";
import type { OrganizationHealth } from "../node/health/organization-health.ts";
import type { OrganizationStatus } from "./organization-status.ts";
import { spawnEngine, watchEnd } from "./engine-processes.ts";
import type { OrganizationRecord } from "./organization-record.ts";
import type { StateStore } from "./state.ts";
import { isOfFormerRegistration, StoredRecord } from "./stored-record.ts";
import { Supervisor } from "./supervisor.ts";
import { within } from "../base/within.ts";

export type OrganizationEngineDeps = {
  configRoot: string;
  stateDirectory: string;
  store: StateStore;
  system: Pick<
    System,
    | "now"
    | "monotonic"
    | "sleep"
    | "platform"
    | "random"
    | "fetch"
    | "machineState"
    | "lookup"
    | "env"
    | "run"
    | "isRoot"
    | "bootTime"
  >;
  log: Log;
  gate: Gate;
  controlPlane: ControlPlane;
  statuses: OrganizationStatus;
  openEcho: DaemonHealthDeps["openEcho"];
  engineVersion: DaemonHealthDeps["engineVersion"];
  /** Sends a change to the subscribed clients. */
  publish(change: { slug: string; status: OrganizationState | undefined }): void;
};

/** How long a change may still be applied at the end; systemd waits 25 s for the daemon's end. */
const lastChangeMs = 10_000;

export class OrganizationEngine {
  readonly supervisor: Supervisor;
  readonly health: OrganizationHealth;
  readonly logPath: string;
  readonly record: StoredRecord;
  readonly #slug: string;
  readonly #control: OverlayControl;
  readonly #deps: OrganizationEngineDeps;
  /** Aborted when the organization is no longer watched: ends its health and its parts. */
  readonly #watched = new AbortController();
  /** The last warning of the certificate's end: each is logged once. */
  #lastWarning: string | undefined;
  /** Ends the connection to the control plane; undefined: there is none. */
  #connection: AbortController | undefined;
  /** Resolves when the connection has ended: a change that it is applying is completed first. */
  #following: Promise<void> = Promise.resolve();
  /** Ends a pause of the connection. Set while it pauses after a failure. */
  #endPause: (() => void) | undefined;
  /** What the control plane counts for this relay. */
  #relayed: OrganizationState["relayed"];
  /** The sync that runs, or the last one. Does not reject. */
  #lastSync: Promise<unknown> = Promise.resolve();
  /** The sync that waits for it. */
  #nextSync: Promise<SyncOutcome> | undefined;

  constructor(slug: string, record: OrganizationRecord, deps: OrganizationEngineDeps) {
    this.#slug = slug;
    this.#deps = deps;
    this.logPath = logPath(deps.stateDirectory, slug);
    this.record = new StoredRecord(record, this.#organization(), deps);
    this.supervisor = this.#makeSupervisor(record.wanted);
    const place = { slug, directory: join(deps.configRoot, slug), logPath: this.logPath };
    this.health = makeDaemonHealth(
      place,
      {
        process: () => this.supervisor.process,
        control: this.supervisor.control,
        onChange: () => this.#publish(),
      },
      deps,
    );
    void this.health.run(this.#watched.signal);
    this.#runParts(place.directory);
    this.#control = { ...this.supervisor.control, wanted: async () => this.wanted === "up" };
  }

  /** What the connection to the control plane learns and asks. */
  #news(): ControlPlaneNews {
    return {
      peers: () => (this.health.current() === undefined ? undefined : this.health.peers()),
      unsentHealings: () => this.health.healings,
      health: this.health.reporter,
      // Not saved at once: one write a minute for each organization is not worth it.
      checkedIn: (at) => this.record.note({ lastCheckinAt: at }),
      relayed: (counted) => (this.#relayed = counted),
      confirmation: (confirm) => {
        if (!Bun.deepEquals(confirm, this.record.current.confirm)) this.record.trySave({ confirm });
      },
      restartPending: (keys) => {
        // Keys of earlier changes still wait for a restart.
        const all = new Set([...(this.record.current.restartPending ?? []), ...keys]);
        if (keys.length > 0) this.record.trySave({ restartPending: [...all] });
      },
      paused: (endPause) => (this.#endPause = endPause),
    };
  }

  /** The desired state. The supervisor's own state is "down" while the node is revoked. */
  get wanted(): OrganizationRecord["wanted"] {
    return this.record.current.wanted;
  }

  get isRevoked(): boolean {
    return this.#deps.gate.isRevoked({ directory: join(this.#deps.configRoot, this.#slug) });
  }

  #makeSupervisor(wanted: OrganizationRecord["wanted"]): Supervisor {
    const { configRoot, system, log, gate } = this.#deps;
    const configPath = join(configRoot, this.#slug, "config.yml");
    return new Supervisor(wanted, {
      slug: this.#slug,
      logPath: this.logPath,
      controlSocket: controlSocket(join(configRoot, this.#slug)),
      system,
      log,
      // A damaged organization does not start.
      prepare: async () => gate.admit(openOrganization(configRoot, this.#slug)),
      isSilent: () => isSilent(textOrEmpty(configPath)),
      writesLog: ({ pid }) => writesTo(pid, this.logPath),
      hasInterface,
      find: () => findEngineProcess(configPath),
      ageOf,
      spawn: spawnEngine,
      watchEnd: (process, signal) => watchEnd(process, system, signal),
      record: (process) => this.#recordProcess(process),
      changed: () => this.#changed(),
    });
  }

  /** Runs the parts that the organization needs beside its engine (node/edge/). */
  #runParts(directory: string): void {
    const { configRoot, system, log } = this.#deps;
    const { control } = this.supervisor;
    const open = () => openOrganization(configRoot, this.#slug);
    const context = {
      slug: this.#slug,
      directory,
      open,
      control,
      command: "daemon",
      log,
      heardAt: (peers: readonly string[]) => this.health.prober.lastAnswerOf(peers),
      system,
    };
    const isUp = () => this.wanted === "up" && !this.isRevoked;
    const { signal } = this.#watched;
    void runEdge(context, { parts: edgeParts, isUp, isLasting: true, signal }).catch((error: unknown) =>
      log.error("What an organization needs beside its engine has ended", because(this.#slug, error)),
    );
  }

  status(): OrganizationState {
    const { statuses, store } = this.#deps;
    const record = this.record.current;
    const observed = { supervisor: this.supervisor, record };
    const status = statuses.describe(this.#slug, observed, {
      // The user switched to it last.
      active: store.active() === this.#slug,
      // Shown where no other message is.
      notice: store.loss,
    });
    const relayed = this.#relayed;
    const directory = join(this.#deps.configRoot, this.#slug);
    const isRunning = status.state === "running";
    const health = isRunning ? this.health.current() : undefined;
    const tcp = isRunning ? tcpShown(directory) : undefined;
    const mapping = isRunning ? mappingShown(directory) : undefined;
    const { confirm } = record;
    return {
      ...status,
      ...given({ health, relayed, tcp, port_mapping: mapping }),
      ...(confirm === undefined || status.state === "revoked" ? {} : { confirm }),
    };
  }

  /**
   * When the daemon first sees the organization: adopts its running engine, or starts one if one is wanted. `mayStart` false: starts
   * none.
   */
  resume(mayStart: boolean): void {
    const record = this.record.current;
    const { isRevoked } = this;
    const isRenewed = isOfFormerRegistration(record, this.#organization());
    const isWanted = this.wanted === "up";
    const isAdopted = this.supervisor.adopt(record.process);
    if (!isAdopted && record.process !== undefined) this.record.trySave({ process: undefined });
    // Connect before anything can fail: the control plane can repair damaged files.
    if (isWanted) this.connect();
    if (isAdopted) this.#claim();
    if (isRevoked) this.#inBackground(this.supervisor.stop());
    // Registered again while no daemon ran: the adopted engine has the former certificate.
    else if (isWanted && isAdopted && isRenewed) this.#inBackground(this.supervisor.restart());
    else if (isWanted && (isAdopted || mayStart)) this.#inBackground(this.supervisor.start());
  }

  /** After a new registration: connects again and restarts the engine with the new keys. Returns whether it did. */
  renewRegistration(): boolean {
    if (!this.record.renew(this.#organization())) return false;
    this.disconnect();
    // Stores the registration that `renew` has noted.
    this.record.trySave({});
    if (this.wanted === "down") return false;
    this.connect();
    this.#inBackground(this.supervisor.restart());
    return true;
  }

  /** Starts it, unless the node is revoked: the connection then waits for the restore. */
  async run(): Promise<void> {
    this.connect();
    if (!this.isRevoked) await this.supervisor.start();
  }

  async halt(): Promise<void> {
    this.disconnect();
    await this.supervisor.stop();
  }

  /** Connects to the control plane. A connection that pauses asks it at once. */
  connect(): void {
    if (this.#connection !== undefined) return this.#endPause?.();
    const { controlPlane, log } = this.#deps;
    const connection = (this.#connection = new AbortController());
    this.#following = controlPlane
      .follow(this.#organization(), this.#control, this.#news(), connection.signal)
      .catch((error: unknown) => {
        if (!connection.signal.aborted)
          log.error("The connection to a control plane has ended", because(this.#slug, error));
      });
  }

  disconnect(): void {
    this.#connection?.abort(new Error("The organization is stopped"));
    this.#connection = undefined;
    this.#endPause = undefined;
  }

  /** One sync at a time. All callers during a sync share the next one. */
  sync(): Promise<SyncOutcome> {
    this.#nextSync ??= this.#lastSync.then(() => {
      this.#nextSync = undefined;
      const { controlPlane } = this.#deps;
      const sync = controlPlane.sync(this.#organization(), this.#control, this.#news());
      this.#lastSync = sync.catch(() => undefined);
      return sync;
    });
    return this.#nextSync;
  }

  /** The choice of root, or of the daemon's group. `use` "off" ends it. */
  async useExit(choice: NonNullable<Request["exit"]>): Promise<void> {
    const { useFromNow, useNone } = await import("../node/exit/set-exit.ts");
    const { system } = this.#deps;
    const organization = this.#organization();
    if (choice.use !== "off") return useFromNow(organization, choice, system);
    await useNone(organization, { command: "daemon", control: this.supervisor.control, system });
  }

  /** Regular work: saves what could not be saved, warns before the certificate ends. */
  tidy(): void {
    this.record.retry();
    this.#warnOfEnd();
  }

  /** When the daemon ends, or forgets the organization. The engine is not stopped. */
  endWatch(): void {
    this.#watched.abort(new Error("The organization is no longer watched"));
  }

  /** Disconnects. Resolves when a change or an order in progress is complete, or takes too long. */
  async lastChange(): Promise<void> {
    this.disconnect();
    await within(this.#deps.system, lastChangeMs, this.#following, undefined);
  }

  /** Leaves the engine to the next daemon, after a change that is being applied. */
  async handOver(): Promise<void> {
    await this.lastChange();
    this.endWatch();
    this.supervisor.release();
    this.record.retry();
  }

  /** The organization's files as they are now. Of damaged ones, only what revocations need. */
  #organization(): Organization {
    return openForRevocations(this.#deps.configRoot, this.#slug);
  }

  /** A new process has read the whole configuration, so no restart is pending. */
  #recordProcess(process: OrganizationRecord["process"]): void {
    const isSame = process?.started === this.record.current.process?.started;
    this.record.trySave(isSame ? { process } : { process, restartPending: undefined });
  }

  /** After a visible change of the supervisor's state. */
  #changed(): void {
    const { is } = this.supervisor.state.phase;
    this.health.wake();
    // Other engines may use its device, port and networks from now on.
    if (is === "stopped" || is === "waiting") this.#deps.gate.release(this.#slug);
    this.#publish();
  }

  #publish(): void {
    this.#deps.publish({ slug: this.#slug, status: this.status() });
  }

  /** Notes what the adopted engine uses, so that no other engine starts with the same. An engine that we start is noted by `admit`. */
  #claim(): void {
    try {
      this.#deps.gate.claim(this.#organization());
    } catch (error) {
      this.#deps.log.warn(
        "Cannot read which device, port and networks an engine uses",
        because(this.#slug, error),
      );
    }
  }

  /** Warns once for each day that is left. */
  #warnOfEnd(): void {
    const { log, system } = this.#deps;
    const warning = certificateWarning(this.status(), system.now());
    if (warning !== undefined && warning !== this.#lastWarning) log.warn(warning, { team: this.#slug });
    this.#lastWarning = warning;
  }

  /** Does not wait for work of the supervisor. The supervisor retries a failure, and `status` shows the reason. */
  #inBackground(work: Promise<void>): void {
    work.catch((error: unknown) => this.#deps.log.debug("Failed for now", because(this.#slug, error)));
  }
}
