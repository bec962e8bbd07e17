// Notifies systemd (sd_notify(3)): ready, alive, stopping. Does nothing without NOTIFY_SOCKET. "Alive" is sent only after
// the service has checked itself.

import { messageOf } from "../../base/errors.ts";
import type { Log } from "../../base/log.ts";
import type { System } from "../../base/system.ts";
import type { Libc } from "../libc.ts";

export type Notifier = {
  ready(): void;
  stopping(): void;
  /** Tells systemd the unit's new main process. */
  mainPid(pid: number): void;
  status(text: string): void;
  /** Runs the check at a third of the watchdog's time until the signal aborts. After a failed check it sends nothing. */
  feedWatchdog(check: () => Promise<void>, signal: AbortSignal): Promise<void>;
};

export function makeNotifier(
  libc: Pick<Libc, "sendDatagram">,
  system: Pick<System, "env" | "sleep">,
  log: Log,
): Notifier {
  const address = system.env["NOTIFY_SOCKET"];
  const send = (text: string) => {
    if (address !== undefined && !libc.sendDatagram(address, text))
      log.debug("Cannot notify systemd", { text });
  };
  return {
    ready: () => send("READY=1"),
    stopping: () => send("STOPPING=1"),
    mainPid: (pid) => send(`MAINPID=${pid}`),
    status: (text) => send(`STATUS=${text}`),
    async feedWatchdog(check, signal) {
      const everyMs = watchdogMs(system.env) / 3;
      if (everyMs === 0) return;
      while (!signal.aborted) {
        try {
          await check();
          send("WATCHDOG=1");
        } catch (error) {
          log.error("The service's check of itself failed", { error: messageOf(error) });
        }
        await system.sleep(everyMs, signal).catch(() => undefined);
      }
    },
  };
}

/** 0 without a watchdog, or if it watches another process. */
function watchdogMs(env: System["env"]): number {
  const forUs = env["WATCHDOG_PID"] === undefined || env["WATCHDOG_PID"] === String(process.pid);
  const microseconds = Number(env["WATCHDOG_USEC"] ?? "0");
  return forUs && Number.isFinite(microseconds) ? microseconds / 1000 : 0;
}
