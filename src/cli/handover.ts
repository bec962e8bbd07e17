// The handover of a running control plane to a new process of the same command line, usually of a new version: on SIGHUP the
// process starts its successor, which listens on the same port beside it; then the former process answers the requests that it
// has begun, and ends. If the successor does not start, nothing changes.

import { brand } from "../brand.ts";
import type { Log } from "../base/log.ts";
import type { System } from "../base/system.ts";

/** Longer than a migration of a usual database. */
const startsWithinMs = 300_000;

/** The process that this one takes over from; undefined if it starts by itself. */
export function formerProcess(env: System["env"]): number | undefined {
  const pid = Number(env[brand.successorVariable]);
  // Only its own child: the variable could be a leftover.
  return pid === process.ppid && pid > 1 ? pid : undefined;
}

/** Resolves with the process id of a successor that answers requests. Starts one at a SIGHUP, and no other beside it. */
export function handOver(system: Pick<System, "executable" | "sleep">, log: Log): Promise<number> {
  return new Promise((resolve) => {
    let isStarting = false;
    process.on("SIGHUP", () => {
      if (isStarting) return;
      isStarting = true;
      void startSuccessor(system, log).then((pid) => {
        if (pid === undefined) isStarting = false;
        else resolve(pid);
      });
    });
  });
}

async function startSuccessor(
  { executable, sleep }: Pick<System, "executable" | "sleep">,
  log: Log,
): Promise<number | undefined> {
  log.info("starting a new process that takes over");
  // The variable of the watchdog names this process.
  const { WATCHDOG_PID: _, ...env } = process.env;
  const answers = Promise.withResolvers<true>();
  const onReady = () => answers.resolve(true);
  // The successor sends it as soon as it answers requests (cli/server/serve.ts).
  process.on("SIGUSR2", onReady);
  const ended = new AbortController();
  try {
    const child = Bun.spawn([executable, ...process.argv.slice(2)], {
      env: { ...env, [brand.successorVariable]: String(process.pid) },
      stdin: "ignore",
      stdout: "inherit",
      stderr: "inherit",
    });
    const timeout = sleep(startsWithinMs, ended.signal).catch(() => undefined);
    const failure = child.exited.then(() => undefined);
    const isReady = await Promise.race([answers.promise, failure, timeout]);
    if (isReady) {
      child.unref();
      return child.pid;
    }
    child.kill("SIGKILL");
    log.error("the new process did not start; this one continues", {
      hint: "Look at the lines before this one. The former version still answers.",
    });
  } catch (error) {
    log.error("cannot start a new process; this one continues", { reason: String(error) });
  } finally {
    ended.abort(new Error("Over"));
    process.off("SIGUSR2", onReady);
  }
  return undefined;
}
