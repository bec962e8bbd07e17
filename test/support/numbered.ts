// A test file with one server, and with an organization of its own for each test.

import { afterAll, beforeAll, beforeEach } from "bun:test";
import type { Organization } from "../../src/server/policy/organizations.ts";
import { makeNumbered } from "./people.ts";
import { makeTestServer, type TestServer, type TestServerOptions } from "./server.ts";

/** `count`: the number of the organization and of its admin. */
type Made = { server: TestServer; org: Organization; admin: string; count: number };

/** Makes a server for the file and, before each test, another organization with its admin. */
export function useNumbered(take: (made: Made) => void, options?: TestServerOptions): void {
  let server: TestServer;
  let count = 0;
  beforeAll(async () => {
    server = await makeTestServer(options);
  });
  beforeEach(async () => {
    count++;
    take({ server, ...(await makeNumbered(server, count)), count });
  });
  afterAll(() => server[Symbol.asyncDispose]());
}
