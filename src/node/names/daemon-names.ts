// Where systemd runs no unit for names, the daemon serves them while names are on: while the file exists that
// `agent names --on` creates.

import { existsSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { messageOf } from "../../base/errors.ts";
import type { Log } from "../../base/log.ts";
import { namesPlaces } from "../../platform/names-places.ts";
import type { System } from "../../base/system.ts";
import { makeNamesReader, makePreparer } from "./names-reader.ts";
import { preparedFile } from "./prepared-names.ts";
import { afterFailureMs, makeService, onceEach } from "./name-service.ts";
import { clearWay, openWay } from "./system-resolution.ts";

/** How often the names are read; name-service.ts has the pause after a failure. */
const everyMs = 500;

type Places = { configRoot: string; stateDb: string };
type Deps = {
  system: Pick<System, "now" | "monotonic" | "sleep" | "executable" | "run" | "platform">;
  log: Log;
};

/** Returns when aborted, after it has removed the system's settings. `switchPath`: the file that exists while names are on. Never rejects. */
export async function serveNamesInDaemon(
  { configRoot, stateDb }: Places,
  switchPath: string,
  { system, log }: Deps,
  signal: AbortSignal,
): Promise<void> {
  const { way, statePath } = namesPlaces(system, stateDb);
  // Where a process of its own writes the names when there are many (names-reader.ts).
  const prepared = join(dirname(stateDb), preparedFile);
  const reader = makeNamesReader(configRoot, makePreparer(prepared, configRoot, system, log));
  const warn = onceEach(log);
  let service: ReturnType<typeof makeService> | undefined;
  const stop = async () => {
    service?.close();
    service = undefined;
    rmSync(statePath, { force: true });
    await clearWay(way);
  };
  /** Whether names were on in the last round; undefined before the first one. */
  let isOn: boolean | undefined;
  while (!signal.aborted) {
    let waitMs = everyMs;
    try {
      const isWanted = existsSync(switchPath);
      // Also in the first round: settings that a killed daemon left would lead to a resolver that does not run.
      if (!isWanted && isOn !== false) await stop();
      isOn = isWanted;
      if (isWanted) {
        service ??= makeService({ statePath, settings: openWay(way, system) }, system, log);
        await service.serve(await reader.read());
      }
      // This worked: the next failure is logged, even if it is the same.
      warn("");
    } catch (error) {
      waitMs = afterFailureMs;
      warn(messageOf(error));
    }
    await system.sleep(waitMs, signal).catch(() => undefined);
  }
  await stop().catch((error: unknown) => log.warn(messageOf(error)));
}
