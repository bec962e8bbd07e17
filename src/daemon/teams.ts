// The teams of this machine as the daemon holds them: which it has taken up, what is wanted of each, which may stand
// beside which, and the connection of each to its control plane.

import { join } from "node:path";
import { AppError, messageOf } from "../errors.ts";
import type { Log } from "../log.ts";
import { listOrganizations, openOrganization, type Organization } from "../node/organizations.ts";
import type { System } from "../system.ts";
import type { ControlPlane, SyncOutcome, TeamNews } from "./control-plane.ts";
import { logPath, rotateLog } from "./engine-logs.ts";
import type { makeGate } from "./gate.ts";
import type { TeamStatus } from "./ipc/messages.ts";
import { ageOf, findEngine } from "../node/found-engine.ts";
import { spawnEngine, watchEnd } from "./processes.ts";
import type { StateStore, TeamRecord } from "./state.ts";
import { supervise, type Supervisor } from "./supervisor.ts";
import { makeTeamStatus } from "./team-status.ts";

export type TeamsDeps = {
  configRoot: string;
  stateDirectory: string;
  store: StateStore;
  system: Pick<System, "now" | "sleep" | "platform" | "random">;
  monotonic(): number;
  log: Log;
  gate: ReturnType<typeof makeGate>;
  controlPlane: ControlPlane;
  /** What clients that subscribed are told. */
  publish(notice: { team: string; status: TeamStatus | undefined }): void;
};

type Team = {
  /** Which registration its connection and engine belong to: `register --force` replaces the directory. */
  registration: string;
  record: TeamRecord;
  supervisor: Supervisor;
  connection: AbortController | undefined;
  /** The record could not be written; the next round tries again. */
  unsaved: boolean;
};

export type Teams = ReturnType<typeof makeTeams>;

export function makeTeams(deps: TeamsDeps) {
  const { store, log, system, configRoot } = deps;
  const teams = new Map<string, Team>();
  const describe = makeTeamStatus(configRoot, system);

  function known(slug: string): Team {
    const team = teams.get(slug);
    if (team === undefined) throw new AppError("unknown_team", `There is no team "${slug}" here`);
    return team;
  }

  /** Durable before it is carried out; a full disk refuses the change. */
  function save(slug: string, team: Team, change: Partial<TeamRecord>): void {
    const record = { ...team.record, ...change };
    store.putTeam(slug, record);
    team.record = record;
    team.unsaved = false;
  }

  /** What happened by itself is noted as soon as there is room. */
  function note(slug: string, team: Team, change: Partial<TeamRecord>): void {
    team.record = { ...team.record, ...change };
    try {
      store.putTeam(slug, team.record);
      team.unsaved = false;
    } catch (error) {
      team.unsaved = true;
      log.error("A team's state cannot be noted", { team: slug, reason: messageOf(error) });
    }
  }

  /** A fresh engine has read everything. */
  function remember(slug: string, team: Team, process: TeamRecord["process"]): void {
    const same = process?.started === team.record.process?.started;
    note(slug, team, same ? { process } : { process, restartPending: undefined });
  }

  function changed(slug: string): void {
    const team = teams.get(slug);
    if (team === undefined) return;
    const { is } = team.supervisor.state().phase;
    if (is === "stopped" || is === "waiting") deps.gate.leave(slug);
    deps.publish({ team: slug, status: status(slug, team) });
  }

  function take(slug: string, record: TeamRecord): Team {
    const path = logPath(deps.stateDirectory, slug);
    const configPath = join(configRoot, slug, "config.yml");
    const supervisor = supervise(record.wanted, {
      team: slug,
      logPath: path,
      system,
      monotonic: deps.monotonic,
      log,
      prepare: () => deps.gate.enter(openOrganization(configRoot, slug)),
      find: () => findEngine(configPath),
      ageOf,
      spawn: spawnEngine,
      watchEnd: (process, signal) => watchEnd(process, system, signal),
      remember: (process) => remember(slug, team, process),
      changed: () => changed(slug),
    });
    const registration = registrationOf(openOrganization(configRoot, slug));
    const team: Team = { registration, record, supervisor, connection: undefined, unsaved: false };
    teams.set(slug, team);
    return team;
  }

  /** Adopts the engine that runs, else starts one if that is wanted. */
  function bringUp(slug: string, team: Team, mayStart: boolean): void {
    const organization = openOrganization(configRoot, slug);
    const revoked = deps.gate.isRevoked(organization);
    const wanted = team.record.wanted === "up";
    const adopted = team.supervisor.adopt(team.record.process);
    if (adopted) deps.gate.occupy(organization);
    else if (team.record.process !== undefined) note(slug, team, { process: undefined });
    if (wanted) connect(slug, team);
    const work = revoked
      ? team.supervisor.stop()
      : wanted && (adopted || mayStart)
        ? team.supervisor.start()
        : undefined;
    work?.catch((error: unknown) => log.debug("Not up yet", { team: slug, reason: messageOf(error) }));
  }

  function connect(slug: string, team: Team): void {
    if (team.connection !== undefined) return;
    const connection = (team.connection = new AbortController());
    deps.controlPlane
      .follow(
        openOrganization(configRoot, slug),
        team.supervisor.control,
        newsFor(slug, team),
        connection.signal,
      )
      .catch((error: unknown) => {
        if (!connection.signal.aborted)
          log.error("The connection to a control plane has ended", { team: slug, reason: messageOf(error) });
      });
  }

  function newsFor(slug: string, team: Team): TeamNews {
    return {
      // Kept in memory until something else is written: one write a minute for each team is not worth it.
      checkedIn: (at) => (team.record = { ...team.record, lastCheckinAt: at }),
      restartPending: (restartPending) => note(slug, team, { restartPending }),
    };
  }

  function disconnect(team: Team): void {
    team.connection?.abort(new Error("The team is stopped"));
    team.connection = undefined;
  }

  function status(slug: string, team: Team): TeamStatus {
    return describe(slug, team, store.active() === slug);
  }

  /** Takes up what lies in the config root and is of mode desktop; `forgotten` ones only where asked. */
  function discover(options: { forgotten: boolean; mayStart: boolean }): string[] {
    const records = store.teams();
    return listOrganizations(configRoot).filter((slug) => {
      const team = teams.get(slug);
      if (team !== undefined) return renew(slug, team);
      const record = records.get(slug);
      if (record?.forgotten === true && !options.forgotten) return false;
      return takeUp(slug, record, options.mayStart);
    });
  }

  /** A team that was registered anew gets a new connection, and its engine new keys. */
  function renew(slug: string, team: Team): boolean {
    const registration = registrationOf(openOrganization(configRoot, slug));
    if (registration === team.registration) return false;
    team.registration = registration;
    disconnect(team);
    if (team.record.wanted === "down") return false;
    connect(slug, team);
    team.supervisor
      .restart()
      .catch((error: unknown) => log.warn("Not up yet", { team: slug, reason: messageOf(error) }));
    return true;
  }

  function takeUp(slug: string, record: TeamRecord | undefined, mayStart: boolean): boolean {
    try {
      if (openOrganization(configRoot, slug).config.mode !== "desktop") return false;
      const fresh = record === undefined || record.forgotten;
      const team = take(slug, fresh ? { wanted: "up", forgotten: false } : record);
      if (fresh) note(slug, team, {});
      bringUp(slug, team, mayStart);
      return true;
    } catch (error) {
      log.error("A team is left out", { team: slug, reason: messageOf(error) });
      return false;
    }
  }

  async function start(slug: string): Promise<void> {
    if (!teams.has(slug)) {
      const organization = openOrganization(configRoot, slug);
      if (organization.config.mode !== "desktop")
        throw new AppError("unknown_team", `"${slug}" is of mode server: systemd runs it, not the daemon`);
      await deps.gate.check(organization, "beside others");
      take(slug, { wanted: "down", forgotten: false });
    }
    const team = known(slug);
    if (team.supervisor.process() === undefined)
      await deps.gate.check(openOrganization(configRoot, slug), "beside others");
    save(slug, team, { wanted: "up", forgotten: false });
    connect(slug, team);
    await team.supervisor.start();
  }

  async function stop(slug: string): Promise<void> {
    const team = known(slug);
    save(slug, team, { wanted: "down" });
    disconnect(team);
    await team.supervisor.stop();
  }

  return {
    /** At the daemon's start. */
    open: (mayStart: boolean) => discover({ forgotten: false, mayStart }),
    provision: () => discover({ forgotten: true, mayStart: true }),
    slugs: () => [...teams.keys()].sort(),
    has: (slug: string) => teams.has(slug),
    status: (slug?: string): TeamStatus[] =>
      slug === undefined
        ? [...teams].sort(([a], [b]) => (a < b ? -1 : 1)).map(([each, team]) => status(each, team))
        : [status(slug, known(slug))],
    pid: (slug: string) => teams.get(slug)?.supervisor.process()?.pid,
    start,
    stop,
    async restart(slug: string) {
      const team = known(slug);
      save(slug, team, { wanted: "up" });
      connect(slug, team);
      await team.supervisor.restart();
    },
    /** Starts this one, stops the others, and remembers it as the active one. */
    async switch(slug: string) {
      await deps.gate.check(openOrganization(configRoot, slug), "alone");
      const others = [...teams.keys()].filter((each) => each !== slug);
      await Promise.all(others.map(stop));
      await start(slug);
      store.setActive(slug);
    },
    /** Stops it and forgets it; its files stay. */
    async forget(slug: string) {
      const team = known(slug);
      save(slug, team, { wanted: "down", forgotten: true, process: team.record.process });
      disconnect(team);
      await team.supervisor.stop();
      if (store.active() === slug) store.setActive(undefined);
      teams.delete(slug);
      deps.publish({ team: slug, status: undefined });
    },
    async sync(slug: string): Promise<SyncOutcome> {
      const team = known(slug);
      return deps.controlPlane.sync(
        openOrganization(configRoot, slug),
        team.supervisor.control,
        newsFor(slug, team),
      );
    },
    logPath: (slug: string) => {
      known(slug);
      return logPath(deps.stateDirectory, slug);
    },
    /** What has to be done now and then: logs kept short, notes written that found no room. */
    tidy() {
      for (const [slug, team] of teams) {
        rotateLog(logPath(deps.stateDirectory, slug), log);
        if (team.unsaved) note(slug, team, {});
      }
    },
    /** Stops every engine; what is wanted stays noted for the next daemon. */
    async shutDown() {
      for (const team of teams.values()) disconnect(team);
      await Promise.all([...teams.values()].map(({ supervisor }) => supervisor.stop()));
    },
    /** Leaves the engines to the next daemon. */
    handOver() {
      for (const [slug, team] of teams) {
        disconnect(team);
        team.supervisor.release();
        if (team.unsaved) note(slug, team, {});
      }
    },
  };
}

function registrationOf({ config }: Organization): string {
  return `${config.node_id} ${config.registered_at}`;
}
