// Hundreds of nodes and their control plane on a simulated clock: after an outage, short or long, the control plane is
// not overloaded by the returning nodes.

import { afterAll, expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeClient } from "../../../src/node/contact/requests/client.ts";
import { noneInUse } from "../../../src/node/engine/engine-in-use.ts";
import { reportOf } from "../../../src/node/contact/checkin.ts";
import type { FollowDeps } from "../../../src/node/contact/follow-once.ts";
import { followOrganization } from "../../../src/node/contact/follow.ts";
import { openOrganization } from "../../../src/node/files/organizations.ts";
import { realSystem, type System } from "../../../src/base/system.ts";
import type { FindingKind } from "../../../src/protocol/finding-kinds.ts";
import { makeClock, type Clock } from "../../support/clock.ts";
import { makeControl } from "../../support/node.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const nodes = 300;
const directory = temporaryDirectory();
afterAll(() => directory[Symbol.dispose]());
const log = { debug() {}, info() {}, warn() {}, error() {} };

function register() {
  mkdirSync(join(directory.path, "acme", "current"), { recursive: true });
  const config = {
    schema: 1,
    node_id: 7,
    name: "desk",
    org_slug: "acme",
    ip_address: "10.77.0.7",
    network: "10.77.0.0/16",
    mode: "desktop",
    is_lighthouse: false,
    is_relay: false,
    config_version: 3,
    registered_at: "2026-11-20T00:00:00Z",
  };
  writeFileSync(join(directory.path, "acme", "node-config.json"), JSON.stringify(config));
  writeFileSync(join(directory.path, "acme", "current", "taken-up"), "");
  return openOrganization(directory.path, "acme");
}

const answer = {
  last_checkin_at: "2026-11-20T00:00:00Z",
  server_time: "2026-11-20T00:00:00Z",
  config_version: 3,
  config_changed: false,
  certificate_not_after: "2027-02-20T00:00:00Z",
};

/** Holds every check-in for its time. During an outage, all held requests fail. */
function makePlane(clock: Clock) {
  const plane = { down: new AbortController(), arrivals: new Array<number>() };
  const fetch: System["fetch"] = async (_, init) => {
    const { signal } = plane.down;
    const wait = Number(/\d+/.exec(init?.headers?.["Prefer"] ?? "")?.[0] ?? 0);
    if (signal.aborted) throw new Error("connection refused");
    // The first check-in after a failure is not held.
    if (wait === 0) plane.arrivals.push(clock.now());
    await clock.sleep(wait * 1000, signal);
    return Response.json(answer);
  };
  return { plane, fetch };
}

function makeDeps(clock: Clock, fetch: System["fetch"]): FollowDeps {
  const system = { ...realSystem(), now: clock.now, sleep: clock.sleep, fetch };
  const client = makeClient({ base: "https://control.example", system });
  return {
    configRoot: directory.path,
    withClient: (work) => work(client),
    control: makeControl(),
    engine: async () => noneInUse,
    command: "test",
    log,
    system,
  };
}

/** The largest number of check-ins within one second. */
function peak(times: readonly number[]): number {
  return Math.max(...times.map((from) => times.filter((at) => at >= from && at < from + 1000).length));
}

for (const [outageS, most, backWithinS] of [
  // Half of the nodes ask again after the outage, within the first second.
  [0.5, 0.7, 15],
  [600, 0.1, 65],
] as const) {
  test(`after ${outageS} s of outage all nodes return within ${backWithinS} s, at most ${most * 100} % in one second`, async () => {
    const organization = register();
    const clock = makeClock();
    const { plane, fetch } = makePlane(clock);
    const deps = makeDeps(clock, fetch);
    const end = new AbortController();
    const following = Array.from({ length: nodes }, () =>
      followOrganization(organization, deps, { signal: end.signal }),
    );
    await clock.pass(100_000);
    expect(plane.arrivals).toHaveLength(nodes);
    plane.down.abort(new Error("gone"));
    await clock.pass(outageS * 1000);
    plane.arrivals.length = 0;
    plane.down = new AbortController();
    await clock.pass(backWithinS * 1000);
    expect(plane.arrivals).toHaveLength(nodes);
    expect(peak(plane.arrivals) / nodes).toBeLessThan(most);
    end.abort(new Error("over"));
    plane.down.abort(new Error("over"));
    await clock.pass(60_000);
    await Promise.all(following);
  }, 120_000);
}

test("nodes whose held polls break ask again within a second, at different times", async () => {
  const organization = register();
  const clock = makeClock();
  const { plane, fetch } = makePlane(clock);
  const end = new AbortController();
  const following = Array.from({ length: nodes }, () =>
    followOrganization(organization, makeDeps(clock, fetch), { signal: end.signal }),
  );
  await clock.pass(100_000);
  plane.arrivals.length = 0;
  const { down } = plane;
  plane.down = new AbortController();
  const brokenAt = clock.now();
  down.abort(new Error("gone"));
  await clock.pass(1000);
  expect(plane.arrivals).toHaveLength(nodes);
  const after = plane.arrivals.map((at) => at - brokenAt);
  for (const from of [0, 300, 600]) {
    const share = after.filter((at) => at >= from && at < from + 300).length / nodes;
    expect(share).toBeGreaterThan(0.2);
  }
  end.abort(new Error("over"));
  plane.down.abort(new Error("over"));
  await clock.pass(60_000);
  await Promise.all(following);
});

test("a control plane that always announces unchanged news causes no busy loop", async () => {
  const organization = register();
  const clock = makeClock();
  let asked = 0;
  const fetch: System["fetch"] = async (url) => {
    if (!url.endsWith("/checkin/")) return new Response(null, { status: 304 });
    asked += 1;
    return Response.json({ ...answer, config_changed: true });
  };
  const end = new AbortController();
  const following = followOrganization(organization, makeDeps(clock, fetch), { signal: end.signal });
  for (let second = 0; second < 60; second++) {
    // Applying news takes real time.
    await Bun.sleep(10);
    await clock.pass(1000);
  }
  expect(asked).toBeGreaterThan(10);
  expect(asked).toBeLessThan(150);
  end.abort(new Error("over"));
  await clock.pass(60_000);
  await following;
});

for (const retryAfter of [
  "100000",
  "99999999999",
  "1e308",
  "1e999",
  "60",
  "-99999999999",
  "NaN",
  "Fri, 31 Dec 9999 23:59:59 GMT",
]) {
  test(`after Retry-After "${retryAfter}", nodes ask at least every minute, spread over time`, async () => {
    const organization = register();
    const clock = makeClock();
    const times: number[][] = Array.from({ length: 50 }, () => []);
    const end = new AbortController();
    const following = times.map((own) => {
      const fetch: System["fetch"] = async () => {
        own.push(clock.now());
        const body = { error: "Busy", code: "throttled", detail: "Later.", status_code: 429 };
        return Response.json(body, { status: 429, headers: { "Retry-After": retryAfter } });
      };
      return followOrganization(organization, makeDeps(clock, fetch), { signal: end.signal });
    });
    await clock.pass(610_000);
    const pauses = times.flatMap((own) => own.slice(1).map((at, before) => at - (own[before] ?? 0)));
    expect(Math.max(...pauses)).toBeLessThanOrEqual(60_000);
    for (const own of times) expect(own.length).toBeGreaterThan(9);
    expect(new Set(times.map(([, second]) => second)).size).toBeGreaterThan(40);
    end.abort(new Error("over"));
    await clock.pass(1000);
    await Promise.all(following);
  });
}

test("a pause that is ended early is followed by a check-in at once", async () => {
  const organization = register();
  const clock = makeClock();
  let asked = 0;
  const fetch: System["fetch"] = async () => {
    asked += 1;
    const body = { error: "Busy", code: "throttled", detail: "Later.", status_code: 429 };
    return Response.json(body, { status: 429, headers: { "Retry-After": "60" } });
  };
  const end = new AbortController();
  let endPause: (() => void) | undefined;
  const following = followOrganization(organization, makeDeps(clock, fetch), {
    signal: end.signal,
    onPause: (stop) => (endPause = stop),
  });
  await clock.pass(1);
  expect(asked).toBe(1);
  endPause?.();
  await clock.pass(1);
  expect(asked).toBe(2);
  end.abort(new Error("over"));
  await clock.pass(1);
  await following;
  expect(endPause).toBeUndefined();
});

test("a check-in reports the engine that runs, or that none does", () => {
  expect(reportOf({ ...noneInUse, isRunning: true, version: "1.10.3" })).toEqual({
    overlayVersion: "1.10.3",
    overlayState: "running",
  });
  expect(reportOf(noneInUse)).toEqual({ overlayVersion: undefined, overlayState: "stopped" });
});

test("a control plane that cannot be reached is noted, so that its silence joins that of lighthouses, until it answers", async () => {
  const clock = makeClock();
  const organization = register();
  let isDown = true;
  const noted: string[] = [];
  const health = {
    findingKind: () => undefined,
    isBusy: () => false,
    noteAnswer: () => void noted.push("answer"),
    addressRequest: () => undefined,
    noteUnreachable: () => void noted.push("silence"),
    untilChanged: () => new Promise<void>(() => {}),
  };
  const fetch: System["fetch"] = async () => {
    if (isDown) throw new Error("connection refused");
    return Response.json(answer);
  };
  const end = new AbortController();
  const following = followOrganization(
    organization,
    { ...makeDeps(clock, fetch), health },
    { signal: end.signal },
  );
  await clock.pass(5000);
  expect(new Set(noted)).toEqual(new Set(["silence"]));
  isDown = false;
  await clock.pass(90_000);
  expect(noted.at(-1)).toBe("answer");
  end.abort(new Error("over"));
  await clock.pass(60_000);
  await following;
}, 60_000);

test("what nodes find is told within eight seconds, spread over three, and what flickers every five at most", async () => {
  const organization = register();
  const clock = makeClock();
  const arrivals: { at: number; state: unknown }[] = [];
  const fetch: System["fetch"] = async (_, init) => {
    const wait = Number(/\d+/.exec(init?.headers?.["Prefer"] ?? "")?.[0] ?? 0);
    arrivals.push({ at: clock.now(), state: JSON.parse(String(init?.body)).overlay_state });
    await clock.sleep(wait * 1000, init?.signal);
    return Response.json(answer);
  };
  let kind: FindingKind | undefined;
  const waiting = new Set<() => void>();
  const find = (found: FindingKind | undefined) => {
    kind = found;
    for (const wake of waiting) wake();
    waiting.clear();
  };
  const health = {
    findingKind: () => kind,
    isBusy: () => false,
    noteAnswer() {},
    addressRequest: () => undefined,
    noteUnreachable() {},
    untilChanged: () => new Promise<void>((resolve) => void waiting.add(resolve)),
  };
  const deps = { ...makeDeps(clock, fetch), control: makeControl({ wanted: false }), health };
  const isRunning = { ...noneInUse, isRunning: true };
  const end = new AbortController();
  const following = Array.from({ length: nodes }, () =>
    followOrganization(organization, { ...deps, engine: async () => isRunning }, { signal: end.signal }),
  );
  await clock.pass(20_000);
  arrivals.length = 0;
  find("lighthouses_silent");
  await clock.pass(8000);
  expect(arrivals).toHaveLength(nodes);
  expect(new Set(arrivals.map(({ state }) => state))).toEqual(new Set(["lighthouses_silent"]));
  expect(peak(arrivals.map(({ at }) => at)) / nodes).toBeLessThan(0.5);
  arrivals.length = 0;
  for (let second = 0; second < 30; second++) {
    find(second % 2 === 0 ? undefined : "lighthouses_silent");
    await clock.pass(1000);
  }
  expect(arrivals.length / nodes).toBeLessThanOrEqual(6);
  end.abort(new Error("over"));
  await clock.pass(60_000);
  await Promise.all(following);
}, 60_000);
