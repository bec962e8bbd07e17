// A new version of this program has stricter rules for what a control plane may set. It checks the configuration in force
// again, and the engine tests the result before it replaces anything.

import { expect, test } from "bun:test";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  generationFile,
  isApplied,
  readSyncState,
  writeSyncState,
} from "../../../src/node/files/generations.ts";
import { isChecked } from "../../../src/node/files/config/sync-state.ts";
import { buildInfo } from "../../../src/build-info.ts";
import { makeLocalSync } from "../../../src/node/contact/local-sync.ts";
import { readYaml } from "../../../src/node/files/config/read-yaml.ts";
import { applyChanges } from "../../../src/node/health/apply-changes.ts";
import { wholeConfiguration } from "../../../src/engine/left-out.ts";
import { noneInUse } from "../../../src/node/engine/engine-in-use.ts";
import { openOrganization } from "../../../src/node/files/organizations.ts";
import { writePermissions } from "../../../src/node/files/permissions.ts";
import { makeControl, syncNow } from "../../support/node.ts";
import { useSentConfig } from "../../support/sent-config.ts";

const here = useSentConfig();
const forbidden = "stats:\n  type: prometheus\n  listen: 0.0.0.0:9101\n  path: /metrics\n  interval: 10s\n";

/** As an earlier version left it: the control plane's text went into config.yml. Returns that config.yml. */
function leaveUnchecked(): string {
  const { directory } = here.organization;
  for (const name of ["server.yml", "config.yml"]) {
    const path = generationFile(directory, name);
    writeFileSync(path, `${readFileSync(path, "utf8")}${forbidden}`);
  }
  const { rules: _, ...state } = readSyncState(directory) ?? { etag: "", config_version: 0, applied_at: "" };
  writeSyncState(directory, state);
  return here.read("config.yml");
}

/** An engine whose test refuses a configuration without metrics. */
function pickyEngine(): string {
  const path = join(here.world.root, "..", "picky");
  const refusal = `echo '{"level":"error","msg":"metrics are missing"}'; exit 1`;
  const script = `#!/bin/sh\ncase $1 in -version) echo "Version: 1.10.3";; -test) grep -q 0.0.0.0:9101 "$3" || { ${refusal}; };; esac\n`;
  writeFileSync(path, script, { mode: 0o755 });
  return path;
}

const organization = () => openOrganization(here.world.root, "acme");

test("an engine that refuses the rechecked configuration keeps the one in force, and the refusal is reported", async () => {
  await here.sync();
  const before = leaveUnchecked();
  const control = makeControl();
  const result = await syncNow(here.world, organization(), control, pickyEngine());
  expect(result).toMatchObject({
    result: "returned",
    reason: expect.stringContaining("metrics are missing"),
  });
  expect(here.read("config.yml")).toBe(before);
  expect(control.asked).toEqual([]);
  const state = readSyncState(here.organization.directory);
  expect(state?.left_out?.[0]).toMatchObject({ reason: expect.stringContaining("metrics are missing") });
  expect(state !== undefined && isChecked(state)).toBe(false);
  expect(here.world.logged.join("\n")).toContain("The configuration in force stays as it is");
});

test("an engine that accepts the rechecked configuration gets it", async () => {
  await here.sync();
  leaveUnchecked();
  const engine = pickyEngine();
  writeFileSync(engine, "#!/bin/sh\n[ $1 = -version ] && echo 'Version: 1.10.3'\nexit 0\n", { mode: 0o755 });
  const control = makeControl();
  expect(await syncNow(here.world, organization(), control, engine)).toMatchObject({ result: "same" });
  expect(here.read("config.yml")).not.toContain("stats:");
  expect(control.asked).toEqual(["restart"]);
});

/** As another version of this program left it. */
function leaveToOther(change: (config: string) => string): void {
  const { directory } = here.organization;
  const path = generationFile(directory, "config.yml");
  writeFileSync(path, change(readFileSync(path, "utf8")));
  const state = readSyncState(directory);
  if (state !== undefined) writeSyncState(directory, { ...state, checked_by: "0.3.6" });
}

/** What the loop of the daemon does before each check-in, with a control plane that is away. */
async function lookLocally(): Promise<readonly unknown[]> {
  const control = makeControl();
  const { log, system } = here.world;
  const engine = async () => noneInUse;
  await makeLocalSync(here.organization, { control, engine, command: "test", log, system })();
  return control.asked;
}

test.each<[string, (directory: string) => void]>([
  ["damaged", (directory) => writeFileSync(generationFile(directory, "config.yml"), "broken: [\n")],
  ["empty", (directory) => writeFileSync(generationFile(directory, "config.yml"), "")],
  ["gone", (directory) => rmSync(generationFile(directory, "config.yml"))],
  ["changed by another version of this program", () => leaveToOther((config) => `${config}${forbidden}`)],
])("a configuration in force that is %s is written anew, without the control plane", async (_, harm) => {
  await here.sync();
  const good = here.read("config.yml");
  const { directory } = here.organization;
  harm(directory);
  expect(await lookLocally()).toEqual(["restart"]);
  expect(here.read("config.yml")).toBe(good);
  expect(readSyncState(directory)?.checked_by).toBe(buildInfo.version);
  expect(await lookLocally()).toEqual([]);
});

test("a change that the running engine takes by a reload drops no tunnel", async () => {
  await here.sync();
  const good = here.read("config.yml");
  leaveToOther((config) => `# written by another version\n${config}`);
  expect(await lookLocally()).toEqual(["reload"]);
  expect(here.read("config.yml")).toBe(good);
  expect(await lookLocally()).toEqual([]);
});

test("with an overrides.yml that this version refuses, the node can still change its configuration, and status names the key", async () => {
  await here.sync();
  const { directory } = here.organization;
  // The version before accepted both; `mtu` was left to the control plane.
  writeFileSync(join(directory, "overrides.yml"), "tun: {disabled: true}\nlisten: {port: abc}\n");
  leaveToOther((config) =>
    config.replace("tun:\n", "tun:\n  disabled: true\n").replace(/port: 0$/m, "port: abc"),
  );
  const before = here.read("config.yml");
  await lookLocally();
  expect(readYaml(here.read("config.yml"), "")).toEqual(readYaml(before, ""));
  const noted = { refused_overrides: true, checked_by: buildInfo.version };
  expect(readSyncState(directory)).toMatchObject({
    ...noted,
    left_out: [{ key: wholeConfiguration, reason: expect.stringContaining("sets listen.port to") }],
  });
  const { system } = here.world;
  const peers = { "10.77.0.9": ["192.0.2.9:4242"] };
  const control = makeControl();
  await applyChanges(here.organization, { peers }, { command: "test", control, system });
  expect(control.asked).toEqual(["reload"]);
  expect(here.read("config.yml")).toContain("192.0.2.9:4242");
  writeFileSync(join(directory, "overrides.yml"), "");
  expect(await here.sync()).toMatchObject({ result: "changed" });
  expect(readSyncState(directory)).not.toHaveProperty("refused_overrides");
  expect(readSyncState(directory)?.left_out ?? []).toEqual([]);
});

test("names without an address stay left out", async () => {
  const stats = {
    type: "graphite",
    host: "gone.example:2003",
    interval: "10s",
    protocol: "tcp",
    prefix: "x",
  };
  writePermissions(here.organization.directory, { listeners: [stats.host] });
  here.tamper((config) => ({ ...config, stats }));
  here.world.system.lookup = () => Promise.resolve([]);
  await here.sync();
  const { directory } = here.organization;
  const [good, before] = [here.read("config.yml"), readSyncState(directory)];
  expect(before?.unresolved).toEqual(["gone.example"]);
  leaveToOther((config) => config);
  expect(await lookLocally()).toEqual([]);
  expect(here.read("config.yml")).toBe(good);
  expect(readSyncState(directory)).toEqual(before);
});

test("a file that cannot even be read keeps no check-in from coming", async () => {
  await here.sync();
  const path = generationFile(here.organization.directory, "config.yml");
  rmSync(path);
  mkdirSync(path);
  expect(await lookLocally()).toEqual([]);
});

test("if its source is damaged, too, the next check-in fetches both", async () => {
  await here.sync();
  const { directory } = here.organization;
  const paths = ["config.yml", "server.yml"].map((name) => generationFile(directory, name));
  const good = paths.map((path) => readFileSync(path, "utf8"));
  for (const path of paths) writeFileSync(path, "broken: [\n");
  expect(await lookLocally()).toEqual([]);
  expect(isApplied(directory)).toBe(false);
  const control = makeControl();
  expect(await syncNow(here.world, organization(), control)).toMatchObject({ result: "changed" });
  expect(
    ["config.yml", "server.yml"].map((name) => readFileSync(generationFile(directory, name), "utf8")),
  ).toEqual(good);
  expect(control.asked).toEqual(["restart"]);
});
