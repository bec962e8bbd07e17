// Which servers are connected to the database now, by the names of their sessions.

import { brand } from "../../../brand.ts";
import type { Reader } from "../database.ts";
import { queryNumber } from "../table.ts";

/** How often a server looks for servers of release 0.1.0. */
const lookForFormerMs = 2000;

/** The name of a session, by which `connectedServers` finds those of servers. `visitor`: a command on the data. */
export function sessionName(role: "server" | "visitor"): string {
  return role === "server" ? `${brand.id} replica` : `${brand.id} ${role}`;
}

/** The name that servers of release 0.1.0 have. */
const formerName = `${brand.id} server`;

const sessionsNamed = `SELECT count(*) AS n FROM pg_stat_activity
  WHERE datname = current_database() AND application_name IN ($1, $2)`;

/** How many servers are connected now. */
export function connectedServers(reader: Reader): Promise<number> {
  return queryNumber(reader, sessionsNamed, [sessionName("server"), formerName]);
}

/**
 * Whether a server of release 0.1.0 is connected: it reads notices in the order of their ids, so all writes must commit
 * in this order, one at a time. True until the first look.
 */
export function watchFormer(reader: Reader) {
  let isConnected = true;
  let timer: ReturnType<typeof setInterval> | undefined;
  const look = async () => {
    // The statement has places for two names.
    isConnected = (await queryNumber(reader, sessionsNamed, [formerName, formerName])) > 0;
  };
  return {
    look,
    isConnected: () => isConnected,
    start() {
      // A failed look changes nothing.
      timer = setInterval(() => void look().catch(() => undefined), lookForFormerMs);
      timer.unref();
    },
    stop: () => clearInterval(timer),
  };
}
