import { expect, test } from "bun:test";
import { statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeFinding } from "../../../src/node/health/findings.ts";
import type { Health } from "../../../src/node/health/verdict.ts";
import type { PlaneFacts } from "../../../src/node/health/assessment.ts";
import { NamedPeers } from "../../../src/node/health/named-peers.ts";
import { Prober } from "../../../src/node/health/prober.ts";
import {
  readSavedHealth,
  savedHealthDirectory,
  writeSavedHealth,
} from "../../../src/node/health/saved-health.ts";
import { exchangeProbes, restoreProbes } from "../../../src/node/health/saved-probes.ts";
import type { OpenEcho } from "../../../src/platform/network/echo-socket.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const now = Date.parse("2026-11-22T12:00:00Z");
const health: Health = {
  verdict: "degraded",
  reason: "The lighthouse hub does not answer",
  lighthouses: { answering: 0, of: 1 },
  tunnels: { direct: 1, relayed: 0 },
  broken: ["hub"],
  engine_version: "1.12.0",
  checked_at: "2026-11-22T12:00:00Z",
};
const saved = { written_at: "2026-11-22T12:00:00Z", last_checkin_at: "2026-11-22T11:59:00Z", health };

test("what was written is read again; after 90 s only the check-in still counts", () => {
  using directory = temporaryDirectory();
  writeSavedHealth(directory.path, "acme", saved);
  expect(readSavedHealth(directory.path, "acme", now + 60_000)).toEqual(saved);
  const { health: _, ...rest } = saved;
  expect(readSavedHealth(directory.path, "acme", now + 120_000)).toEqual(rest);
  expect(readSavedHealth(directory.path, "acme", now - 120_000)).toEqual(rest);
});

test("a finding that names many peers with long names is read again", () => {
  using directory = temporaryDirectory();
  const names = Array.from({ length: 20 }, (_, at) => `${"n".repeat(252)}${at}`);
  const one = makeFinding("peers_silent", "acme", `No answer from ${names.join(", ")}`);
  const long = { ...saved, health: { ...health, findings: [one], broken: names } };
  writeSavedHealth(directory.path, "acme", long);
  expect(readSavedHealth(directory.path, "acme", now)).toEqual(long);
});

test("a missing, empty or foreign file is none", () => {
  using directory = temporaryDirectory();
  expect(readSavedHealth(directory.path, "acme", now)).toBeUndefined();
  for (const text of ["", "{}", '{"written_at":1}']) {
    writeFileSync(join(directory.path, "acme.json"), text);
    expect(readSavedHealth(directory.path, "acme", now)).toBeUndefined();
  }
});

test("another configuration root has a directory of its own", () => {
  expect(savedHealthDirectory("/etc/overlay-agent", "linux")).toBe("/run/overlay-agent-health");
  expect(savedHealthDirectory("/tmp/a", "linux")).not.toBe(savedHealthDirectory("/tmp/b", "linux"));
});

/** Processes on one machine, each with a monotonic clock of its own; every peer answers at once. */
function makeMachine(directory: string) {
  let wall = now;
  const open: OpenEcho = async (_, onReply) => ({
    send: (_to, sequence, payload) => (queueMicrotask(() => onReply({ sequence, payload })), true),
    close() {},
  });
  return {
    pass: (ms: number) => void (wall += ms),
    start() {
      const startedAt = wall;
      const clock = { now: () => wall, monotonic: () => wall - startedAt + 100 };
      const prober = new Prober({ ...clock, open, random: (bytes) => new Uint8Array(bytes) });
      const gone: string[] = [];
      const goneAmong = (addresses: readonly string[]) => addresses.filter((each) => gone.includes(each));
      const planeFacts: PlaneFacts = {};
      const known = {
        lostLarge: new Map<string, number>(),
        prober,
        named: new NamedPeers(),
        goneAmong,
        planeFacts,
        hasHeardPlane: false,
      };
      restoreProbes(directory, "acme", known, clock);
      return {
        ...known,
        known,
        gone,
        now: clock.monotonic,
        exchange: () => exchangeProbes(directory, "acme", known, clock),
        async probe(addresses: readonly string[]) {
          prober.setTargets(addresses);
          await prober.step(() => "10.77.0.9");
          await Bun.sleep(0);
        },
      };
    },
  };
}

test("the next run goes on with the ages of the last answers, on another monotonic clock; the file is root's alone", async () => {
  using directory = temporaryDirectory();
  const machine = makeMachine(directory.path);
  const first = machine.start();
  await first.probe(["10.77.0.1"]);
  machine.pass(2000);
  first.exchange();
  expect(statSync(join(directory.path, "acme.probes.json")).mode & 0o777).toBe(0o600);
  machine.pass(10_000);
  expect(machine.start().prober.record("10.77.0.1")).toMatchObject({ answeredAt: 100 - 12_000, missed: 0 });
});

test("a process that looks once knows what the control plane said, with its age", () => {
  using directory = temporaryDirectory();
  const machine = makeMachine(directory.path);
  const first = machine.start();
  const said = { public_ip: "192.0.2.1", seen: "192.0.2.9" };
  const at = first.now() - 5000;
  Object.assign(first.known.planeFacts, {
    others: { online: false, at },
    cloned: { at },
    elsewhere: { said, at },
    clockAhead: { ms: -400_000, at },
  });
  first.exchange();
  machine.pass(20_000);
  const then = 100 - 25_000;
  expect(machine.start().known.planeFacts).toEqual({
    others: { online: false, at: then },
    cloned: { at: then },
    elsewhere: { said, at: then },
    clockAhead: { ms: -400_000, at: then },
  });
});

test("a process that did not ask the control plane leaves what another one wrote of it", () => {
  using directory = temporaryDirectory();
  const machine = makeMachine(directory.path);
  const [checks, ping] = [machine.start(), machine.start()];
  checks.known.hasHeardPlane = true;
  Object.assign(checks.known.planeFacts, { cloned: { at: checks.now() } });
  checks.exchange();
  machine.pass(1000);
  ping.exchange();
  expect(machine.start().known.planeFacts.cloned).toEqual({ at: 100 - 1000 });
  // What the checks hear later counts, also that a fact has ended.
  checks.known.planeFacts.cloned = undefined;
  checks.exchange();
  ping.exchange();
  expect(machine.start().known.planeFacts.cloned).toBeUndefined();
});

test("check-auth goes on with a peer that `agent ping` named: it probes it for a minute, and knows it until it is gone", async () => {
  using directory = temporaryDirectory();
  const machine = makeMachine(directory.path);
  const [hub, peer] = ["10.77.0.1", "10.77.0.7"];
  const watching = machine.start();
  await watching.probe([hub]);
  watching.exchange();
  machine.pass(3000);
  const ping = machine.start();
  ping.named.add([peer], ping.now());
  await ping.probe([hub, peer]);
  ping.exchange();
  machine.pass(5000);
  // The run that was there before keeps its own record of the lighthouse.
  watching.exchange();
  expect(watching.named.addresses(watching.now())).toEqual([peer]);
  expect(watching.prober.record(peer)).toMatchObject({ answeredAt: watching.now() - 5000, missed: 0 });
  expect(watching.prober.record(hub)).toMatchObject({ answeredAt: watching.now() - 8000, sent: 1 });
  machine.pass(50_000);
  const next = machine.start();
  expect(next.named.addresses(next.now())).toEqual([peer]);
  machine.pass(86_400_000);
  const later = machine.start();
  expect(later.named.addresses(later.now())).toEqual([]);
  // Time alone does not forget it: the configuration says that it is gone, and the file must not bring it back.
  expect(later.prober.record(peer)).toMatchObject({ answeredAt: later.now() - 86_455_000 });
  later.gone.push(peer);
  later.prober.forget(peer);
  later.exchange();
  expect(later.prober.record(peer)).toBeUndefined();
  expect(machine.start().prober.record(peer)).toBeUndefined();
});
