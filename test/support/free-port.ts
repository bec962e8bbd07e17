// A TCP port of loopback that no process uses now, for programs that cannot choose one themselves. It lies below the ports
// from which the kernel chooses, so that it is still free when the program listens.

import { randomInt } from "node:crypto";

/** Linux chooses from 32768 on. */
const [lowest, highest] = [10_000, 32_768];

export function freePort(): number {
  for (let tries = 1; ; tries++) {
    const port = randomInt(lowest, highest);
    try {
      Bun.listen({ hostname: "127.0.0.1", port, socket: { data: () => undefined } }).stop(true);
      return port;
    } catch (error) {
      if (tries === 100) throw error;
    }
  }
}
