// The teams of this machine as the daemon holds them: which it has taken up, and what somebody asks of them. What one
// team does by itself is in team.ts.

import { AppError, messageOf } from "../errors.ts";
import { listOrganizations } from "../node/files/list-organizations.ts";
import { openOrganization } from "../node/files/organizations.ts";
import type { SyncOutcome } from "./control-plane.ts";
import type { TeamStatus } from "./ipc/messages.ts";
import type { TeamRecord } from "./state.ts";
import { makeTeam, type Team, type TeamDeps } from "./team.ts";
import { makeTeamStatus } from "./team-status.ts";

export type Teams = ReturnType<typeof makeTeams>;

export function makeTeams(given: Omit<TeamDeps, "statuses">) {
  const { store, log, configRoot, gate } = given;
  const deps: TeamDeps = { ...given, statuses: makeTeamStatus(configRoot, given.system) };
  const teams = new Map<string, Team>();
  let switching: Promise<unknown> = Promise.resolve();
  let ending = false;

  function known(slug: string): Team {
    const team = teams.get(slug);
    if (team === undefined) throw new AppError("unknown_team", `There is no team "${slug}" here`);
    return team;
  }

  function take(slug: string, record: TeamRecord): Team {
    const team = makeTeam(slug, record, deps);
    teams.set(slug, team);
    return team;
  }

  /** Notes what somebody wants, before it is carried out. A team that was not taken up is taken up by it. */
  function save(slug: string, change: Pick<TeamRecord, "wanted"> & Partial<TeamRecord>): Team {
    if (ending) throw new AppError("busy", "The daemon is stopping");
    const team = teams.get(slug);
    if (team !== undefined) {
      team.save(change);
      return team;
    }
    const record = { forgotten: false, ...change };
    store.putTeam(slug, record);
    return take(slug, record);
  }

  function status(slug?: string): TeamStatus[] {
    const chosen =
      slug === undefined ? [...teams].sort(([a], [b]) => (a < b ? -1 : 1)) : [[slug, known(slug)] as const];
    return chosen.map(([, team]) => team.status());
  }

  /** Takes up what lies in the config root and is of mode desktop; `forgotten` ones only where asked. */
  function discover(options: { forgotten: boolean; mayStart: boolean }): string[] {
    if (ending) return [];
    const records = store.teams();
    return listOrganizations(configRoot).filter((slug) => {
      try {
        const team = teams.get(slug);
        if (team !== undefined) return team.renew();
        const record = records.get(slug);
        if (record?.forgotten === true && !options.forgotten) return false;
        return takeUp(slug, record, options.mayStart);
      } catch (error) {
        log.error("A team is left out", { team: slug, reason: messageOf(error) });
        return false;
      }
    });
  }

  function takeUp(slug: string, record: TeamRecord | undefined, mayStart: boolean): boolean {
    if (openOrganization(configRoot, slug).config.mode !== "desktop") return false;
    const fresh = record === undefined || record.forgotten;
    const team = take(slug, fresh ? { wanted: "up", forgotten: false } : record);
    if (fresh) team.note({});
    team.bringUp(mayStart);
    return true;
  }

  /** Throws what would keep the team from starting. */
  async function checkStart(slug: string, among: "beside others" | "alone"): Promise<void> {
    const organization = openOrganization(configRoot, slug);
    if (organization.config.mode !== "desktop")
      throw new AppError("unknown_team", `"${slug}" is of mode server: systemd runs it, not the daemon`);
    await gate.check(organization, among);
  }

  async function start(slug: string): Promise<void> {
    if (teams.get(slug)?.supervisor.process() === undefined) await checkStart(slug, "beside others");
    const team = save(slug, { wanted: "up", forgotten: false });
    team.connect();
    await team.supervisor.start();
  }

  async function stop(slug: string): Promise<void> {
    known(slug);
    const team = save(slug, { wanted: "down" });
    team.disconnect();
    await team.supervisor.stop();
  }

  async function switchTo(slug: string): Promise<void> {
    await checkStart(slug, "alone");
    const others = [...teams.keys()].filter((each) => each !== slug);
    await Promise.all(others.map(stop));
    await start(slug);
    store.setActive(slug);
  }

  return {
    /** At the daemon's start. */
    open: (mayStart: boolean) => discover({ forgotten: false, mayStart }),
    provision: () => discover({ forgotten: true, mayStart: true }),
    slugs: () => [...teams.keys()].sort(),
    status,
    /** With what the engines say of themselves. */
    statusAsked: (slug?: string): Promise<TeamStatus[]> => Promise.all(status(slug).map(deps.statuses.ask)),
    pid: (slug: string) => teams.get(slug)?.supervisor.process()?.pid,
    logPath: (slug: string) => known(slug).logPath,
    start,
    stop,
    /** An engine that runs is not stopped for one that would not start. */
    async restart(slug: string): Promise<void> {
      known(slug);
      await checkStart(slug, "beside others");
      const team = save(slug, { wanted: "up" });
      team.connect();
      await team.supervisor.restart();
    },
    /** Starts this one, stops the others, and remembers it as the active one. One at a time: the last one wins. */
    switch(slug: string): Promise<void> {
      const turn = switching.then(() => switchTo(slug));
      switching = turn.catch(() => undefined);
      return turn;
    },
    /** Stops it and forgets it; its files stay. */
    async forget(slug: string): Promise<void> {
      known(slug);
      const team = save(slug, { wanted: "down", forgotten: true });
      team.disconnect();
      await team.supervisor.stop();
      if (store.active() === slug) store.setActive(undefined);
      teams.delete(slug);
      deps.publish({ team: slug, status: undefined });
    },
    sync: async (slug: string): Promise<SyncOutcome> => known(slug).sync(),
    tidy(): void {
      for (const [team, { tidy }] of teams) {
        // One team's log must not keep the others' from being kept short.
        try {
          tidy();
        } catch (error) {
          log.error("A team cannot be tidied up", { team, reason: messageOf(error) });
        }
      }
    },
    /** Stops every engine; what is wanted stays noted for the next daemon. */
    async shutDown(): Promise<void> {
      ending = true;
      const all = [...teams.values()];
      for (const team of all) team.disconnect();
      // An order that was under way may still start one that has been stopped.
      while (all.some(({ supervisor }) => supervisor.state().phase.is !== "stopped"))
        await Promise.allSettled(all.map(({ supervisor }) => supervisor.stop()));
    },
    /** Leaves the engines to the next daemon. */
    async handOver(): Promise<void> {
      ending = true;
      await Promise.all([...teams.values()].map((team) => team.handOver()));
    },
  };
}
