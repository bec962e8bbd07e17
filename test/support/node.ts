// A node and the real server in one process: a configuration root in a temporary directory, requests that reach the server
// without a network, and the command line in process.

import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { run } from "../../src/cli/run.ts";
import type { Log } from "../../src/base/log.ts";
import { connectOrganization } from "../../src/node/contact/requests/connection.ts";
import type { FollowDeps } from "../../src/node/contact/follow-once.ts";
import type { SyncResult } from "../../src/node/contact/applying/apply-next.ts";
import { syncOrganization } from "../../src/node/contact/sync.ts";
import type { OverlayControl } from "../../src/node/engine/control-engine.ts";
import { rememberVersions } from "../../src/node/engine/engine.ts";
import { engineInUse, noneInUse } from "../../src/node/engine/engine-in-use.ts";
import { openOrganization, type Organization } from "../../src/node/files/organizations.ts";
import { register } from "../../src/node/enroll/register.ts";
import type { Registration } from "../../src/node/enroll/registration-checks.ts";
import { paths } from "./paths.ts";
import { realSystem, type System } from "../../src/base/system.ts";
import { emptyMachine } from "./machine.ts";
import { makeTestServer, type TestServer, type TestServerOptions } from "./server.ts";
import { temporaryDirectory } from "./temporary.ts";

export const apiBase = "https://control.example";

/** `agent register` for that world, without its credential. */
export const registerWords = [
  "register",
  "--api-base",
  apiBase,
  "--org-slug",
  "acme",
  "--node-name",
  "alpha",
  "--mode",
  "server",
];
export const engine = "/usr/bin/nebula";
export const hasEngine = existsSync(engine);

export type Ran = { status: number; stdout: string; stderr: string; json: unknown };

export type NodeWorld = AsyncDisposable & {
  server: TestServer;
  /** An owner's access token. */
  owner: string;
  root: string;
  /** `fetch` reaches the server and records every request as "METHOD path". Replace it to simulate failures. */
  system: System;
  requests: string[];
  logged: string[];
  log: Log;
  settings: { configRoot: string; overlayBinary: string; overlayBinaryGiven: boolean };
  token(options?: object): Promise<string>;
  api(method: string, path: string, body?: unknown): Promise<unknown>;
  register(options?: Partial<Registration>): Promise<Organization>;
  /** Runs one command line in process, with the world's root and without the machine's engine. */
  agent(words: readonly string[], options?: { stdin?: string; env?: Record<string, string> }): Promise<Ran>;
};

export async function makeNodeWorld(
  network = "10.77.0.0/16",
  options: TestServerOptions = {},
): Promise<NodeWorld> {
  const server = await makeTestServer(options);
  const owner = await server.person("owner@company.example");
  const organization = await server.organization("acme", network);
  await server.join(organization, "owner@company.example", "owner");
  const directory = temporaryDirectory();
  const root = join(directory.path, "root");
  mkdirSync(root);
  const requests: string[] = [];
  const logged: string[] = [];
  const note = (level: string) => (message: string, fields?: object) =>
    void logged.push(`${level} ${message} ${JSON.stringify(fields ?? {})}`);
  const log = { debug: note("debug"), info: note("info"), warn: note("warn"), error: note("error") };
  const { DBUS_SESSION_BUS_ADDRESS: _, ...env } = process.env;
  const system: System = {
    ...realSystem(),
    env,
    now: () => server.clock.ms,
    machineState: async () => emptyMachine,
    async fetch(url, init = {}) {
      requests.push(`${init.method ?? "GET"} ${new URL(url).pathname}`);
      const { method, headers, body, signal } = init;
      const request = new Request(url, {
        ...(method === undefined ? {} : { method }),
        ...(headers === undefined ? {} : { headers }),
        ...(body === undefined ? {} : { body }),
        ...(signal === undefined ? {} : { signal }),
      });
      return server.app.fetch(request, { addressOf: () => "192.0.2.1" });
    },
  };
  const settings = {
    configRoot: root,
    overlayBinary: join(directory.path, "overlay"),
    overlayBinaryGiven: true,
  };
  const api = async (method: string, path: string, body?: unknown) => {
    const answer = await server.send(method, path, { token: owner, ...(body === undefined ? {} : { body }) });
    if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`);
    return answer.json;
  };
  const token = async (options: object = {}) => {
    const made = await api("POST", "/api/org/acme/registration_tokens/", options);
    return v.parse(v.object({ token: v.string() }), made).token;
  };
  return {
    server,
    owner,
    root,
    system,
    requests,
    logged,
    log,
    settings,
    token,
    api,
    async register(options = {}) {
      const registration: Registration = {
        apiBase,
        slug: "acme",
        name: "alpha",
        mode: "server",
        credential: { registrationToken: await token() },
        apiCa: undefined,
        allowPlainHttp: false,
        force: false,
        wishes: {},
        ...options,
      };
      await register(registration, settings, { system, log });
      return openOrganization(root, registration.slug);
    },
    async agent(words, { stdin = "", env: extra = {} } = {}) {
      const out: string[] = [];
      const err: string[] = [];
      const stream = (lines: string[]) => ({
        write: (text: string) => void lines.push(text),
        isTerminal: false,
        columns: 80,
      });
      const argv = [...words, "--config-root", root, "--overlay-binary", settings.overlayBinary];
      const own = { ...system, env: { ...env, ...extra }, stdout: stream(out), stderr: stream(err) };
      const stateDb = join(directory.path, "state.db");
      const places = words.includes("--state-db-path") ? [] : ["--state-db-path", stateDb];
      const status = await run([...argv, "--socket-path", join(directory.path, "cmd.sock"), ...places], {
        ...own,
        readStdin: () => Promise.resolve(stdin),
        stdinIsTerminal: false,
      });
      const stdout = out.join("");
      return {
        status,
        stdout,
        stderr: err.join(""),
        json: stdout.startsWith("{") ? JSON.parse(stdout) : undefined,
      };
    },
    async [Symbol.asyncDispose]() {
      await server[Symbol.asyncDispose]();
      directory[Symbol.dispose]();
    },
  };
}

/** Runs `agent register` in that world with a new token and --no-start. */
export async function registerByCommand(world: NodeWorld, extra: readonly string[] = []): Promise<Ran> {
  const words = [...registerWords, "--registration-token-file", "-", "--no-start", ...extra];
  return world.agent(words, { stdin: `${await world.token()}\n` });
}

/** A fake engine that records calls and returns given answers. */
export function makeControl(
  options: { running?: boolean; wanted?: boolean } = {},
): OverlayControl & { asked: string[]; fail?: Error } {
  const asked: string[] = [];
  const control: OverlayControl & { asked: string[]; fail?: Error } = {
    asked,
    running: async () => options.running ?? true,
    process: async () => undefined,
    async reload() {
      asked.push("reload");
      if (control.fail !== undefined) throw control.fail;
    },
    restart: async () => void asked.push("restart"),
    alive: async () => {},
    start: async () => void asked.push("start"),
    stop: async () => void asked.push("stop"),
    wanted: async () => options.wanted ?? true,
  };
  return control;
}

/** What following an organization uses, without an engine. Sleeps end at once, except those of the client. */
export function followDeps(
  { root, system, log }: NodeWorld,
  organization: Organization,
  control: OverlayControl = makeControl(),
): FollowDeps {
  return {
    configRoot: root,
    withClient: connectOrganization(organization, system, log),
    control,
    engine: async () => ({ ...noneInUse, isRunning: await control.running() }),
    command: "test",
    log,
    system: { ...system, sleep: async () => {} },
  };
}

export async function syncNow(
  { system, log }: NodeWorld,
  organization: Organization,
  control: OverlayControl = makeControl(),
  path?: string,
): Promise<SyncResult> {
  const engine =
    path === undefined ? noneInUse : await engineInUse(undefined, path, rememberVersions(system));
  return connectOrganization(
    organization,
    system,
    log,
  )((client) => syncOrganization(organization, { client, control, engine, command: "test", log, system }));
}

export const nodePath = (organization: Organization): string =>
  paths.node("acme", organization.config.node_id);
