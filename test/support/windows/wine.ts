// Runs Windows programs under Wine, with one prefix (a separate Windows) for each test file. Wine 8 lacks a library that
// Bun needs for a single function. Another library has this function under another name.

import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "../../../build.ts";
import { cleanEnvironment, isOlderThanSources, root, type AgentResult } from "../agent.ts";
import { installMissing, runSync } from "../debian.ts";

const wine = "/usr/lib/wine/wine64";
const wineserver = "/usr/lib/wine/wineserver64";
const binutils = "/usr/bin/x86_64-w64-mingw32-";
const target = "bun-windows-x64";

/** The reason why there is no Wine here, or undefined. */
export const missing = installMissing([wine, wineserver, `${binutils}ld`, `${binutils}dlltool`]);

export type Wine = Disposable & {
  /** Its drive C: as a directory here. */
  driveC: string;
  /** Starts a program, which the caller ends. */
  spawn(argv: readonly string[], output: number | "ignore", env?: Record<string, string>): Bun.Subprocess;
  run(
    argv: readonly string[],
    options?: { input?: string; env?: Record<string, string>; timeoutMs?: number },
  ): Promise<AgentResult>;
};

/** The path for programs under Wine. */
export const windowsPath = (path: string): string => `Z:${path.replaceAll("/", "\\")}`;

/** `inside` wraps the server, which holds all sockets: with it, they are in a network of its own. */
export function openWine(inside = (argv: string[]) => argv): Wine {
  const prefix = mkdtempSync(join(tmpdir(), "agent-wine-"));
  const own = {
    WINEPREFIX: prefix,
    WINEDEBUG: "-all",
    WINEDLLOVERRIDES: "mscoree,mshtml=",
    HOME: prefix,
    // The server makes a directory there for its socket, and leaves it.
    TMPDIR: prefix,
  };
  const environment = (env: Record<string, string> = {}) => cleanEnvironment({ ...own, ...env });
  // Programs that these leave running would keep a pipe open.
  const must = (argv: string[]) => {
    const quiet = { stdin: "ignore", stdout: "ignore", stderr: "ignore" } as const;
    const { exitCode } = Bun.spawnSync(argv, { env: environment(), ...quiet, timeout: 120_000 });
    if (exitCode !== 0) throw new Error(`${argv.join(" ")}: exit ${exitCode}`);
  };
  // One server for all programs. It ends on request or, after killed tests, when it is idle.
  must(inside([wineserver, "-p60"]));
  must([wine, "wineboot", "-i"]);
  must([wine, "reg", "add", "HKCU\\Software\\Wine", "/v", "Version", "/d", "win10", "/f"]);
  cpSync(randomLibrary(prefix), join(prefix, "drive_c/windows/system32/bcryptprimitives.dll"));
  return {
    driveC: join(prefix, "drive_c"),
    spawn: (argv, output, env) =>
      Bun.spawn([wine, ...argv], { env: environment(env), stdin: "ignore", stdout: output, stderr: output }),
    async run(argv, { input = "", env, timeoutMs = 120_000 } = {}) {
      const child = Bun.spawn([wine, ...argv], {
        env: environment(env),
        stdin: new Blob([input]),
        stdout: "pipe",
        stderr: "pipe",
        timeout: timeoutMs,
        killSignal: "SIGKILL",
      });
      const [stdout, stderr, status] = await Promise.all([
        new Response(child.stdout).text(),
        new Response(child.stderr).text(),
        child.exited,
      ]);
      return { status, stdout, stderr };
    },
    [Symbol.dispose]() {
      Bun.spawnSync([wineserver, "-k"], { env: environment(), stdout: "ignore", stderr: "ignore" });
      // Some programs outlive their server.
      killPrograms(prefix);
      rmSync(prefix, { recursive: true, force: true });
    },
  };
}

/** Kills the processes of this prefix alone. */
function killPrograms(prefix: string): void {
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const environment = readFileSync(`/proc/${pid}/environ`, "latin1").split("\0");
      if (environment.includes(`WINEPREFIX=${prefix}`)) process.kill(Number(pid), "SIGKILL");
    } catch {
      // It has ended.
    }
  }
}

/** bcryptprimitives.dll: a library without code, whose ProcessPrng is SystemFunction036 of advapi32.dll. */
function randomLibrary(directory: string): string {
  const [definition, exported, library] = ["def", "exp", "dll"].map((end) =>
    join(directory, `random.${end}`),
  );
  if (definition === undefined || exported === undefined || library === undefined) throw new Error("no name");
  writeFileSync(
    definition,
    "LIBRARY bcryptprimitives.dll\nEXPORTS\n  ProcessPrng = advapi32.SystemFunction036\n",
  );
  runSync([`${binutils}dlltool`, "-d", definition, "-e", exported]);
  runSync([`${binutils}ld`, "--shared", "-o", library, exported]);
  return library;
}

/** Builds dist/windows/agent.exe and the tests' programs beside it, if a source is newer. */
export async function buildForWindows(): Promise<{
  agent: string;
  engine: string;
  tool: string;
  flood: string;
}> {
  const directory = join(root, "dist/windows");
  mkdirSync(directory, { recursive: true });
  const agent = join(directory, "agent.exe");
  if (isOlderThanSources(agent)) {
    const beside = join(directory, `.agent-${process.pid}.exe`);
    await build(target, beside);
    renameSync(beside, agent);
  }
  const own = (script: string) => {
    const name = script.replace(/^.*\//, "").slice(0, -3);
    const [beside, outfile] = [`.${name}-${process.pid}.exe`, `${name}.exe`].map((each) =>
      join(directory, each),
    );
    if (beside === undefined || outfile === undefined) throw new Error("no name");
    const source = join(import.meta.dir, script);
    runSync([process.execPath, "build", "--compile", `--target=${target}`, source, "--outfile", beside]);
    renameSync(beside, outfile);
    return outfile;
  };
  return {
    agent,
    engine: own("stand-in-engine.ts"),
    tool: own("tool.ts"),
    flood: own("../ipc-flood.ts"),
  };
}
