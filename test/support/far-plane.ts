// A control plane in a host of a test network, for machines that reach it only through that network.

import * as v from "valibot";
import { tokenPairsApi } from "../../src/api/sessions.ts";
import { TokenPair } from "../../src/protocol/sign-in.ts";
import { agent, runAgent } from "./agent.ts";
import type { Host } from "./namespaces.ts";
import { owner } from "./overlay.ts";

export type FarPlane = AsyncDisposable & {
  url: string;
  slug: string;
  /** Sends a request from inside the network with the owner's token. Returns the JSON. Throws on a refusal. */
  api(method: string, path: string, body?: unknown): Promise<unknown>;
  makeToken(flags?: readonly string[]): Promise<string>;
  /** A join key. */
  makeKey(flags?: readonly string[]): Promise<string>;
  start(): Promise<void>;
  stop(): Promise<void>;
};

const requestScript = `
const [method, url, token, body] = process.argv.slice(1);
const headers = { "Content-Type": "application/json", ...(token ? { Authorization: "Bearer " + token } : {}) };
const response = await fetch(url, { method, headers, body: body || undefined });
process.stdout.write(await response.text());
process.exitCode = response.ok ? 0 : 1;
`;

/** Starts `agent serve` in the host, with an organization 10.77.0.0/16. */
export async function startFarPlane(
  host: Host,
  dataDirectory: string,
  slug = "acme",
  orgFlags: readonly string[] = [],
): Promise<FarPlane> {
  const url = `http://${host.address}:8420`;
  const listen = ["--listen", `${host.address}:8420`, "--public-url", url, "--allow-plain-http"];
  let child: Bun.Subprocess | undefined;
  const request = async (method: string, path: string, token: string, body: unknown) => {
    const text = body === undefined ? "" : JSON.stringify(body);
    const argv = [process.execPath, "-e", requestScript, method, url + path, token, text];
    const answer = Bun.spawn(host.inside(argv), { stdout: "pipe", stderr: "pipe" });
    const [said, status] = await Promise.all([new Response(answer.stdout).text(), answer.exited]);
    if (status !== 0) throw new Error(`${method} ${path}: ${said}`);
    return said === "" ? undefined : (JSON.parse(said) as unknown);
  };
  const start = async () => {
    child = host.spawn([agent, "serve", "--data-dir", dataDirectory, ...listen]);
    for (let tries = 0; ; tries++) {
      const signIn = await request("POST", tokenPairsApi.create.path, "", owner).catch(String);
      if (typeof signIn !== "string") return;
      if (tries > 100 || child.exitCode !== null)
        throw new Error(`The control plane does not answer: ${signIn}`);
      await Bun.sleep(50);
    }
  };
  const stop = async () => {
    child?.kill("SIGTERM");
    await child?.exited;
  };
  const admin = async (args: readonly string[], input = "") => {
    const { status, stdout, stderr } = await runAgent(["admin", ...args, "--data-dir", dataDirectory], {
      input,
    });
    if (status !== 0) throw new Error(`agent admin ${args.join(" ")}: exit ${status}\n${stdout}${stderr}`);
    return stdout;
  };
  const createToken = async (flags: readonly string[]) => {
    const printed: unknown = JSON.parse(await admin(["token", "create", slug, ...flags, "--json"]));
    return v.parse(v.object({ token: v.string(), join_key: v.string() }), printed);
  };
  await admin(["user", "create", owner.email, "--password-file", "-"], owner.password);
  await admin(["org", "create", slug, "--network", "10.77.0.0/16", "--owner", owner.email, ...orgFlags]);
  await start();
  return {
    url,
    slug,
    async api(method, path, body) {
      const pair = v.parse(TokenPair, await request("POST", tokenPairsApi.create.path, "", owner));
      return request(method, path, pair.access, body);
    },
    makeToken: async (flags = []) => (await createToken(flags)).token,
    makeKey: async (flags = []) => (await createToken(flags)).join_key,
    start,
    stop,
    [Symbol.asyncDispose]: stop,
  };
}
