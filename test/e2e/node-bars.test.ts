// What a server that nobody watches needs of sync-config and check-auth: killed at any instant the files are of one
// generation; twenty organizations cost little more than one.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdirSync, readFileSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { paths } from "../../src/protocol.ts";
import {
  agent,
  buildAgent,
  cleanEnvironment,
  runAgent,
  startControlPlane,
  type ControlPlane,
} from "../support/agent.ts";
import { makeOrganization, registerNode, type Organization } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const directory = temporaryDirectory();
let plane: ControlPlane;
let acme: Organization;

beforeAll(async () => {
  buildAgent();
  plane = await startControlPlane(join(directory.path, "server"));
  acme = await makeOrganization(plane);
}, 60_000);

afterAll(async () => {
  await plane.stop();
  directory[Symbol.dispose]();
});

const instants = 200;

test(`sync-config killed at ${instants} instants: the old files or the new ones, and the next run succeeds`, async () => {
  const root = join(directory.path, "node");
  const { node_id: id } = await registerNode(acme, root, "one", await acme.makeToken());
  const of = join(root, "acme");
  const path = paths.node("acme", id);
  for (const name of ["even", "odd"]) await acme.api("POST", "/api/org/acme/groups/", { name });
  const met = { old: 0, new: 0 };
  for (let at = 0; at < instants; at++) {
    const before = readlinkSync(join(of, "current"));
    await acme.api("PATCH", path, { groups: [at % 2 === 0 ? "even" : "odd"] });
    const child = Bun.spawn([agent, "sync-config", "--config-root", root], {
      env: cleanEnvironment(),
      stdin: "ignore",
      stdout: "ignore",
      stderr: "ignore",
    });
    // A run takes some 30 to 60 ms: the instants lie closer where files are written.
    await Promise.race([Bun.sleep((at * 13) % 70), child.exited]);
    child.kill("SIGKILL");
    await child.exited;
    const generation = readlinkSync(join(of, "current"));
    met[generation === before ? "old" : "new"]++;
    for (const name of ["config.yml", "ca.crt", "host.crt", "node.crt", "node-config.json"]) {
      expect(readlinkSync(join(of, name))).toBe(`current/${name}`);
      expect(readFileSync(join(of, generation, name), "utf8")).toEndWith("\n");
    }
    const next = await runAgent(["sync-config", "--config-root", root, "--json"]);
    expect(`${at}: ${next.status} ${next.stdout}`).toMatch(/^\d+: 0 .*"(changed|same)"/);
    if (generation === before) expect(readlinkSync(join(of, "current"))).not.toBe(before);
  }
  // Both happen, or the instants were badly chosen.
  expect(met.old).toBeGreaterThan(10);
  expect(met.new).toBeGreaterThan(10);
}, 180_000);

/** Wall clock and peak memory (VmHWM) of one check-auth. */
async function measure(words: readonly string[]): Promise<{ ms: number; kib: number }> {
  const from = performance.now();
  const child = Bun.spawn([agent, "check-auth", "--json", ...words], {
    env: cleanEnvironment(),
    stdin: "ignore",
    stdout: "pipe",
    stderr: "inherit",
  });
  let kib = 0;
  while (child.exitCode === null) {
    try {
      const peak = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${child.pid}/status`, "utf8"))?.[1];
      kib = Math.max(kib, Number(peak ?? 0));
    } catch {
      // It has ended in between.
    }
    await Bun.sleep(1);
  }
  const ms = performance.now() - from;
  const printed: unknown = JSON.parse(await new Response(child.stdout).text());
  const { organizations } = v.parse(
    v.object({ organizations: v.array(v.object({ result: v.string() })) }),
    printed,
  );
  expect(organizations.map(({ result }) => result)).toEqual(organizations.map(() => "ok"));
  return { ms, kib };
}

test("check-auth --all with 20 organizations: under 60 MB and 3 times the time of one", async () => {
  const root = join(directory.path, "many");
  mkdirSync(root);
  for (let at = 0; at < 20; at++) {
    const each = await makeOrganization(plane, `org-${at}`, `10.${at}.0.0/16`);
    await registerNode(each, root, "node", await each.makeToken());
  }
  const one: { ms: number; kib: number }[] = [];
  const all: { ms: number; kib: number }[] = [];
  for (let round = 0; round < 7; round++) {
    one.push(await measure(["--config-root", root, "--org-slug", "org-0"]));
    all.push(await measure(["--config-root", root, "--all"]));
  }
  const median = (values: number[]) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
  const times = { one: median(one.map(({ ms }) => ms)), all: median(all.map(({ ms }) => ms)) };
  process.stderr.write(
    `check-auth: one ${times.one.toFixed(0)} ms, twenty ${times.all.toFixed(0)} ms, ${Math.max(...all.map(({ kib }) => kib))} KiB\n`,
  );
  expect(Math.max(...all.map(({ kib }) => kib))).toBeLessThan(60_000);
  expect(times.all).toBeLessThan(3 * times.one);
}, 120_000);
