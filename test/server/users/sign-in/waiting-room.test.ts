// Requests that need no credentials share one room: a crowd of networks does not keep others out of it.

import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { AppError } from "../../../../src/base/errors.ts";
import { makeRoom } from "../../../../src/server/users/sign-in/waiting-room.ts";
import { deviceRequests } from "../../../../src/server/store/tables/sessions.ts";
import { enrollments } from "../../../../src/server/store/tables/joining.ts";
import { makeTestServer, type TestServer } from "../../../support/server.ts";

let server: TestServer;
beforeAll(async () => {
  server = await makeTestServer();
});
afterAll(() => server[Symbol.asyncDispose]());
beforeEach(() =>
  server.db.write(async (tx) => {
    await tx.run("DELETE FROM device_requests");
    await tx.run("DELETE FROM enrollments");
  }),
);

let count = 0;
const times = { createdAt: 0, expiresAt: 1e15 };
describe.each(["device_requests", "enrollments"] as const)("%s", (table) => {
  const come = (addresses: readonly string[]) =>
    server.db.write(async (tx) => {
      for (const [at, address] of addresses.entries()) {
        const key = `${count++}`;
        // A crowd has its room already: only the last one asks.
        if (at === addresses.length - 1) await makeRoom(tx, table, address);
        if (table === "device_requests")
          await deviceRequests.insert(tx, { deviceHash: key, userHash: key, machine: "", address, ...times });
        else
          await enrollments.insert(tx, {
            code: key,
            tokenHash: key,
            name: "a",
            hostPublicKey: "",
            machine: "",
            address,
            ...times,
          });
      }
    });
  const outcome = (address: string) =>
    come([address]).then(
      () => "waits",
      (error: unknown) => (error instanceof AppError ? error.code : error),
    );
  const from = async (address: string) =>
    (await server.db.all(`SELECT 1 FROM ${table} WHERE address = $1`, [address])).length;
  const crowd = (sites: number, each: number, site: (at: number) => string) =>
    Array.from({ length: sites * each }, (_, at) => site(at % sites));

  test("fifty IPv4 addresses fill the room, and everybody else still gets a place", async () => {
    await come(["198.51.100.7"]);
    await come(crowd(50, 20, (at) => `203.0.113.${at}`).slice(1));
    expect(await outcome("192.0.2.1")).toBe("waits");
    expect(await outcome("2001:db8::1")).toBe("waits");
    // Who came first stays, and so does the room's size.
    expect([await from("198.51.100.7"), await from("192.0.2.1")]).toEqual([1, 1]);
    expect(await server.db.get(`SELECT count(*) AS n FROM ${table}`)).toEqual({ n: 1000 });
    expect(await outcome("203.0.113.1")).toBe("throttled");
  });

  test("a thousand addresses of one network do not, either", async () => {
    await come(crowd(1000, 1, (at) => `203.0.${at >> 8}.${at & 255}`));
    expect(await outcome("192.0.2.1")).toBe("waits");
    expect(await outcome("192.0.2.1")).toBe("waits");
  });

  test("one site has at most fifty", async () => {
    await come(Array.from({ length: 50 }, (_, at) => `2001:db8:1:${at}::1`));
    expect(await outcome("2001:db8:1:ffff::1")).toBe("throttled");
    expect(await outcome("2001:db8:2::1")).toBe("waits");
  });
});
