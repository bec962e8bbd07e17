// Pings an address from a host of the demo's network and records the time of each reply.

import { defer } from "../../base/defer.ts";
import { AppError } from "../../base/errors.ts";
import { childEnvironment, type System } from "../../base/system.ts";
import { requireProgram, type Network } from "./network.ts";

export type Pings = {
  /** performance.now() of the first reply; rejects after `ms`, or when the pings were stopped. */
  first(ms: number): Promise<number>;
  /** performance.now() of the latest reply; undefined before the first. */
  last(): number | undefined;
  stop(): Promise<void>;
};

/** Milliseconds between two pings. */
const everyMs = 20;

/** Pings until `stop`, at the latest until `ended` is aborted. */
export function startPings(
  network: Network,
  host: string,
  address: string,
  system: Pick<System, "env" | "sleep">,
  ended: AbortSignal,
): Pings {
  const argv = network.inside(host, [requireProgram("ping"), "-n", "-i", String(everyMs / 1000), address]);
  const env = { ...childEnvironment(system.env), LC_ALL: "C" };
  let last: number | undefined;
  const { promise: firstReply, resolve } = Promise.withResolvers<number>();
  const start = () => Bun.spawn(argv, { env, stdin: "ignore", stdout: "pipe", stderr: "ignore" });
  let child = start();
  const end = new AbortController();
  const stop = () => {
    end.abort();
    child.kill("SIGKILL");
  };
  ended.addEventListener("abort", stop);
  const reading = (async () => {
    // The engine reports that it is active just before its route exists; without a route ping ends at once.
    while (!end.signal.aborted) {
      for await (const chunk of child.stdout) {
        if (!new TextDecoder().decode(chunk).includes("bytes from")) continue;
        last = performance.now();
        resolve(last);
      }
      await child.exited;
      await system.sleep(2);
      if (!end.signal.aborted) child = start();
    }
  })();
  return {
    first: async (ms) => {
      const timer = new AbortController();
      const late = system.sleep(ms, AbortSignal.any([timer.signal, end.signal])).then(() => {
        throw new AppError("failed", `${host} got no reply from ${address} within ${ms} ms`);
      });
      using _ = defer(() => timer.abort());
      return await Promise.race([firstReply, late]);
    },
    last: () => last,
    stop: async () => {
      ended.removeEventListener("abort", stop);
      stop();
      await reading;
    },
  };
}
