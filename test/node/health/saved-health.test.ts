import { expect, test } from "bun:test";
import { statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Health } from "../../../src/node/health/judge.ts";
import { Prober } from "../../../src/node/health/prober.ts";
import {
  readSavedHealth,
  restoreProbes,
  savedHealthDirectory,
  writeProbes,
  writeSavedHealth,
} from "../../../src/node/health/saved-health.ts";
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

test("the next run goes on with the ages of the last answers, on another monotonic clock; the file is root's alone", async () => {
  using directory = temporaryDirectory();
  const clock = { mono: 5000, wall: now };
  const make = () =>
    new Prober({
      open: async (_, onReply) => ({
        send: (_to, sequence, payload) => (queueMicrotask(() => onReply({ sequence, payload })), true),
        close() {},
      }),
      monotonic: () => clock.mono,
      random: (bytes) => new Uint8Array(bytes),
    });
  const edge = { now: () => clock.wall, monotonic: () => clock.mono };
  const first = make();
  first.setTargets(["10.77.0.1"]);
  await first.step(() => "10.77.0.9");
  await Bun.sleep(0);
  clock.mono += 2000;
  writeProbes(directory.path, "acme", first, edge);
  expect(statSync(join(directory.path, "acme.probes.json")).mode & 0o777).toBe(0o600);
  clock.mono = 100;
  clock.wall += 10_000;
  const next = make();
  restoreProbes(directory.path, "acme", next, edge);
  expect(next.record("10.77.0.1")).toMatchObject({ answeredAt: 100 - 12_000, missed: 0 });
});
