// Runs `agent serve` and the command line in this process, on one data directory.

import { run } from "../../src/cli/run.ts";
import { makeLog } from "../../src/base/log.ts";
import { startServer, type ServeOptions, type Serving } from "../../src/server/serve.ts";
import { realSystem, type System } from "../../src/base/system.ts";

export async function serveHere(
  dataDirectory: string,
  more: Partial<ServeOptions> = {},
  { system = realSystem(), log = [] }: { system?: System; log?: string[] } = {},
): Promise<Serving> {
  const options: ServeOptions = {
    dataDirectory,
    listen: { hostname: "127.0.0.1", port: 0 },
    allowPlainHttp: false,
    trustedProxies: [],
    accessLifetimeS: 900,
    refreshLifetimeS: 86_400,
    ...more,
  };
  const write = (line: string) => void log.push(line);
  return startServer(options, {
    system,
    log: makeLog({ verbose: false, write, now: Date.now, stamped: true }),
  });
}

/** Runs one command line. */
export async function agentHere(
  args: readonly string[],
  {
    env = {},
    input = "",
    isTerminal = false,
  }: { env?: Record<string, string>; input?: string; isTerminal?: boolean } = {},
): Promise<{ status: number; out: string; err: string }> {
  let [out, err] = ["", ""];
  const status = await run(args, {
    ...realSystem(),
    env,
    stdout: { write: (text) => void (out += text), isTerminal, columns: 80 },
    stderr: { write: (text) => void (err += text), isTerminal, columns: 80 },
    readStdin: async () => input,
    stdinIsTerminal: false,
  });
  return { status, out, err };
}
