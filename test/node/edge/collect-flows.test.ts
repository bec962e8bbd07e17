// What a node collects of its flows, with the kernel's counters: nothing is lost or counted twice when the agent is killed, and
// nothing grows while the control plane is away.

import { expect, test } from "bun:test";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { realSystem } from "../../../src/base/system.ts";
import { flowsReport, noteAnswer } from "../../../src/node/contact/flows-in-checkins.ts";
import { collectFlows } from "../../../src/node/edge/collect-flows.ts";
import { noteTaken, readCollected, waitingFlows } from "../../../src/node/files/flows-state.ts";
import type { Organization } from "../../../src/node/files/organizations.ts";
import { beginGeneration } from "../../../src/platform/network/flow-counter.ts";
import { asRoot } from "../../support/engines.ts";
import { makeLan, type Host } from "../../support/namespaces.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const clock = { bootS: 1000, boot: "0123456789" };
const send = `const [, address, from, count] = process.argv;
  for (let port = Number(from); port < Number(from) + Number(count); port++)
    await new Promise((done) => { const s = require("node:dgram").createSocket("udp4"); s.send("x", port, address, () => { s.close(); done(); }); });`;

function contextOf(
  host: Host,
  directory: string,
  slug = "acme",
  fails: (script: string) => boolean = () => false,
) {
  writeFileSync(join(directory, "config.yml"), "tun:\n  dev: eth0\n");
  const system = {
    ...realSystem(),
    bootTime: () => ({ id: clock.boot, isShared: true, ms: clock.bootS * 1000 }),
    run: (argv: readonly string[], options: { input?: string } = {}) =>
      fails(options.input ?? "")
        ? Promise.resolve({ status: 1, stdout: "", stderr: "killed", timedOut: false })
        : realSystem().run(["/usr/bin/env", ...host.inside(argv)], options),
  };
  return { slug, directory, system };
}
const place = { slug: "acme", device: "eth0", networks: [] };
const total = (directory: string) =>
  (readCollected(directory)?.rows ?? [])
    .filter(({ protocol }) => protocol === "udp")
    .reduce((sum, { flows }) => sum + flows, 0);

asRoot("flows of a node", () => {
  test("a report waits until it is taken, while the kernel counts on", async () => {
    using lan = makeLan(["a", "b"]);
    using directory = temporaryDirectory();
    const [a, b] = [lan.host("a"), lan.host("b")];
    const context = contextOf(a, directory.path);
    const traffic = (from: number, count: number) =>
      b.run([process.execPath, "-e", send, a.address, String(from), String(count)]);
    expect(await collectFlows(context, 300)).toBeUndefined();
    traffic(7000, 5);
    expect(await collectFlows(context, 300)).toBeUndefined();
    expect(readCollected(directory.path)).toBeUndefined();
    clock.bootS += 300;
    expect(await collectFlows(context, 300)).toBeUndefined();
    expect([
      total(directory.path),
      readCollected(directory.path)?.from,
      readCollected(directory.path)?.to,
    ]).toEqual([5, 1000, 1300]);
    // Of root alone: it says whom this node talks to.
    expect(Bun.file(join(directory.path, "run/flows.json")).size).toBeGreaterThan(100);
    const first = waitingFlows(directory.path)?.id;
    traffic(7100, 3);
    clock.bootS += 300;
    expect(await collectFlows(context, 300)).toBeUndefined();
    expect(waitingFlows(directory.path)?.id).toBe(first ?? "");

    // The check-in says how old it is, whatever the machine's clock says; without an answer it is sent again.
    const organization = { directory: directory.path, config: { flows: true } } as Organization;
    const report = flowsReport(organization, context.system);
    expect(report).toMatchObject({ id: first, from: 600, to: 300 });
    if (report === undefined) throw new Error("No report");
    for (const how of [undefined, "later"]) noteAnswer(organization, report, how);
    expect(flowsReport(organization, context.system)?.id).toBe(report.id);
    noteAnswer(organization, report, "taken");
    expect(flowsReport(organization, context.system)).toBeUndefined();
    expect(await collectFlows(context, 300)).toBeUndefined();
    expect([
      total(directory.path),
      readCollected(directory.path)?.from,
      readCollected(directory.path)?.unseen_s,
    ]).toEqual([3, 1300, 0]);
    // Root's word ends it.
    writeFileSync(join(directory.path, "permissions.json"), '{"routes":[],"no_flows":true}');
    expect(flowsReport(organization, context.system)).toBeUndefined();
  }, 30_000);

  test("an agent that is killed at any step loses nothing and counts nothing twice", async () => {
    using lan = makeLan(["a", "b"]);
    using directory = temporaryDirectory();
    const [a, b] = [lan.host("a"), lan.host("b")];
    const context = contextOf(a, directory.path);
    const traffic = (from: number, count: number) =>
      b.run([process.execPath, "-e", send, a.address, String(from), String(count)]);
    await collectFlows(context, 0);
    traffic(7000, 2);
    // Killed after the rules point at the next generation.
    expect(await beginGeneration(place, { number: 2, from: clock.bootS }, context.system)).toBeUndefined();
    traffic(7100, 3);
    expect(await collectFlows(context, 0)).toBeUndefined();
    expect(total(directory.path)).toBe(5);
    noteTaken(directory.path, readCollected(directory.path)?.id ?? "");
    traffic(7200, 4);
    // Killed after the report was written, before the former sets are gone.
    const killed = contextOf(a, directory.path, "acme", (script) => script.startsWith("delete counter"));
    expect(await collectFlows(killed, 0)).toBeUndefined();
    expect(total(directory.path)).toBe(4);
    noteTaken(directory.path, readCollected(directory.path)?.id ?? "");
    traffic(7300, 1);
    expect(await collectFlows(context, 0)).toBeUndefined();
    expect(total(directory.path)).toBe(1);
    noteTaken(directory.path, readCollected(directory.path)?.id ?? "");
    // Another program empties the packet filter: that time counts as unseen.
    a.run(["nft", "flush", "ruleset"]);
    clock.bootS += 100;
    traffic(7400, 9);
    expect(await collectFlows(context, 0)).toBeUndefined();
    traffic(7500, 2);
    clock.bootS += 300;
    expect(await collectFlows(context, 0)).toBeUndefined();
    expect([total(directory.path), readCollected(directory.path)?.unseen_s]).toEqual([2, 100]);
    noteTaken(directory.path, readCollected(directory.path)?.id ?? "");
    // After another boot nothing of the table is left, and the numbers begin anew.
    a.run(["nft", "flush", "ruleset"]);
    Object.assign(clock, { boot: "another-boot", bootS: 40 });
    await collectFlows(context, 0);
    traffic(7600, 6);
    clock.bootS += 300;
    expect(await collectFlows(context, 0)).toBeUndefined();
    expect([total(directory.path), readCollected(directory.path)?.unseen_s]).toEqual([6, 340]);
  }, 30_000);

  test("a report has at most 256 kinds, and two organizations count for themselves", async () => {
    using lan = makeLan(["a", "b"]);
    using directory = temporaryDirectory();
    using other = temporaryDirectory();
    const [a, b] = [lan.host("a"), lan.host("b")];
    const contexts = [contextOf(a, directory.path), contextOf(a, other.path, "beta")];
    for (const context of contexts) expect(await collectFlows(context, 0)).toBeUndefined();
    b.run([process.execPath, "-e", send, a.address, "20000", "300"]);
    for (const context of contexts) {
      expect(await collectFlows(context, 0)).toBeUndefined();
      const collected = readCollected(context.directory);
      expect(collected?.rows).toHaveLength(256);
      // Attempts that nothing answered are no use that would be missed.
      expect([total(context.directory) + (collected?.rest ?? 0) >= 300, collected?.unseen_s]).toEqual([
        true,
        0,
      ]);
    }
    const state = readFileSync(join(other.path, "run/flows.json"), "utf8");
    expect(state.length).toBeLessThan(40_000);
  }, 30_000);

  test("a machine without nft, and one that refuses, say why, and nothing is written", async () => {
    using lan = makeLan(["a"]);
    using directory = temporaryDirectory();
    const context = contextOf(lan.host("a"), directory.path, "acme", (script) => script !== "");
    expect(await collectFlows(context, 0)).toBe("nft ended with status 1: killed");
    const elsewhere = { ...context, system: { ...context.system, platform: "darwin" as const } };
    expect(await collectFlows(elsewhere, 0)).toContain("no nft");
    expect(existsSync(join(directory.path, "run"))).toBe(false);
  }, 30_000);
});
