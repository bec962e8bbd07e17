// How long `agent setup` waits for its own control plane.

import { expect, test } from "bun:test";
import { reachableBase } from "../../../src/cli/server/setup-lighthouse.ts";

test("the wait for a certificate ends in time, also if each attempt at a closed port lasts its time-out", async () => {
  let now = 0;
  const system = {
    monotonic: () => now,
    sleep: (ms: number) => Promise.resolve(void (now += ms)),
    fetch: () => {
      now += 10_000;
      return Promise.reject(new Error("No answer"));
    },
  };
  const key = { apiBase: "https://control.example.org" };
  const request = { tls: "acme", listen: { hostname: "::", port: 443 } } as const;
  const failure: unknown = await reachableBase(key, request, { system }).catch(String);
  expect(failure).toContain("does not answer at https://control.example.org");
  // Two minutes, the attempt that was under way, and the last one.
  expect(now).toBeGreaterThanOrEqual(120_000);
  expect(now).toBeLessThan(200_000);
});
