// A control plane with the organization acme, and Windows machines of it that share one Wine. Each machine has its own
// paths and pipe, and the stand-in for the engine.

import { closeSync, mkdirSync, openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "bun:test";
import * as v from "valibot";
import type { Answer, Request, OrganizationState } from "../../../src/daemon/ipc/messages.ts";
import { buildAgent, startControlPlane, type AgentResult, type ControlPlane } from "../agent.ts";
import { makeOrganization, Registered, type Organization } from "../overlay.ts";
import { temporaryDirectory } from "../temporary.ts";
import { buildForWindows, openWine, windowsPath, type Wine } from "./wine.ts";

type Programs = Awaited<ReturnType<typeof buildForWindows>>;

type Machine = {
  home: string;
  pipe: string;
  /** Name its paths and its pipe. */
  flags: readonly string[];
  /** Runs a command that must end with this status. Returns its standard output. */
  must(words: readonly string[], status?: number): Promise<string>;
  register(name: string): Promise<Registered>;
  /** Starts the daemon and waits until it answers over its pipe. */
  startDaemon(): Promise<Bun.Subprocess>;
  ask(request: Request): Promise<Answer>;
  status(): Promise<OrganizationState>;
  untilState(state: string): Promise<OrganizationState>;
  /** How many of its engines run, as Linux below Wine sees them. */
  engines(): number;
};

export type Windows = AsyncDisposable & {
  directory: string;
  programs: Programs;
  plane: ControlPlane;
  acme: Organization;
  readonly wine: Wine;
  /** Replaces Wine by another, whose sockets are where `inside` leads. */
  reopen(inside: (argv: string[]) => string[]): void;
  agent(words: readonly string[], options?: Parameters<Wine["run"]>[1]): Promise<AgentResult>;
  machine(name: string): Machine;
};

export async function startWindows(): Promise<Windows> {
  await using cleanup = new AsyncDisposableStack();
  const directory = cleanup.use(temporaryDirectory()).path;
  buildAgent();
  const programs = await buildForWindows();
  let wine = openWine();
  cleanup.defer(() => wine[Symbol.dispose]());
  const plane = cleanup.use(await startControlPlane(join(directory, "server")));
  const acme = await makeOrganization(plane);
  const started = cleanup.move();
  const windows: Windows = {
    directory,
    programs,
    plane,
    acme,
    get wine() {
      return wine;
    },
    reopen(inside) {
      wine[Symbol.dispose]();
      wine = openWine(inside);
    },
    agent: (words, options) => wine.run([programs.agent, ...words], options),
    machine: (name) => makeMachine(windows, name),
    [Symbol.asyncDispose]: () => started.disposeAsync(),
  };
  return windows;
}

function makeMachine(windows: Windows, name: string): Machine {
  const { agent, programs, plane, acme } = windows;
  const home = join(windows.directory, name);
  mkdirSync(home);
  const log = join(home, "daemon.log");
  const pipe = `\\\\.\\pipe\\${name}-${process.pid}`;
  const pairs = {
    "config-root": windowsPath(join(home, "etc")),
    "state-db-path": windowsPath(join(home, "lib/state.db")),
    "overlay-binary": windowsPath(programs.engine),
    "pipe-name": pipe,
  };
  const flags = Object.entries(pairs).flatMap(([flag, value]) => [`--${flag}`, value]);
  const machine: Machine = {
    home,
    pipe,
    flags,
    async must(words, status = 0) {
      const result = await agent([...words, ...flags]);
      const { stdout, stderr } = result;
      // The output is part of the failure.
      expect(result).toEqual({ status, stdout, stderr });
      return stdout;
    },
    async register(nodeName) {
      const to = [
        "--api-base",
        plane.url,
        "--org-slug",
        "acme",
        "--node-name",
        nodeName,
        "--mode",
        "desktop",
      ];
      const words = ["register", ...to, "--registration-token-file", "-", "--no-start", "--json"];
      const input = `${await acme.makeToken()}\n`;
      const { status, stdout, stderr } = await agent([...words, ...flags], { input });
      if (status !== 0) throw new Error(`register: exit ${status}\n${stdout}${stderr}`);
      return v.parse(Registered, JSON.parse(stdout));
    },
    async startDaemon() {
      const output = openSync(log, "a");
      const words = ["--ipc-mode", "pipe", "--verbose", "--autostart", ...flags];
      const child = windows.wine.spawn([programs.agent, ...words], output);
      closeSync(output);
      for (let tries = 1; ; tries++) {
        const { status } = await agent(["status", "--json", ...flags]);
        if (status === 0) return child;
        if (tries === 30 || child.exitCode !== null)
          throw new Error(`The daemon does not answer:\n${readFileSync(log, "utf8")}`);
        await Bun.sleep(200);
      }
    },
    async ask(request) {
      const words = [programs.tool, "ask", pipe, JSON.stringify(request)];
      const { status, stdout, stderr } = await windows.wine.run(words);
      if (status !== 0) throw new Error(`ask: exit ${status}\n${stdout}${stderr}`);
      return JSON.parse(stdout);
    },
    async status() {
      const stdout = await machine.must(["status", "acme", "--json"]);
      const [team] = v.parse(v.object({ teams: v.array(v.looseObject({})) }), JSON.parse(stdout)).teams;
      return team as OrganizationState;
    },
    async untilState(state) {
      for (let tries = 1; ; tries++) {
        const status = await machine.status();
        if (status.state === state) return status;
        if (tries === 60) throw new Error(`${JSON.stringify(status)}\n${readFileSync(log, "utf8")}`);
        await Bun.sleep(250);
      }
    },
    engines() {
      const pattern = `-config .*${home.split("/").slice(-2).join(".")}.etc.acme.config.yml`;
      const { stdout } = Bun.spawnSync(["pgrep", "-c", "-f", "--", pattern]);
      return Number(stdout.toString());
    },
  };
  return machine;
}
