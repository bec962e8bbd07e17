// Orders of updates as a node takes them: only where root permits it, each once, and the way back whatever came before.

import { expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { takeUpdateOrder } from "../../../../src/node/contact/requests/update-orders.ts";
import { planCarryOut } from "../../../../src/node/update/carry-out.ts";
import { writePermissions } from "../../../../src/node/files/permissions.ts";
import { mayUpdateOf, readUpdateState, writeUpdateState } from "../../../../src/node/files/update-order.ts";
import { makeLog } from "../../../../src/base/log.ts";
import { temporaryDirectory } from "../../../support/temporary.ts";

const log = makeLog({ verbose: false, write: () => {}, now: Date.now, stamped: false });

function makeMachine() {
  const root = temporaryDirectory();
  const started: string[] = [];
  const place = (slug: string) => {
    const directory = join(root.path, slug);
    mkdirSync(directory, { recursive: true });
    return { slug, directory };
  };
  const deps = { log, startUpdate: async (slug: string) => void started.push(slug) };
  return { place, started, deps, [Symbol.dispose]: () => root[Symbol.dispose]() };
}

const go = { order: 10, engine: "1.12.0", watch_s: 60 };
const back = { ...go, order: 11, back: true };

test("an order is taken only where root permits updates, and once", async () => {
  using machine = makeMachine();
  const acme = machine.place("acme");
  await takeUpdateOrder(go, acme, machine.deps);
  expect(machine.started).toEqual([]);
  writePermissions(acme.directory, { updates: ["engine"] });
  await takeUpdateOrder(go, acme, machine.deps);
  await takeUpdateOrder(go, acme, machine.deps);
  expect(machine.started).toEqual(["acme"]);
  expect(mayUpdateOf(acme.directory)).toMatchObject({ may: ["engine", "settings"], order: 10 });
});

test("an order about settings needs no permission of root", async () => {
  using machine = makeMachine();
  const acme = machine.place("acme");
  await takeUpdateOrder({ order: 10, settings: true, watch_s: 60 }, acme, machine.deps);
  expect(machine.started).toEqual(["acme"]);
});

test("a node that was done goes back when it is told to, to what it had", async () => {
  using machine = makeMachine();
  const acme = machine.place("acme");
  writePermissions(acme.directory, { updates: ["engine"] });
  await takeUpdateOrder(go, acme, machine.deps);
  const former = { agent: "0.2.0", engine: "1.11.1" };
  writeUpdateState(acme.directory, { order: go, step: "done", former });
  await takeUpdateOrder(back, acme, machine.deps);
  expect(readUpdateState(acme.directory)).toEqual({ order: back, step: "taken", former });
  // A server that has not heard of it yet says the former order again.
  await takeUpdateOrder(go, acme, machine.deps);
  expect(readUpdateState(acme.directory)?.order).toEqual(back);
});

test("a report that the control plane did not take is said again when that answers", async () => {
  using machine = makeMachine();
  const acme = machine.place("acme");
  writePermissions(acme.directory, { updates: ["engine"] });
  writeUpdateState(acme.directory, { order: go, step: "done", unsaid: { state: "passed" } });
  await takeUpdateOrder(undefined, acme, machine.deps);
  expect(machine.started).toEqual(["acme"]);
  // The report of the order before is none of the order to go back.
  await takeUpdateOrder(back, acme, machine.deps);
  expect(readUpdateState(acme.directory)).toEqual({ order: back, step: "taken" });
});

test("of two organizations that root permitted, none updates the machine", async () => {
  using machine = makeMachine();
  for (const place of [machine.place("acme"), machine.place("other")]) {
    writeFileSync(join(place.directory, "node-config.json"), "{}");
    writePermissions(place.directory, { updates: ["agent", "engine"] });
  }
  await takeUpdateOrder(go, machine.place("acme"), machine.deps);
  expect(machine.started).toEqual([]);
  expect(mayUpdateOf(machine.place("acme").directory)?.may).toEqual(["settings"]);
});

test("what is left to do is planned as the commands that do it", () => {
  using machine = makeMachine();
  const { directory } = machine.place("acme");
  const planned = () => planCarryOut(directory, "agent").map((each) => "argv" in each && each.argv.join(" "));
  expect(planned()).toEqual([]);
  writeUpdateState(directory, { order: { ...go, agent: "0.3.0" }, step: "taken" });
  expect(planned()).toEqual(["agent self-update --version 0.3.0", "agent overlay update --version 1.12.0"]);
  writeUpdateState(directory, { order: back, step: "applied" });
  expect(planned()).toEqual(["agent overlay update --rollback"]);
  writeUpdateState(directory, { order: { order: 12, settings: true, watch_s: 60 }, step: "taken" });
  expect(planned()).toEqual(["agent sync-config --org-slug acme"]);
  writeUpdateState(directory, { order: back, step: "done" });
  expect(planned()).toEqual([]);
});
