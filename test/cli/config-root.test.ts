// A command acts on what its config root holds: a daemon and units that run the organizations of another root are neither
// asked nor changed, although an organization there has the same name.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import * as v from "valibot";
import { commands } from "../../src/cli/commands.ts";
import { openState } from "../../src/daemon/state.ts";
import { claimState, isStateOf } from "../../src/daemon/state-root.ts";
import { readCredentials, writeCredentials } from "../../src/node/files/organizations.ts";
import {
  requireOwnUnits,
  requireRootForServices,
  requireRootForUnits,
  rootIn,
  rootOfUnits,
} from "../../src/platform/config-root.ts";
import { launchdPlist, rootOfPlist } from "../../src/platform/launchd.ts";
import { rootIn as rootOfTaskXml, taskXml } from "../../src/platform/windows/task.ts";
import { defaultPlaces } from "../../src/brand.ts";
import { planTask, planTaskRemoval } from "../../src/node/enroll/services.ts";
import { checkCommand } from "../../src/node/update/update-guard.ts";
import { packagedUnitDirectory, templateUnit, unitDirectory } from "../../src/platform/systemd/systemd.ts";
import { daemonService, engineTemplate } from "../../src/platform/systemd/units.ts";
import { sourceRoot } from "../support/imports.ts";
import { makeNodeWorld, type NodeWorld } from "../support/node.ts";
import { temporaryDirectory } from "../support/temporary.ts";

let world: NodeWorld;
let asked: string[];
let daemon: { stop(closeActive?: boolean): void } | undefined;

/** Answers like a daemon that runs an organization of this name below another root. */
function listen(configRoot: string | undefined): void {
  daemon = Bun.listen({
    unix: join(dirname(world.root), "cmd.sock"),
    socket: {
      data(socket, bytes) {
        const { action } = v.parse(v.object({ action: v.string() }), JSON.parse(bytes.toString()));
        asked.push(action);
        const status = {
          team: "acme",
          state: "running",
          wanted: "up",
          mode: "desktop",
          pid: 1,
          name: "foreign",
        };
        const teams = action === "teams" ? ["acme"] : [{ ...status, ip_address: "10.99.0.9" }];
        const answer = { ok: true, message: "done", teams, version: "9", pid: 1, config_root: configRoot };
        socket.write(`${JSON.stringify(answer)}\n`);
      },
    },
  });
}

beforeEach(async () => {
  world = await makeNodeWorld();
  asked = [];
});
afterEach(async () => {
  daemon?.stop(true);
  daemon = undefined;
  await world[Symbol.asyncDispose]();
});

/** One line for each command of a machine; for the others, why they ask neither a daemon nor units for an organization. */
const lines: Readonly<Record<string, string[] | string>> = {
  up: ["up", "acme", "--wait", "1s"],
  down: ["down", "acme"],
  "sync-config": ["sync-config"],
  "check-auth": ["check-auth"],
  checkin: ["checkin"],
  netcheck: ["netcheck"],
  doctor: ["doctor"],
  unregister: ["unregister", "--org-slug", "acme"],
  status: ["status", "acme"],
  peers: ["peers", "acme"],
  ping: ["ping", "acme", "10.77.0.9"],
  whois: ["whois", "10.77.0.9"],
  start: ["start", "acme"],
  stop: ["stop", "acme"],
  restart: ["restart", "acme"],
  switch: ["switch", "acme"],
  logs: ["logs", "acme"],
  "overlay update": ["overlay", "update", "--check"],
  "key-words": "it reads files below its root",
  register: "it writes below its root; then it asks like `up`",
  unseal: "it removes files below its root",
  names: "it changes the unit of names alone, behind requireRootForUnits",
  "overlay check": "it looks at the engine's file",
  "overlay install": "it asks like `overlay update`",
  "check-port": "it looks at ports",
  edge: "it runs in the foreground, and asks nothing",
  "exit use":
    "as root it writes below its root; else it asks by askDaemon, which refuses a daemon of another root",
  "exit list": "it reads files below its root",
  "exit show": "it reads files below its root",
  "install-systemd": "units are planned behind requireRootForUnits",
  "install-launchd": "not on this system",
  "install-tap": "not on this system",
  setup: "it registers with the usual root",
  serve: "the control plane has no config root",
  login: "of a user",
  logout: "of a user",
  whoami: "of a user",
  demo: "with a root of its own",
  version: "asks nothing",
  completion: "asks nothing",
  "update-run": "it asks like `peers`",
  "drill-run": "it asks like `peers`",
  "self-update": "restarts the services of this machine, whatever they run",
};

test("every command of a machine says which daemon and units it asks", () => {
  expect(Object.keys(commands).sort()).toEqual(Object.keys(lines).sort());
});

describe("a daemon of another root", () => {
  const meant = Object.values(lines).filter((line) => typeof line !== "string");
  test.each(meant.map((words) => ({ words })))("is asked nothing by $words", async ({ words }) => {
    await world.register({ mode: "desktop" });
    const store = openState(join(dirname(world.root), "state.db"), world.log, Date.now);
    store.putRecord("acme", { wanted: "down", forgotten: false });
    store.close();
    listen("/etc/production");
    const { stdout } = await world.agent(words);
    expect(asked.filter((action) => !["version", "status", "list"].includes(action))).toEqual([]);
    expect(stdout).not.toContain("10.99.0.9");
  });

  test("is named with both roots and what to do", async () => {
    await world.register({ mode: "desktop" });
    listen("/etc/production");
    const { status, stderr } = await world.agent(["stop", "acme"]);
    expect(status).toBe(3);
    expect(stderr).toContain(
      `The daemon runs the organizations of /etc/production, not those of ${world.root}`,
    );
    expect(stderr).toContain("--config-root /etc/production");
  });

  test("is the daemon of this root if a link leads here, or if it is of a version that does not say", async () => {
    await world.register({ mode: "desktop" });
    const link = join(dirname(world.root), "link");
    symlinkSync(world.root, link);
    listen(link);
    expect((await world.agent(["stop", "acme"])).status).toBe(0);
    daemon?.stop(true);
    listen(undefined);
    expect((await world.agent(["stop", "acme"])).status).toBe(0);
    expect(asked.filter((action) => action === "stop")).toHaveLength(2);
  });
});

describe("a state database of another root", () => {
  test("is left alone, also while no daemon runs, and refused to a daemon of this one", async () => {
    const path = join(dirname(world.root), "state.db");
    using production = temporaryDirectory();
    mkdirSync(join(production.path, "acme"));
    writeFileSync(join(production.path, "acme", "node-config.json"), "{}");
    claimState(path, production.path, world.log);
    const records = () => {
      const store = openState(path, world.log, Date.now);
      const found = store.records();
      store.close();
      return found;
    };
    const store = openState(path, world.log, Date.now);
    store.putRecord("acme", { wanted: "up", forgotten: false });
    store.close();
    await world.register({ mode: "desktop" });
    const { json } = await world.agent(["status", "--json"]);
    expect(json).toMatchObject({ teams: [{ team: "acme", wanted: "down" }] });
    expect((await world.agent(["unregister", "--org-slug", "acme"])).status).toBe(0);
    expect(records().get("acme")?.wanted).toBe("up");
    expect(() => claimState(path, world.root, world.log)).toThrow(
      `${path} is about the organizations of ${production.path}, not those of ${world.root}`,
    );
    // A root that was moved away takes its database along.
    renameSync(join(production.path, "acme"), join(world.root, "acme"));
    claimState(path, world.root, world.log);
    expect(isStateOf(path, world.root)).toBe(true);
    expect(isStateOf(path, production.path)).toBe(false);
  });
});

describe("units of another root", () => {
  beforeEach(() => listen(undefined));
  const places = {
    executable: "/usr/local/bin/agent",
    engine: "/usr/local/bin/overlay",
    overlayBinary: "/usr/local/bin/overlay",
    stateDb: "/var/lib/overlay-agent/state.db",
    socketPath: "/run/overlay-agent/cmd.sock",
    autostart: true,
  };

  test.each(["/etc/overlay-agent", "/srv/50% of it", "/srv/${HOME}/a $b", '/srv/a "b" c\\d', "/"])(
    "are read back: %s",
    (configRoot) => {
      for (const unit of [engineTemplate, daemonService])
        expect(rootIn(unit({ ...places, configRoot }))).toBe(configRoot);
    },
  );

  test("are refused by each way to them, and replaced only if that root has no organization left", () => {
    using directory = temporaryDirectory();
    const [production, moved] = [join(directory.path, "production"), join(directory.path, "moved")];
    mkdirSync(join(production, "acme"), { recursive: true });
    writeFileSync(join(production, "acme", "node-config.json"), "{}");
    writeFileSync(join(directory.path, templateUnit), engineTemplate({ ...places, configRoot: production }));
    const root = rootOfUnits([directory.path]);
    expect(root).toBe(production);
    requireOwnUnits(production, root);
    for (const refuse of [requireOwnUnits, requireRootForUnits]) {
      expect(() => refuse("/srv/x", root)).toThrow(
        `The services of this machine run the organizations of ${production}, not those of /srv/x`,
      );
      expect(() => refuse("/srv/x", undefined)).not.toThrow();
    }
    expect(() => requireRootForUnits("/srv/x", moved)).not.toThrow();
  });

  test.each(["/root/x", "/root", "/home/a/x", "/tmp/x", "/var/tmp/x", "/run/user/0/x"])(
    "a root that units cannot see is refused for them: %s",
    (configRoot) => {
      expect(() => requireRootForUnits(configRoot, undefined)).toThrow("services cannot see files below");
    },
  );

  test("a job of launchd or a task of Windows is refused for another root, too", () => {
    using directory = temporaryDirectory();
    const production = join(directory.path, "pro & duction");
    mkdirSync(join(production, "acme"), { recursive: true });
    writeFileSync(join(production, "acme", "node-config.json"), "{}");
    const all = {
      ...places,
      configRoot: production,
      stateDb: join(directory.path, "state.db"),
      pipeName: "p",
      overlayBinaryGiven: false,
    };
    const [plist, task] = [launchdPlist(all), taskXml(all, {})];
    expect([rootOfPlist(plist), rootOfTaskXml(task, {})]).toEqual([production, production]);
    const usual = { ...all, configRoot: defaultPlaces("darwin", {}).configRoot };
    expect(rootOfPlist(launchdPlist(usual))).toBe(usual.configRoot);
    expect(rootOfPlist(undefined)).toBeUndefined();
    const windows = { ...all, configRoot: "C:\\Program Files\\é\\" };
    expect(rootOfTaskXml(taskXml(windows, {}), {})).toBe(windows.configRoot);
    writeFileSync(join(directory.path, "task.xml"), task);
    const system = { platform: "win32", env: {}, executable: "C:\\agent.exe" } as const;
    const other = { ...all, configRoot: "/srv/x" };
    for (const plan of [planTask, planTaskRemoval])
      expect(() => plan(other, system)).toThrow(
        `The services of this machine run the organizations of ${production}, not those of /srv/x`,
      );
    expect(planTask(all, system).length).toBeGreaterThan(0);
    expect(() => requireRootForServices("/srv/x", rootOfPlist(plist))).toThrow("not those of /srv/x");
    // Each way to the job and the task passes there.
    const source = readFileSync(join(sourceRoot, "node/enroll/services.ts"), "utf8");
    for (const name of ["launchdInstallation", "launchdRemoval", "taskInstallation", "taskRemoval"]) {
      const users = readdirSync(sourceRoot, { recursive: true, encoding: "utf8" }).filter(
        (file) =>
          file.endsWith(".ts") &&
          !file.startsWith("platform/") &&
          readFileSync(join(sourceRoot, file), "utf8").includes(`${name}(`),
      );
      expect(users).toEqual(["node/enroll/services.ts"]);
      const [before = ""] = source.split(`return ${name}(`);
      expect(before.slice(before.lastIndexOf("export function"))).toContain("requireRootForServices(");
    }
  });

  test("the guard of an update checks the organizations that the units run", () => {
    expect(checkCommand("/opt/agent", "/srv/x")).toEqual([
      "/opt/agent",
      "check-auth",
      "--all",
      "--json",
      "--config-root",
      "/srv/x",
    ]);
    expect(checkCommand("/opt/agent", undefined)).toEqual(["/opt/agent", "check-auth", "--all", "--json"]);
  });

  test("no file names a unit of an organization without asking whose it is", () => {
    const named = readdirSync(sourceRoot, { recursive: true, encoding: "utf8" })
      .filter((file) => file.endsWith(".ts") && /^(node|daemon|cli)\//.test(file))
      .filter((file) => /\bengineUnit\(/.test(readFileSync(join(sourceRoot, file), "utf8")))
      .filter(
        (file) =>
          !/\b(requireOwnUnits|requireSafePrograms|isRunByUnits|unitsServe)\(/.test(
            readFileSync(join(sourceRoot, file), "utf8"),
          ),
      );
    // It prints a line for the user.
    expect(named).toEqual(["node/update/overlay-switch.ts"]);
    for (const directory of [unitDirectory, packagedUnitDirectory])
      expect(existsSync(join(directory, templateUnit))).toBe(false);
  });
});

describe("credentials.json", () => {
  beforeEach(() => listen(undefined));
  test("of another organization or node than the directory is refused before anything is sent", async () => {
    const { directory } = await world.register();
    const own = readCredentials(directory);
    for (const other of [{ org_slug: "other" }, { node_id: own.node_id + 1 }]) {
      writeCredentials(directory, { ...own, ...other });
      const sent = world.requests.length;
      const { status, stderr } = await world.agent(["checkin"]);
      expect([status, world.requests.slice(sent)]).toEqual([78, []]);
      expect(stderr).toContain("credentials.json belongs to");
      expect(stderr).toContain("register --force");
    }
  });
});
