// The command line in process, signed in at a control plane that this process serves: for tests of commands that work
// over the network. Two users exist: ada@example.org is staff, bob@example.org is not.

import { expect } from "bun:test";
import { join } from "node:path";
import { runAdmin } from "./admin.ts";
import { agentHere, serveHere } from "./in-process.ts";
import { temporaryDirectory } from "./temporary.ts";

export const password = "correct horse battery";

export async function makeRemoteAgent() {
  const umask = process.umask();
  const directory = temporaryDirectory();
  const data = join(directory.path, "data");
  const home = join(directory.path, "home");
  const serving = await serveHere(data);
  for (const user of ["ada@example.org --staff", "bob@example.org"])
    await runAdmin(data, ["user", "create", ...user.split(" "), "--password-file", "-"], password);
  const agent = (line: string, input = "", more: Record<string, string> = {}) =>
    agentHere(line.split(" "), { env: { XDG_CONFIG_HOME: home, ...more }, input });
  /** The JSON of a command that must succeed. */
  const must = async (line: string, input?: string): Promise<unknown> => {
    const { status, out, err } = await agent(`${line} --json`, input);
    expect(`${line}: ${status} ${status === 0 ? "" : out + err}`).toBe(`${line}: 0 `);
    return JSON.parse(out);
  };
  const signIn = (email = "ada@example.org") =>
    must(`login --api-base ${serving.url} --email ${email} --profile plane --password-file -`, password);
  return {
    /** As typed on a terminal. */
    onTerminal: (line: string, input = "") =>
      agentHere(line.split(" "), { env: { XDG_CONFIG_HOME: home }, input, isTerminal: true }),
    /** For files of a test. */
    path: directory.path,
    data,
    profiles: join(home, "overlay-agent/profiles"),
    serving,
    agent,
    must,
    signIn,
    async stop(): Promise<void> {
      await serving.stop();
      directory[Symbol.dispose]();
      process.umask(umask);
    },
  };
}
