import { expect, test } from "bun:test";
import { realSystem } from "../../../src/base/system.ts";
import { useExit } from "../../../src/node/exit/use-exit.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

test("an exit whose rules could not be taken away is left in the next round", async () => {
  using directory = temporaryDirectory();
  const stop = new AbortController();
  const warnings: unknown[] = [];
  /** How many programs each round started: two rounds fail, the third succeeds. */
  const started = [0];
  const round = () => started.length;
  const system = {
    ...realSystem(),
    platform: "linux" as const,
    run: () => {
      started[round() - 1] = (started.at(-1) ?? 0) + 1;
      const status = round() < 3 ? 1 : 0;
      return Promise.resolve({ status, stdout: "[]", stderr: "Operation not permitted", timedOut: false });
    },
    sleep: () => {
      if (round() === 4) stop.abort();
      else started.push(0);
      return Promise.resolve();
    },
  };
  const quiet = (): void => undefined;
  const log = { debug: quiet, info: quiet, error: quiet, warn: (...of: unknown[]) => warnings.push(of) };
  const control = { reload: () => Promise.reject(new Error("no engine runs")) };
  const openEcho = () => Promise.reject(new Error("no exit is asked"));
  const place = { slug: "acme", directory: directory.path };
  await useExit(place, { command: "agent", control, openEcho, log, system }, stop.signal);
  const reason: unknown = expect.stringContaining("not permitted");
  expect(warnings).toEqual([["Cannot leave the exit for now", { team: "acme", reason }]]);
  expect(started.slice(0, 3).map((count) => count > 0)).toEqual([true, true, true]);
});
