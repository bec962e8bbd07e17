// The organizations of this machine that the daemon runs, and what clients request of them. Work of a single
// organization belongs to organization-engine.ts.

import { AppError, messageOf } from "../errors.ts";
import { listOrganizations } from "../node/files/list-organizations.ts";
import { openOrganization } from "../node/files/organizations.ts";
import type { SyncOutcome } from "./control-plane.ts";
import type { TeamStatus } from "./ipc/messages.ts";
import { OrganizationEngine, type OrganizationEngineDeps } from "./organization-engine.ts";
import { OrganizationStatus } from "./organization-status.ts";
import type { OrganizationRecord } from "./state.ts";

export class OrganizationEngines {
  readonly #deps: OrganizationEngineDeps;
  readonly #engines = new Map<string, OrganizationEngine>();
  #switching: Promise<unknown> = Promise.resolve();
  #isEnding = false;

  constructor(deps: Omit<OrganizationEngineDeps, "statuses">) {
    this.#deps = { ...deps, statuses: new OrganizationStatus(deps.configRoot, deps.system) };
  }

  /** At the daemon's start. */
  open(mayStart: boolean): string[] {
    return this.#discover({ forgotten: false, mayStart });
  }

  /** Loads new organizations, and forgotten ones again. The slugs of those that were loaded or registered again. */
  provision(): string[] {
    return this.#discover({ forgotten: true, mayStart: true });
  }

  slugs(): string[] {
    return [...this.#engines.keys()].sort();
  }

  status(slug?: string): TeamStatus[] {
    const slugs = slug === undefined ? this.slugs() : [slug];
    return slugs.map((each) => this.#known(each).status());
  }

  /** The status with what only the engines know. */
  statusWithPeers(slug?: string): Promise<TeamStatus[]> {
    return Promise.all(this.status(slug).map((status) => this.#deps.statuses.addPeers(status)));
  }

  pid(slug: string): number | undefined {
    return this.#engines.get(slug)?.supervisor.process?.pid;
  }

  logPath(slug: string): string {
    return this.#known(slug).logPath;
  }

  async start(slug: string): Promise<void> {
    if (this.pid(slug) === undefined) await this.#checkStart(slug, "beside others");
    const engine = this.#save(slug, { wanted: "up", forgotten: false });
    engine.connect();
    await engine.supervisor.start();
  }

  async stop(slug: string): Promise<void> {
    this.#known(slug);
    const engine = this.#save(slug, { wanted: "down" });
    engine.disconnect();
    await engine.supervisor.stop();
  }

  /** Refuses before it stops the running engine if the new one would not start. */
  async restart(slug: string): Promise<void> {
    this.#known(slug);
    await this.#checkStart(slug, "beside others");
    const engine = this.#save(slug, { wanted: "up" });
    engine.connect();
    await engine.supervisor.restart();
  }

  /** Stops the others, starts this one, and saves it as the active one. One switch at a time: the last one wins. */
  switch(slug: string): Promise<void> {
    const turn = this.#switching.then(() => this.#switchTo(slug));
    this.#switching = turn.catch(() => undefined);
    return turn;
  }

  /** Stops the engine and forgets the organization; its files stay. */
  async forget(slug: string): Promise<void> {
    this.#known(slug);
    const engine = this.#save(slug, { wanted: "down", forgotten: true });
    engine.disconnect();
    await engine.supervisor.stop();
    const { store, publish } = this.#deps;
    if (store.active() === slug) store.setActive(undefined);
    this.#engines.delete(slug);
    publish({ slug, status: undefined });
  }

  async sync(slug: string): Promise<SyncOutcome> {
    return this.#known(slug).sync();
  }

  tidy(): void {
    for (const [slug, engine] of this.#engines) {
      // A failure of one organization must not affect the others.
      try {
        engine.tidy();
      } catch (error) {
        const reason = messageOf(error);
        this.#deps.log.error("Cannot rotate the log of an organization", { team: slug, reason });
      }
    }
  }

  /** Stops every engine. The desired states stay saved for the next daemon. */
  async shutDown(): Promise<void> {
    this.#isEnding = true;
    const all = [...this.#engines.values()];
    for (const engine of all) engine.disconnect();
    // A request in progress can still start an engine that was just stopped.
    while (all.some(({ supervisor }) => supervisor.state.phase.is !== "stopped"))
      await Promise.allSettled(all.map(({ supervisor }) => supervisor.stop()));
  }

  /** Leaves the engines to the next daemon. */
  async handOver(): Promise<void> {
    this.#isEnding = true;
    await Promise.all([...this.#engines.values()].map((engine) => engine.handOver()));
  }

  #known(slug: string): OrganizationEngine {
    const engine = this.#engines.get(slug);
    if (engine === undefined) throw new AppError("unknown_team", `The daemon runs no organization "${slug}"`);
    return engine;
  }

  #load(slug: string, record: OrganizationRecord): OrganizationEngine {
    const engine = new OrganizationEngine(slug, record, this.#deps);
    this.#engines.set(slug, engine);
    return engine;
  }

  /** Saves a desired state before it is executed. Loads the organization if needed. */
  #save(
    slug: string,
    change: Pick<OrganizationRecord, "wanted"> & Partial<OrganizationRecord>,
  ): OrganizationEngine {
    if (this.#isEnding) throw new AppError("busy", "The daemon is stopping");
    const engine = this.#engines.get(slug);
    if (engine !== undefined) {
      engine.save(change);
      return engine;
    }
    const record = { forgotten: false, ...change };
    this.#deps.store.putRecord(slug, record);
    return this.#load(slug, record);
  }

  /** Loads organizations of mode desktop from the config root; `forgotten` ones only if requested. */
  #discover(options: { forgotten: boolean; mayStart: boolean }): string[] {
    if (this.#isEnding) return [];
    const { store, configRoot, log } = this.#deps;
    const records = store.records();
    return listOrganizations(configRoot).filter((slug) => {
      try {
        const engine = this.#engines.get(slug);
        if (engine !== undefined) return engine.renewRegistration();
        const record = records.get(slug);
        if (record?.forgotten === true && !options.forgotten) return false;
        return this.#resume(slug, record, options.mayStart);
      } catch (error) {
        log.error("Cannot load an organization", { team: slug, reason: messageOf(error) });
        return false;
      }
    });
  }

  #resume(slug: string, record: OrganizationRecord | undefined, mayStart: boolean): boolean {
    if (openOrganization(this.#deps.configRoot, slug).config.mode !== "desktop") return false;
    const isNew = record === undefined || record.forgotten;
    const engine = this.#load(slug, isNew ? { wanted: "up", forgotten: false } : record);
    if (isNew) engine.trySave({});
    engine.resume(mayStart);
    return true;
  }

  /** Throws the reason why the engine cannot start. */
  async #checkStart(slug: string, among: "beside others" | "alone"): Promise<void> {
    const organization = openOrganization(this.#deps.configRoot, slug);
    if (organization.config.mode !== "desktop")
      throw new AppError("unknown_team", `"${slug}" has mode server: systemd runs it, not the daemon`);
    await this.#deps.gate.check(organization, among);
  }

  async #switchTo(slug: string): Promise<void> {
    await this.#checkStart(slug, "alone");
    const others = [...this.#engines.keys()].filter((each) => each !== slug);
    await Promise.all(others.map((each) => this.stop(each)));
    await this.start(slug);
    this.#deps.store.setActive(slug);
  }
}
