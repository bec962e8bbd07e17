// Sends a client of the socket the new lines of an engine's log.

import { messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { System } from "../base/system.ts";
import type { Client } from "./ipc/answer-line.ts";

const followEveryMs = 250;
/** How much of a followed log may wait for the client to read it. */
const burstBytes = 256 * 1024;
/** The logs, by slug, that each client follows. */
const followed = new WeakMap<Client, Set<string>>();

/** Sends new lines until the client is gone. A client that follows a log twice gets its lines once. */
export function followLog(
  client: Client,
  slug: string,
  tail: { read(): string[] },
  deps: { system: Pick<System, "sleep">; log: Log },
): void {
  const followedByClient = followed.get(client) ?? new Set();
  if (followedByClient.has(slug)) return;
  followed.set(client, followedByClient.add(slug));
  client.stay();
  /** Lines that the client has no room for yet. */
  let waiting: string[] = [];
  void untilGone(client, deps, () => {
    // A burst is sent as fast as the client reads, so that it is not disconnected.
    if (waiting.length === 0) waiting = tail.read();
    while (waiting.length > 0 && client.unread() < burstBytes) {
      client.notify({ event: "log", team: slug, line: waiting.shift() ?? "" });
    }
  });
}

async function untilGone(
  client: Client,
  { system, log }: Parameters<typeof followLog>[3],
  sendNew: () => void,
): Promise<void> {
  let isFailing = false;
  for (;;) {
    // The sleep is rejected when the client goes.
    await system.sleep(followEveryMs, client.gone).catch(() => {});
    if (client.gone.aborted) return;
    try {
      sendNew();
      isFailing = false;
    } catch (error) {
      // The client goes on to wait for lines, so this is tried again.
      if (!isFailing)
        log.warn("Cannot read a log that a client follows; trying again", { reason: messageOf(error) });
      isFailing = true;
    }
  }
}
