import { afterEach, beforeEach, expect, test } from "bun:test";
import { appendFileSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { AppError } from "../../../src/base/errors.ts";
import { noneInUse } from "../../../src/node/engine/engine-in-use.ts";
import { connectOrganization } from "../../../src/node/contact/requests/connection.ts";
import { currentGeneration, isApplied, readSyncState } from "../../../src/node/files/generations.ts";
import { openOrganization, type Organization } from "../../../src/node/files/organizations.ts";
import { planSync } from "../../../src/node/contact/sync-plan.ts";
import type { SyncResult } from "../../../src/node/contact/applying/apply-next.ts";
import { syncOrganization } from "../../../src/node/contact/sync.ts";
import { decodeBundle } from "../../../src/pki/bundle.ts";
import { rejection } from "../../pki/thrown.ts";
import {
  engine,
  hasEngine,
  makeControl,
  makeNodeWorld,
  nodePath,
  syncNow,
  type NodeWorld,
} from "../../support/node.ts";

let world: NodeWorld;
let organization: Organization;

beforeEach(async () => {
  world = await makeNodeWorld();
  organization = await world.register();
});

afterEach(() => world[Symbol.asyncDispose]());

const sync = (control = makeControl(), binary?: string): Promise<SyncResult> =>
  syncNow(world, organization, control, binary);

const read = (name: string) => readFileSync(join(organization.directory, name), "utf8");
const overrides = (text: string) => writeFileSync(join(organization.directory, "overrides.yml"), text);
const regroup = (group: string) => world.api("PATCH", nodePath(organization), { groups: [group] });
const makeGroups = async (...names: string[]) => {
  for (const name of names) await world.api("POST", "/api/org/acme/groups/", { name });
};

test("synchronization after a registration changes neither files nor engine", async () => {
  const control = makeControl();
  const before = read("config.yml");
  expect(await sync(control)).toMatchObject({ result: "same" });
  expect(control.asked).toEqual([]);
  expect(currentGeneration(organization.directory)).toBe("1");
  expect(read("config.yml")).toBe(before);
});

test("a change creates a generation, one rename activates it, and three are kept", async () => {
  await makeGroups("a", "b", "c", "d");
  for (const [at, group] of ["a", "b", "c", "d"].entries()) {
    await regroup(group);
    const control = makeControl();
    expect(await sync(control)).toMatchObject({ result: "changed" });
    expect(control.asked).toEqual(["reload"]);
    expect(currentGeneration(organization.directory)).toBe(String(at + 2));
  }
  expect(readdirSync(join(organization.directory, "generations")).sort()).toEqual(["3", "4", "5"]);
  const state = readSyncState(organization.directory);
  expect(state?.etag).not.toBe("");
  expect(openOrganization(world.root, "acme").config.config_version).toBe(state?.config_version ?? 0);
});

test("a change that does not concern this node changes only the version", async () => {
  const before = read("config.yml");
  await world.api("POST", "/api/org/acme/nodes/", { name: "other" });
  const version = readSyncState(organization.directory)?.config_version ?? 0;
  await makeGroups("unused");
  const { result, configVersion } = await sync();
  expect(result).toBe("same");
  expect(read("config.yml")).toBe(before);
  expect(readSyncState(organization.directory)?.config_version).toBe(configVersion);
  expect(configVersion).toBeGreaterThanOrEqual(version);
});

test("a change of overrides.yml alone is applied, and a forbidden key is named with exit 78", async () => {
  overrides("logging:\n  level: debug\n");
  expect(await sync()).toMatchObject({ result: "changed" });
  expect(read("config.yml")).toContain('level: "debug"');
  expect(await sync()).toMatchObject({ result: "same" });
  overrides("firewall:\n  inbound: []\n");
  const error = await rejection(sync());
  expect(error.exitStatus).toBe(78);
  expect(error.message).toContain('"firewall"');
  expect(read("overrides.yml")).toBe("firewall:\n  inbound: []\n");
  rmSync(join(organization.directory, "overrides.yml"));
  expect(await sync()).toMatchObject({ result: "changed" });
  expect(read("config.yml")).not.toContain("debug");
});

test("a port that is none is refused before anything changes, and the interface keeps its name", async () => {
  const before = read("config.yml");
  overrides("listen: {port: abc}\n");
  const control = makeControl();
  expect((await rejection(sync(control))).message).toContain("sets listen.port to");
  expect([control.asked, read("config.yml")]).toEqual([[], before]);
  overrides("listen: {port: 4300}\n");
  expect(await sync()).toMatchObject({ result: "changed" });
  expect(read("config.yml")).toContain('dev: "ov-acme"');
});

test("a configuration over the limits is refused with a message, and the present one stays", async () => {
  const before = read("config.yml");
  await makeGroups("new");
  await regroup("new");
  const { system, log } = world;
  const control = makeControl();
  const swollen = (more: string) =>
    connectOrganization(
      organization,
      system,
      log,
    )((client) => {
      const downloadConfig: typeof client.downloadConfig = async (...asked) => {
        const download = await client.downloadConfig(...asked);
        if (download.changed) download.answer.files["config.yml"] += more;
        return download;
      };
      const deps = {
        client: { ...client, downloadConfig },
        control,
        engine: noneInUse,
        command: "test",
        log,
        system,
      };
      return syncOrganization(organization, deps);
    });
  for (const [more, limit] of [
    [`more: "${"x".repeat(8 * 1024 * 1024)}"\n`, "has more than 8 MiB"],
    [`more:\n${"- x\n".repeat(200_000)}`, "has more than 200000 nodes"],
    [`more: ${"[".repeat(40)}${"]".repeat(40)}\n`, "has more than 32 levels"],
  ] as const) {
    const error = await rejection(swollen(more));
    expect(error.message).toBe(
      `The configuration that the control plane sent ${limit}; its revocations are NOT in force, as they cannot be read`,
    );
    expect(error.details.hint).toContain("the present configuration stays");
  }
  expect(read("config.yml")).toBe(before);
  // Only the certificates of the new group are in use, once.
  expect(control.asked).toEqual(["reload"]);
  expect(await swollen("more: [small]\n")).toMatchObject({ result: "changed" });
});

test("start-only keys restart the engine, others reload it, one waits for the next start", async () => {
  const restarting = makeControl();
  overrides("listen:\n  port: 4999\n");
  await sync(restarting);
  expect(restarting.asked).toEqual(["restart"]);
  const reloading = makeControl();
  overrides("listen:\n  port: 4999\nlogging:\n  level: debug\n");
  await sync(reloading);
  expect(reloading.asked).toEqual(["reload"]);
  const stopped = makeControl({ running: false });
  overrides("listen:\n  port: 4998\n");
  await sync(stopped);
  expect(stopped.asked).toEqual([]);
});

test("a configuration that the engine refuses is rolled back with the reason", async () => {
  const before = read("config.yml");
  overrides("logging:\n  level: debug\n");
  const control = makeControl();
  control.fail = new AppError("engine_failed", "it did not like it");
  const failing = sync(control);
  const error = await rejection(failing);
  // The previous one fails too, because this engine refuses everything. The files are restored in any case.
  expect(error.message).toContain("it did not like it");
  expect(read("config.yml")).toBe(before);
  expect(readdirSync(join(organization.directory, "generations"))).toEqual(["1"]);

  let count = 0;
  const once = {
    ...makeControl(),
    reload: () => (++count === 1 ? Promise.reject(control.fail) : Promise.resolve()),
  };
  expect(await sync(once)).toMatchObject({ result: "returned", reason: "it did not like it" });
  expect(world.logged.find((line) => line.includes("rolling back"))).toContain('"team":"acme"');
  expect(read("config.yml")).toBe(before);
  expect(count).toBe(2);
});

test("an engine that ends after a change gets the previous configuration back", async () => {
  overrides("logging:\n  level: debug\n");
  const control = makeControl();
  const dying = {
    ...control,
    alive: () => Promise.reject(new AppError("engine_failed", "The overlay engine ended")),
  };
  expect(await sync(dying)).toMatchObject({ result: "returned", reason: "The overlay engine ended" });
  expect(read("config.yml")).not.toContain("debug");
  expect(control.asked).toEqual(["reload", "reload"]);
});

test("an engine that ended by itself during the change is started with the new configuration", async () => {
  overrides("logging:\n  level: debug\n");
  const control = makeControl();
  let isRunning = true;
  const ended = new AppError("engine_failed", "The overlay engine ended");
  const expired = {
    ...control,
    running: async () => isRunning,
    async reload() {
      isRunning = false;
      throw ended;
    },
  };
  expect(await sync(expired)).toMatchObject({ result: "changed" });
  expect(read("config.yml")).toContain("debug");
  expect(control.asked).toEqual(["restart"]);

  overrides("logging:\n  level: error\n");
  isRunning = true;
  const broken = { ...expired, alive: () => Promise.reject(ended) };
  expect(await sync(broken)).toMatchObject({ result: "returned", reason: "The overlay engine ended" });
  expect(read("config.yml")).toContain("debug");
});

test.skipIf(!hasEngine)("what the engine's own test refuses never comes into force", async () => {
  const before = read("config.yml");
  overrides("tun:\n  mtu: 1300\nlogging:\n  format: text\n  level: shouting\n");
  const control = makeControl();
  const { result, reason } = await sync(control, engine);
  expect(result).toBe("returned");
  // The file that the administrator wrote, not the one on trial.
  const file = join(organization.directory, "overrides.yml");
  expect(reason).toStartWith(`The overlay engine refuses logging.level in ${file}: `);
  expect(reason).toContain("shouting");
  expect(control.asked).toEqual([]);
  expect(read("config.yml")).toBe(before);
  expect(readdirSync(join(organization.directory, "generations"))).toEqual(["1"]);
});

test("after a kill between switch and reload, the next run reloads", async () => {
  rmSync(join(organization.directory, "current/taken-up"));
  const control = makeControl();
  expect(await sync(control)).toMatchObject({ result: "same" });
  expect(control.asked).toEqual(["restart"]);
  expect(isApplied(organization.directory)).toBe(true);
});

test("after a kill between switch and reload, a newer configuration restarts the engine", async () => {
  // What it runs with is unknown, so a reload might not be enough.
  rmSync(join(organization.directory, "current/taken-up"));
  overrides("logging:\n  level: debug\n");
  const control = makeControl();
  expect(await sync(control)).toMatchObject({ result: "changed" });
  expect(control.asked).toEqual(["restart"]);
});

test("an unfinished generation of a killed run is not used and is removed", async () => {
  const left = join(organization.directory, "generations/2");
  await makeGroups("a");
  await regroup("a");
  mkdirSync(left);
  writeFileSync(join(left, "config.yml"), "half");
  expect(await sync()).toMatchObject({ result: "changed" });
  expect(currentGeneration(organization.directory)).toBe("2");
  expect(readFileSync(join(left, "config.yml"), "utf8")).toContain("pki:");
  expect(readdirSync(join(organization.directory, "generations")).sort()).toEqual(["1", "2"]);
});

test("two concurrent runs both succeed, one after the other", async () => {
  await makeGroups("a");
  await regroup("a");
  const results = await Promise.all([sync(), sync()]);
  expect(results.map(({ result }) => result).sort()).toEqual(["changed", "same"]);
});

test("an older download does not overwrite what another run has applied", async () => {
  await makeGroups("a", "b");
  await regroup("a");
  const { system, log } = world;
  let downloads = 0;
  await connectOrganization(
    organization,
    system,
    log,
  )((client) => {
    const slow: typeof client.downloadConfig = async (...asked) => {
      const download = await client.downloadConfig(...asked);
      if (++downloads > 1) return download;
      await regroup("b");
      expect(await sync()).toMatchObject({ result: "changed" });
      return download;
    };
    const deps = { control: makeControl(), engine: noneInUse, command: "test", log, system };
    return syncOrganization(organization, { ...deps, client: { downloadConfig: slow } });
  });
  expect(downloads).toBe(2);
  expect(decodeBundle(read("host.crt"))[0]?.groups).toEqual(["b"]);
  const version = readSyncState(organization.directory)?.config_version;
  expect(await sync()).toMatchObject({ result: "same", configVersion: version });
});

test("older files of a restored server are applied after one more download", async () => {
  const path = join(organization.directory, "current/sync.json");
  const state = readSyncState(organization.directory);
  writeFileSync(path, JSON.stringify({ ...state, config_version: 1000 }));
  world.requests.length = 0;
  expect(await sync()).toMatchObject({ result: "same", configVersion: state?.config_version });
  expect(world.requests.filter((each) => each.endsWith("download_config/"))).toHaveLength(2);
});

test("a plan shows reload or restart, and every missing file", async () => {
  const { system, log } = world;
  const plan = () =>
    connectOrganization(
      organization,
      system,
      log,
    )((client) =>
      planSync(organization, {
        client,
        control: makeControl(),
        engine: { ...noneInUse, path: "/bin/true" },
        command: "",
        log,
        system: {
          ...system,
          run: async () => ({ status: 0, stdout: "Version: 1.10.3", stderr: "", timedOut: false }),
        },
      }),
    );
  await world.api("PATCH", nodePath(organization), { ip_address: "10.77.0.99" });
  expect(await plan()).toContainEqual({ step: "run", argv: ["restart", "the overlay engine"] });
  const control = makeControl();
  await sync(control);
  expect(control.asked).toEqual(["restart"]);
  rmSync(join(organization.directory, "ca.crt"));
  // An earlier version registered without it.
  rmSync(join(organization.directory, "run"), { recursive: true });
  const steps = await plan();
  const path = `${join(organization.directory, "run")}/`;
  expect(steps).toContainEqual({ step: "file", path, mode: "0700", change: "created" });
  expect(steps.find((step) => step.step === "file" && step.path.endsWith("ca.crt"))).toMatchObject({
    change: "created",
  });
});

test("a plan downloads and compares, and changes nothing", async () => {
  appendFileSync(join(organization.directory, "overrides.yml"), "logging:\n  level: debug\n");
  const { system, log } = world;
  const steps = await connectOrganization(
    organization,
    system,
    log,
  )((client) =>
    planSync(organization, { client, control: makeControl(), engine: noneInUse, command: "", log, system }),
  );
  expect(steps[0]).toEqual({
    step: "request",
    method: "GET",
    url: `https://control.example${nodePath(organization)}download_config/`,
  });
  const config = steps.find((step) => step.step === "file" && step.path.endsWith("config.yml"));
  expect(config).toMatchObject({ change: "changed", mode: "0644" });
  expect(JSON.stringify(config)).toContain("debug");
  expect(read("config.yml")).not.toContain("debug");
});

test("a change that overrides.yml hides takes effect when that file is removed", async () => {
  overrides("logging:\n  level: debug\n");
  await sync();
  await world.api("PATCH", nodePath(organization), { config_overrides: { logging: { level: "error" } } });
  await sync();
  expect(read("config.yml")).toContain('level: "debug"');
  rmSync(join(organization.directory, "overrides.yml"));
  expect(await sync()).toMatchObject({ result: "changed" });
  expect(read("config.yml")).toContain('level: "error"');
});
