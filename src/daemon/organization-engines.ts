// The organizations that the daemon runs, and the requests of clients about them. Work of a single organization
// belongs to organization-engine.ts.

import { join } from "node:path";
import { AppError, because, hasCode, messageOf } from "../base/errors.ts";
import { rotateLog } from "./engine-logs.ts";
import { listOrganizations } from "../node/files/list-organizations.ts";
import { openOrganization, type Organization } from "../node/files/organizations.ts";
import { openForRevocations } from "../node/files/damaged-organization.ts";
import { refuseRevoked, startsWhenRestored } from "../node/files/revoked-notes.ts";
import { decidedWithinMs } from "../node/health/prober.ts";
import type { PeersSeen } from "../node/health/shown-peer.ts";
import type { SyncOutcome } from "./control-plane.ts";
import type { OrganizationState } from "./ipc/messages.ts";
import { OrganizationEngine, type OrganizationEngineDeps } from "./organization-engine.ts";
import { OrganizationStatus } from "./organization-status.ts";
import type { OrganizationRecord } from "./organization-record.ts";
import { isOfFormerRegistration } from "./stored-record.ts";
import { within } from "../base/within.ts";

type RecordChange = Pick<OrganizationRecord, "wanted"> & Partial<OrganizationRecord>;

/** How long `peers` waits for the answers of peers. */
const peersMs = 1500;

/** How long a start of a revoked organization waits for the control plane. */
const askMs = 5000;

export class OrganizationEngines {
  readonly #deps: OrganizationEngineDeps;
  readonly #engines = new Map<string, OrganizationEngine>();
  /** The last switch: the next one waits for it. */
  #switching: Promise<unknown> = Promise.resolve();
  /** The daemon ends: no change is accepted any more. */
  #isEnding = false;

  constructor(deps: Omit<OrganizationEngineDeps, "statuses">) {
    this.#deps = { ...deps, statuses: new OrganizationStatus(deps.configRoot, deps.system) };
  }

  /** Loads the organizations at the daemon's start. `mayStart` false: only engines that run already are adopted. */
  open(mayStart: boolean): string[] {
    return this.#discover({ alsoForgotten: false, mayStart });
  }

  /** Loads new organizations, and forgotten ones again. Returns the slugs of those that were loaded, or were registered again. */
  provision(): string[] {
    return this.#discover({ alsoForgotten: true, mayStart: true });
  }

  slugs(): string[] {
    return [...this.#engines.keys()].sort();
  }

  status(slug?: string): OrganizationState[] {
    const slugs = slug === undefined ? this.slugs() : [slug];
    return slugs.map((each) => this.#requireEngine(each).status());
  }

  /** The status with the number of peers, which only the engines know. */
  statusWithPeers(slug?: string): Promise<OrganizationState[]> {
    for (const each of slug === undefined ? this.slugs() : [slug]) this.#requireEngine(each).health.attend();
    return Promise.all(this.status(slug).map((status) => this.#deps.statuses.addPeers(status)));
  }

  /** Probes now. Resolves when the result is known. */
  async check(slug?: string): Promise<void> {
    const slugs = slug === undefined ? this.slugs() : [slug];
    await Promise.all(
      slugs.map((each) => this.#requireEngine(each).health.check(decidedWithinMs, "lighthouses")),
    );
  }

  peers(slug: string, peer?: string): Promise<PeersSeen> {
    return this.#requireEngine(slug).health.readPeers(peersMs, peer);
  }

  pid(slug: string): number | undefined {
    return this.#engines.get(slug)?.supervisor.process?.pid;
  }

  logPath(slug: string): string {
    return this.#requireEngine(slug).logPath;
  }

  async start(slug: string): Promise<void> {
    const isRevoked = this.#isRevoked(slug);
    if (this.pid(slug) === undefined && !isRevoked) await this.#checkStart(slug, "beside others");
    await this.#wantUp(slug, isRevoked, ({ supervisor }) => supervisor.start());
  }

  async stop(slug: string): Promise<void> {
    this.#requireEngine(slug);
    await this.#save(slug, { wanted: "down" }).halt();
  }

  /** Refuses before it stops the running engine if the new one would not start. */
  async restart(slug: string): Promise<void> {
    this.#requireEngine(slug);
    const isRevoked = this.#isRevoked(slug);
    if (!isRevoked) await this.#checkStart(slug, "beside others");
    await this.#wantUp(slug, isRevoked, ({ supervisor }) => supervisor.restart());
  }

  /** Stops the others, starts this one, and saves it as the active one. One switch at a time: the last one wins. */
  switch(slug: string): Promise<void> {
    const turn = this.#switching.then(() => this.#switchTo(slug));
    this.#switching = turn.catch(() => undefined);
    return turn;
  }

  /** Stops the engine and forgets the organization; its files stay. */
  async forget(slug: string): Promise<void> {
    this.#requireEngine(slug);
    await this.#save(slug, { wanted: "down", forgotten: true }).halt();
    const { store, publish } = this.#deps;
    if (store.active() === slug) store.setActive(undefined);
    this.#unload(slug);
    publish({ slug, status: undefined });
  }

  async sync(slug: string): Promise<SyncOutcome> {
    return this.#requireEngine(slug).sync();
  }

  async useExit(slug: string, choice: Parameters<OrganizationEngine["useExit"]>[0]): Promise<void> {
    await this.#requireEngine(slug).useExit(choice);
  }

  /** Regular work of the daemon. */
  tidy(): void {
    this.rotateLogs();
    for (const [slug, engine] of this.#engines) {
      engine.tidy();
      this.#reviewRegistration(slug, engine);
    }
  }

  /** Returns whether a log was too long. */
  rotateLogs(): boolean {
    let isLong = false;
    for (const [slug, engine] of this.#engines) {
      // A failure of one organization must not affect the others.
      try {
        isLong = rotateLog(engine.logPath, this.#deps.log) || isLong;
      } catch (error) {
        const reason = messageOf(error);
        this.#deps.log.error("Cannot rotate the log of an organization", { team: slug, reason });
      }
    }
    return isLong;
  }

  /** Stops every engine. The desired states stay saved for the next daemon. */
  async shutDown(): Promise<void> {
    this.#isEnding = true;
    const all = [...this.#engines.values()];
    const changes = all.map((engine) => engine.lastChange());
    await Promise.allSettled(all.map(({ supervisor }) => supervisor.stop()));
    // An order or a request in progress can still start an engine that was just stopped.
    await Promise.all(changes);
    while (all.some(({ supervisor }) => supervisor.state.phase.is !== "stopped"))
      await Promise.allSettled(all.map(({ supervisor }) => supervisor.stop()));
  }

  /** Leaves the engines to the next daemon. */
  async handOver(): Promise<void> {
    this.#isEnding = true;
    await Promise.all([...this.#engines.values()].map((engine) => engine.handOver()));
  }

  #requireEngine(slug: string): OrganizationEngine {
    const engine = this.#engines.get(slug);
    if (engine === undefined) throw new AppError("unknown_team", `The daemon runs no organization "${slug}"`);
    return engine;
  }

  /** Finds registrations, and ended ones, of which no command informed the daemon: it was killed, or the daemon hung. */
  #reviewRegistration(slug: string, engine: OrganizationEngine): void {
    try {
      if (this.#modeOf(slug) === "desktop") engine.renewRegistration();
      else this.#forgetBecause(slug, "it is no longer registered in desktop mode");
    } catch (error) {
      // Keeps a damaged organization: the control plane can repair it.
      if (hasCode(error, "not_registered")) this.#forgetBecause(slug, error.message);
    }
  }

  #forgetBecause(slug: string, reason: string): void {
    const { log } = this.#deps;
    log.warn("An organization is forgotten", { team: slug, reason });
    this.forget(slug).catch((error: unknown) =>
      log.error("Cannot forget an organization", because(slug, error)),
    );
  }

  #modeOf(slug: string) {
    return openForRevocations(this.#deps.configRoot, slug).config.mode;
  }

  #isRevoked(slug: string): boolean {
    return this.#deps.gate.isRevoked({ directory: join(this.#deps.configRoot, slug) });
  }

  #load(slug: string, record: OrganizationRecord): OrganizationEngine {
    const engine = new OrganizationEngine(slug, record, this.#deps);
    this.#engines.set(slug, engine);
    return engine;
  }

  #unload(slug: string): void {
    this.#engines.get(slug)?.endWatch();
    this.#engines.delete(slug);
  }

  /** Saves that the organization is wanted, then executes it by `run`. While the node is revoked, only saves it. */
  async #wantUp(
    slug: string,
    isRevoked: boolean,
    run: (engine: OrganizationEngine) => Promise<void>,
  ): Promise<void> {
    if (isRevoked) this.#requireDesktop(slug);
    const engine = this.#save(slug, { wanted: "up", forgotten: false });
    // A stopped organization has no connection: the node may have been restored meanwhile.
    if (isRevoked) await this.#askOnce(engine);
    if (this.#isEnding || engine.wanted === "down")
      throw new AppError("busy", `${slug} was stopped again before the control plane answered`);
    engine.connect();
    this.#refuseRevoked(slug, startsWhenRestored);
    try {
      await run(engine);
    } catch (error) {
      // If an order came meanwhile, report that instead of the engine's message.
      this.#refuseRevoked(slug, startsWhenRestored);
      throw error;
    }
  }

  #refuseRevoked(slug: string, hint?: string): void {
    refuseRevoked({ slug, directory: join(this.#deps.configRoot, slug) }, hint);
  }

  /** Asks the control plane for its order about this node. Without an answer the last order stays in force. */
  async #askOnce(engine: OrganizationEngine): Promise<void> {
    const asked = engine.sync().catch(() => undefined);
    await within(this.#deps.system, askMs, asked, undefined);
  }

  #save(slug: string, change: RecordChange): OrganizationEngine {
    this.#saveAll(new Map([[slug, change]]), this.#deps.store.active());
    return this.#requireEngine(slug);
  }

  /** Saves desired states in one transaction, before they are executed. Loads organizations if needed. A full disk refuses all. */
  #saveAll(changes: ReadonlyMap<string, RecordChange>, active: string | undefined): void {
    if (this.#isEnding) throw new AppError("busy", "The daemon is stopping");
    const added = [...changes.keys()].filter((slug) => !this.#engines.has(slug));
    const changed = [...changes].map(([slug, change]) => {
      const engine = this.#engines.get(slug) ?? this.#load(slug, { wanted: "down", forgotten: false });
      return { slug, engine, record: engine.record.with(change) };
    });
    try {
      this.#deps.store.putRecords(new Map(changed.map(({ slug, record }) => [slug, record])), active);
    } catch (error) {
      for (const slug of added) this.#unload(slug);
      throw error;
    }
    for (const { engine, record } of changed) engine.record.use(record);
  }

  /** Loads organizations of mode desktop from the config root. `alsoForgotten`: forgotten ones too. */
  #discover(options: { alsoForgotten: boolean; mayStart: boolean }): string[] {
    if (this.#isEnding) return [];
    const { store, configRoot, log } = this.#deps;
    const records = store.records();
    return listOrganizations(configRoot).filter((slug) => {
      try {
        const engine = this.#engines.get(slug);
        if (engine !== undefined) return this.#modeOf(slug) === "desktop" && engine.renewRegistration();
        const record = records.get(slug);
        return this.#resume(slug, record, options);
      } catch (error) {
        log.error("Cannot load an organization", because(slug, error));
        return false;
      }
    });
  }

  /** Loads an organization, unless it stays forgotten or systemd runs it. Returns whether it was loaded. */
  #resume(
    slug: string,
    record: OrganizationRecord | undefined,
    { alsoForgotten, mayStart }: { alsoForgotten: boolean; mayStart: boolean },
  ): boolean {
    // Do not open a forgotten one without need: it may be damaged. It counts as new once it is registered again.
    const staysForgotten = record?.forgotten === true && !alsoForgotten;
    if (staysForgotten && record.registration === undefined) return false;
    const organization = openForRevocations(this.#deps.configRoot, slug);
    const { damage } = organization;
    if (damage !== undefined) {
      const reason = messageOf(damage.error);
      this.#deps.log.error("An organization is damaged: it obeys revocations only", { team: slug, reason });
    }
    if (staysForgotten && !isOfFormerRegistration(record, organization)) return false;
    if (organization.config.mode !== "desktop") return false;
    const isNew = record === undefined || record.forgotten;
    const engine = this.#load(slug, isNew ? { wanted: "up", forgotten: false } : record);
    // `{}`: stores the new record as it is.
    if (isNew) engine.record.trySave({});
    engine.resume(mayStart);
    return true;
  }

  /** Throws the reason why the engine cannot start. */
  async #checkStart(slug: string, among: "beside others" | "alone"): Promise<void> {
    await this.#deps.gate.check(this.#requireDesktop(slug), among);
  }

  #requireDesktop(slug: string): Organization {
    const organization = openOrganization(this.#deps.configRoot, slug);
    if (organization.config.mode === "desktop") return organization;
    throw new AppError("unknown_team", `"${slug}" has mode server: systemd runs it, not the daemon`);
  }

  async #switchTo(slug: string): Promise<void> {
    await this.#checkStart(slug, "alone");
    const active = this.#deps.store.active();
    // An organization that is not loaded yet counts as stopped.
    const formerStates = new Map<string, RecordChange>([[slug, { wanted: "down" }]]);
    for (const [loaded, { wanted }] of this.#engines) formerStates.set(loaded, { wanted });
    const others = [...this.#engines].flatMap(([loaded, engine]) => (loaded === slug ? [] : [engine]));
    const changes = new Map<string, RecordChange>(
      [...formerStates.keys()].map((each) => [each, { wanted: "down" }]),
    );
    this.#saveAll(changes.set(slug, { wanted: "up", forgotten: false }), slug);
    try {
      await Promise.all(others.map((each) => each.halt()));
      // If an order came meanwhile, report that, as for a start.
      await this.#requireEngine(slug)
        .run()
        .finally(() => this.#refuseRevoked(slug));
    } catch (error) {
      throw await this.#switchBack(error, slug, formerStates, active);
    }
  }

  /**
   * Restores the former states after a failed switch: otherwise the machine would have no overlay. `active`: the former active
   * organization. Returns the error for the caller, which names the organizations that were started again.
   */
  async #switchBack(
    error: unknown,
    slug: string,
    formerStates: ReadonlyMap<string, RecordChange>,
    active: string | undefined,
  ): Promise<unknown> {
    if (this.#isEnding) return error;
    // Skips organizations that were forgotten meanwhile.
    const restored = [...formerStates].filter(([each]) => this.#engines.has(each));
    try {
      this.#saveAll(new Map(restored), active);
    } catch {
      // The disk is full: `tidy` tries again.
      for (const [each, change] of restored) this.#engines.get(each)?.record.trySave(change);
    }
    if (formerStates.get(slug)?.wanted === "down") await this.#engines.get(slug)?.halt();
    const restarted = restored.flatMap(([each, { wanted }]) =>
      each !== slug && wanted === "up" ? [each] : [],
    );
    await Promise.allSettled(restarted.map(async (each) => this.#engines.get(each)?.run()));
    const { code, details } = error instanceof AppError ? error : new AppError("failed", "");
    const also = restarted.length === 0 ? "" : `; started again: ${restarted.join(", ")}`;
    return new AppError(code, `${slug} does not start: ${messageOf(error)}${also}`, {
      ...details,
      cause: error,
    });
  }
}
