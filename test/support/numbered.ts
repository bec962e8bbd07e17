// A test file with one server, and with an organization of its own for each test.

import { afterAll, beforeAll, beforeEach } from "bun:test";
import type { Organization } from "../../src/api/organizations.ts";
import type { Node } from "../../src/protocol/node.ts";
import { countOf, nodeFrom } from "./nodes.ts";
import { makeNumbered, numberedEmail } from "./people.ts";
import { makeTestServer, type Answer, type TestServer, type TestServerOptions } from "./server.ts";

/** `count`: the number of the organization and of its admin. */
type Made = { server: TestServer; org: Organization; admin: string; count: number };

/** What tests do in the organization of the running test. */
export type Numbered = {
  /** A request of the admin; `path` is relative to the organization. */
  call(method: string, path: string, body?: unknown): Promise<Answer>;
  /** The same, relative to a node. */
  callNode(method: string, node: { id: number }, path?: string, body?: unknown): Promise<Answer>;
  showNode(node: { id: number }): Promise<Node>;
  configVersion(): Promise<number>;
  /** Resolves when the poll waits: the request has finished all its reads. */
  parked(node: { id: number }): Promise<void>;
  /** Needed when the clock has passed the end of the admin's access token. */
  signInAgain(): Promise<void>;
};

/** Makes a server for the file and, before each test, another organization with its admin. */
export function useNumbered(take: (made: Made) => void, options?: TestServerOptions): Numbered {
  let count = 0;
  let made: Made;
  let server: TestServer;
  beforeAll(async () => {
    server = await makeTestServer(options);
  });
  beforeEach(async () => {
    count++;
    made = { server, ...(await makeNumbered(server, count)), count };
    take(made);
  });
  afterAll(() => server[Symbol.asyncDispose]());
  const call: Numbered["call"] = (method, path, body) =>
    server.send(method, `/api/org/${made.org.slug}/${path}`, { token: made.admin, body });
  const callNode: Numbered["callNode"] = (method, { id }, path = "", body?: unknown) =>
    call(method, `nodes/${id}/${path}`, body);
  return {
    call,
    callNode,
    showNode: async (node) => nodeFrom(await callNode("GET", node)),
    configVersion: () =>
      countOf(server, "SELECT config_version AS n FROM organizations WHERE id = $1", made.org.id),
    async parked({ id }) {
      while (!server.app.services.changes.isHeld(made.org.id, id)) await Bun.sleep(1);
      await Bun.sleep(5);
    },
    async signInAgain() {
      const row = await server.db.get("SELECT id FROM users WHERE email = $1", [numberedEmail(count)]);
      made.admin = (await server.app.services.sessions.start(Number(row?.["id"]))).access;
      take(made);
    },
  };
}
