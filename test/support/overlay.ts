// The setup of end-to-end tests: an organization on a running control plane, nodes registered by the compiled executable,
// and engines in namespaces.

import { closeSync, mkdirSync, openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { tokenPairsApi } from "../../src/api/sessions.ts";
import { TokenPair } from "../../src/protocol/sign-in.ts";
import { agentJson, runAgent, type AgentResult, type ControlPlane } from "./agent.ts";
import type { Host } from "./namespaces.ts";

export const owner = { email: "owner@company.example", password: "correct horse battery staple" };

export type Organization = {
  slug: string;
  plane: ControlPlane;
  /** Sends a request with the owner's token, another one, or none. */
  api(method: string, path: string, body?: unknown, bearer?: string): Promise<Response>;
  /** A registration token. */
  makeToken(flags?: readonly string[]): Promise<string>;
};

async function must(plane: ControlPlane, args: readonly string[], input?: string): Promise<string> {
  const { status, stdout, stderr } = await plane.admin(args, input);
  if (status !== 0) throw new Error(`agent admin ${args.join(" ")}: exit ${status}\n${stdout}${stderr}`);
  return stdout;
}

/** Creates the user `owner` with `agent admin`, if it does not exist. */
export async function makeOwner(plane: ControlPlane): Promise<void> {
  const words = ["user", "create", owner.email, "--password-file", "-"];
  const { status, stdout, stderr } = await plane.admin(words, owner.password);
  if (status !== 0 && !stderr.includes("There is already a user"))
    throw new Error(`agent admin ${words.join(" ")}: exit ${status}\n${stdout}${stderr}`);
}

/** Creates an owner and an organization with `agent admin`, and signs in. */
export async function makeOrganization(
  plane: ControlPlane,
  slug = "acme",
  network = "10.77.0.0/16",
  flags: readonly string[] = [],
): Promise<Organization> {
  await makeOwner(plane);
  await must(plane, ["org", "create", slug, "--network", network, "--owner", owner.email, ...flags]);
  return signIn(plane, slug);
}

/** The owner's access to an existing organization. */
export async function signIn(plane: ControlPlane, slug: string): Promise<Organization> {
  const send = (method: string, path: string, body: unknown, bearer: string | undefined) =>
    fetch(plane.url + path, {
      method,
      headers: {
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
        ...(bearer === undefined ? {} : { Authorization: `Bearer ${bearer}` }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  const signedIn = v.parse(
    TokenPair,
    await (await send("POST", tokenPairsApi.create.path, owner, undefined)).json(),
  );
  return {
    slug,
    plane,
    api: (method, path, body, bearer = signedIn.access) => send(method, path, body, bearer),
    makeToken: async (flags = []) => {
      const printed: unknown = JSON.parse(await must(plane, ["token", "create", slug, ...flags, "--json"]));
      return v.parse(v.object({ token: v.string() }), printed).token;
    },
  };
}

export const Registered = v.object({
  org_slug: v.string(),
  node_id: v.number(),
  name: v.string(),
  ip_address: v.string(),
  mode: v.string(),
  directory: v.string(),
  started: v.boolean(),
});
export type Registered = v.InferOutput<typeof Registered>;

/** Arguments and standard input of `agent register` with a registration token. */
export function registerArguments(
  organization: Pick<Organization, "slug"> & { plane: { url: string } },
  configRoot: string,
  name: string,
  flags: readonly string[] = [],
): string[] {
  const { slug, plane } = organization;
  const target = ["--api-base", plane.url, "--org-slug", slug, "--node-name", name];
  const here = ["--config-root", configRoot, "--mode", "server", "--no-start"];
  return ["register", ...target, "--registration-token-file", "-", ...here, ...flags];
}

/** Registers a node. Throws if it is refused. */
export async function registerNode(
  organization: Organization,
  configRoot: string,
  name: string,
  token: string,
  flags: readonly string[] = [],
): Promise<Registered> {
  mkdirSync(configRoot, { recursive: true });
  const args = registerArguments(organization, configRoot, name, flags);
  return v.parse(Registered, await agentJson(args, { input: token }));
}

/** Registers a node, which may be refused. */
export function tryRegister(
  organization: Pick<Organization, "slug"> & { plane: { url: string } },
  configRoot: string,
  name: string,
  token: string,
  flags: readonly string[] = [],
): Promise<AgentResult> {
  return runAgent(registerArguments(organization, configRoot, name, [...flags, "--json"]), { input: token });
}

export type RunningEngine = Disposable & {
  pid: number;
  /** Resolves when it has ended: then its port is free. */
  exited: Promise<unknown>;
  log(): string;
  hangUp(): void;
  /** Stops the engine cleanly, like a service: it notifies its peers. */
  stop(): Promise<void>;
};

/** Runs the engine in a host on an organization's directory. Resolves when it is active. */
export async function startEngine(host: Host, binary: string, directory: string): Promise<RunningEngine> {
  const path = join(directory, `../engine-${host.name}.log`);
  const fd = openSync(path, "a");
  const child = host.spawn([binary, "-config", join(directory, "config.yml")], {
    stdout: fd,
    cwd: directory,
  });
  closeSync(fd);
  const log = () => readFileSync(path, "utf8");
  for (let waited = 0; !log().includes("Nebula interface is active"); waited += 10) {
    if (child.exitCode !== null || waited > 60_000) throw new Error(`The engine did not start:\n${log()}`);
    await Bun.sleep(10);
  }
  return {
    // nsenter becomes the engine.
    pid: child.pid,
    exited: child.exited,
    log,
    hangUp: () => child.kill("SIGHUP"),
    stop: async () => {
      child.kill("SIGTERM");
      await child.exited;
    },
    [Symbol.dispose]: () => child.kill("SIGKILL"),
  };
}
