// Ephemeral nodes in tests: the nodes of jobs, and time that passes while the server watches for silence.

import { beforeEach } from "bun:test";
import { endSilentNodes } from "../../src/server/nodes/contact/silence.ts";
import type { Organization } from "../../src/api/organizations.ts";
import { registerNode, registrationToken, type RegisteredNode } from "./nodes.ts";
import { useNumbered } from "./numbered.ts";
import type { TestServer } from "./server.ts";

type Made = { server: TestServer; org: Organization; admin: string };

export const minute = 60_000;
export const hour = 60 * minute;

/** A server for the file, and an organization for each test. Its background loops are stopped: each test calls what they do. */
export function useEphemeral(take: (made: Made) => void) {
  let server: TestServer;
  let org: Organization;
  const { configVersion, call, signInAgain } = useNumbered((made) => {
    ({ server, org } = made);
    take(made);
  });
  beforeEach(() => server.app.flush());
  const ephemeralToken = (fields: object = {}) =>
    registrationToken(server, org, { ephemeral: true, expires_in: "30d", ...fields });
  const rowOf = async ({ id }: { id: number }) =>
    server.db.get("SELECT state, ended_at, revoke_reason, ip FROM nodes WHERE id = $1", [id]);
  const watch = async () => {
    await server.app.services.reports.stop();
    await endSilentNodes(server.app.services);
  };
  return {
    configVersion,
    /** A request of the admin, however long ago the sign-in was. */
    async call(...of: Parameters<typeof call>) {
      await signInAgain();
      return call(...of);
    },
    ephemeralToken,
    job: async (name: string, fields: object = {}) =>
      registerNode(server, org, name, { registration_token: await ephemeralToken(fields) }),
    rowOf,
    isLive: async (node: RegisteredNode) => (await rowOf(node))?.["state"] === "active",
    async eventsOf({ id }: { id: number }) {
      const sql = "SELECT type FROM events WHERE org_id = $1 AND subject = $2 ORDER BY id";
      return (await server.db.all(sql, [org.id, `node/${id}`])).map((each) => String(each["type"]));
    },
    /** Lets time pass while the server is up: the watch looks every 5 s. */
    async pass(ms: number) {
      await watch();
      for (const end = server.clock.ms + ms; server.clock.ms < end;) {
        server.clock.ms = Math.min(end, server.clock.ms + 5000);
        await watch();
      }
    },
    watch,
  };
}
