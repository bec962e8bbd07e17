// The units as systemd-analyze checks them, and the plans that install and remove them.

import { describe, expect, test } from "bun:test";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { applyChanges, planChanges } from "../../../src/platform/machine-changes.ts";
import { namesInstallation, namesRemoval, namesService } from "../../../src/platform/systemd/unit-names.ts";
import { transientUnit } from "../../../src/platform/systemd/start-apart.ts";
import { exitInstallation } from "../../../src/platform/systemd/unit-exit.ts";
import { engineUnit, type OrganizationMode } from "../../../src/platform/systemd/systemd.ts";
import { guardService, type UnitPlaces } from "../../../src/platform/systemd/units.ts";
import {
  systemdInstallation,
  systemdRemoval,
  systemdUnits,
} from "../../../src/platform/systemd/installation.ts";
import { realSystem } from "../../../src/base/system.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const analyze = "/usr/bin/systemd-analyze";
const places: UnitPlaces = {
  executable: "/usr/bin/true",
  engine: "/usr/bin/true",
  overlayBinary: "/usr/local/bin/overlay",
  configRoot: "/etc/overlay-agent/",
  stateDb: "/var/lib/overlay-agent/state.db",
  socketPath: "/var/run/overlay-agent/cmd.sock",
  autostart: true,
};
const both: OrganizationMode[] = [
  { slug: "acme-2", mode: "server" },
  { slug: "home", mode: "desktop" },
];

/** Names for programs of the machine, and for peers in these networks. */
const plain = { search: false, peers: [] };
const peers = ["10.77.0.0/16", "fd00:77::/64"];

function writeUnits(directory: string, changed: Partial<UnitPlaces> = {}): string[] {
  const files = new Map(systemdUnits(both, { ...places, ...changed }).files);
  const template = files.get("overlay-agent@.service") ?? "";
  files.set(engineUnit("acme-2"), template);
  files.set("overlay-agent-names.service", namesService({ ...places, ...changed }, plain));
  files.set(
    "overlay-agent-names-peers.service",
    namesService({ ...places, ...changed }, { search: true, peers }),
  );
  files.set("overlay-agent-guard.service", guardService("/usr/bin/true", places.stateDb, places.configRoot));
  for (const [name, text] of files) writeFileSync(join(directory, name), text);
  return [...files.keys()].filter((name) => !name.includes("@.")).map((name) => join(directory, name));
}

describe.skipIf(!existsSync(analyze))("systemd-analyze", () => {
  const verify = (units: string[]) => {
    const { exitCode, stdout, stderr } = Bun.spawnSync([analyze, "verify", ...units]);
    return { exitCode, said: stdout.toString() + stderr.toString() };
  };

  test("verify accepts every unit", () => {
    using directory = temporaryDirectory();
    expect(verify(writeUnits(directory.path))).toEqual({ exitCode: 0, said: "" });
  });

  test("verify accepts paths that need quoting", () => {
    using directory = temporaryDirectory();
    const odd = join(directory.path, "a b $HOME %i");
    mkdirSync(odd);
    writeFileSync(join(odd, "agent"), "#!/bin/sh\n", { mode: 0o755 });
    const changed = {
      executable: join(odd, "agent"),
      engine: join(odd, "agent"),
      configRoot: `${odd}/"q" 'r'`,
      stateDb: join(odd, "state.db"),
      socketPath: join(odd, "cmd.sock"),
      autostart: false,
    };
    expect(verify(writeUnits(directory.path, changed))).toEqual({ exitCode: 0, said: "" });
  });

  test("security rates every service 2.5 or better", () => {
    using directory = temporaryDirectory();
    for (const unit of writeUnits(directory.path)) {
      if (!unit.endsWith(".service")) continue;
      const { exitCode, stdout } = Bun.spawnSync([
        analyze,
        "security",
        "--offline=true",
        "--threshold=25",
        unit,
      ]);
      expect({ unit, exitCode, text: exitCode === 0 ? "" : stdout.toString() }).toEqual({
        unit,
        exitCode: 0,
        text: "",
      });
    }
  });
});

describe("units", () => {
  const texts = (teams: OrganizationMode[], changed: Partial<UnitPlaces> = {}) =>
    systemdUnits(teams, { ...places, ...changed });

  test("each mode has its own units; without organizations only the daemon is installed", () => {
    const server = [
      "overlay-agent@.service",
      "overlay-agent-edge@.service",
      "overlay-agent-auth.service",
      "overlay-agent-auth.timer",
    ];
    expect([...texts([{ slug: "a", mode: "server" }]).files.keys()]).toEqual(server);
    expect([...texts([{ slug: "a", mode: "desktop" }]).files.keys()]).toEqual(["overlay-agent.service"]);
    expect([...texts([]).files.keys()]).toEqual(["overlay-agent.service"]);
    expect(texts(both).running).toEqual([
      "overlay-agent@acme-2.service",
      "overlay-agent-auth.timer",
      "overlay-agent.service",
    ]);
  });

  test("the timer and its service match the specification", () => {
    const { files } = texts(both);
    expect(files.get("overlay-agent-auth.timer")).toContain(
      "OnBootSec=30s\nOnUnitActiveSec=60s\nAccuracySec=1s\n",
    );
    const service = files.get("overlay-agent-auth.service");
    expect(service).toContain("ExecStart=/usr/bin/true check-auth --all --wait 58\n");
    expect(service).toContain("SuccessExitStatus=6 7\n");
  });

  test("an engine does not start while its organization is revoked or stopped", () => {
    expect(texts(both).files.get("overlay-agent@.service")).toContain(
      "ConditionPathExists=!/etc/overlay-agent/%i/auth-revoked.json\n" +
        "ConditionPathExists=!/etc/overlay-agent/%i/stopped\n",
    );
  });

  test("units contain only the paths that differ from the defaults", () => {
    const usual = texts(both).files.get("overlay-agent.service");
    expect(usual).toContain("ExecStart=/usr/bin/true --ipc-mode socket\n");
    const unusual = texts(both, { configRoot: "/srv/a b/", autostart: false }).files.get(
      "overlay-agent.service",
    );
    expect(unusual).toContain('--ipc-mode socket --config-root "/srv/a b/" --no-autostart\n');
    // In arguments, systemd replaces ${X} and a word $X by the environment; conditions and lists of paths have only %.
    const engine = texts(both, { configRoot: "/srv/${X}" }).files.get("overlay-agent@.service");
    expect(engine).toContain('ExecStart=/usr/bin/true -config "/srv/$${X}/%i/config.yml"\n');
    expect(engine).toContain("ConditionPathExists=/srv/${X}/%i/config.yml\n");
    expect(engine).toContain('ReadWritePaths=-"/srv/${X}/%i/');
    const [block] = exitInstallation({ nft: "/sbin/nft", file: "/srv/${X}/exit.nft" }, { files: new Map() });
    expect(block).toMatchObject({
      content: expect.stringContaining('ExecStart=/sbin/nft -f "/srv/$${X}/exit.nft"\n'),
    });
    const apart = transientUnit("a", ["/srv/${X}/agent", "update-run", "--config-root", "/srv/${X}"]);
    expect(apart.slice(-4)).toEqual(["/srv/${X}/agent", "update-run", "--config-root", "/srv/$${X}"]);
    expect(() => texts(both, { executable: '/a"b/agent' })).toThrow("quotes");
    expect(() => texts(both, { configRoot: "etc" })).toThrow("absolute");
    expect(() => texts(both, { configRoot: "/etc\nExecStart=/bin/sh" })).toThrow("absolute");
  });
});

describe("plans", () => {
  const nothing = {
    hasGroup: false,
    files: new Map<string, string>(),
    packaged: new Map<string, string>(),
    enabled: new Set<string>(),
  };
  const argvs = (changes: ReturnType<typeof systemdInstallation>) =>
    changes.flatMap((change) => (change.change === "run" ? [change.argv.slice(2).join(" ")] : []));

  test("the first installation creates the group, writes, reloads and starts", () => {
    const changes = systemdInstallation(both, places, nothing);
    expect(changes[0]).toEqual({ change: "run", argv: ["/usr/sbin/groupadd", "--system", "overlay-agent"] });
    expect(changes.filter(({ change }) => change === "file")).toHaveLength(5);
    expect(argvs(changes).slice(1)).toEqual([
      "daemon-reload",
      "enable --now overlay-agent@acme-2.service overlay-agent-auth.timer overlay-agent.service",
    ]);
  });

  test("unchanged units are neither reloaded nor restarted", () => {
    const state = { ...nothing, hasGroup: true, files: systemdUnits(both, places).files };
    expect(argvs(systemdInstallation(both, places, state))).toEqual([
      "enable --now overlay-agent@acme-2.service overlay-agent-auth.timer overlay-agent.service",
    ]);
  });

  test("only changed units are restarted", () => {
    const state = { ...nothing, hasGroup: true, files: systemdUnits(both, places).files };
    const changes = systemdInstallation(both, { ...places, engine: "/usr/bin/env" }, state);
    expect(argvs(changes)).toEqual([
      "daemon-reload",
      "enable --now overlay-agent@acme-2.service overlay-agent-auth.timer overlay-agent.service",
      "try-restart overlay-agent@acme-2.service",
    ]);
  });

  test("units of a package that say the same are used as they are, and replace copies in /etc", () => {
    const packaged = systemdUnits(both, places).files;
    const changes = systemdInstallation(both, places, { ...nothing, hasGroup: true, packaged });
    expect(changes.filter(({ change }) => change !== "run")).toEqual([]);
    expect(argvs(changes)).toEqual([
      "enable --now overlay-agent@acme-2.service overlay-agent-auth.timer overlay-agent.service",
    ]);
    const copied = systemdInstallation(both, places, {
      ...nothing,
      hasGroup: true,
      files: packaged,
      packaged,
    });
    expect(copied.filter(({ change }) => change === "remove")).toHaveLength(5);
    expect(argvs(copied)[0]).toBe("daemon-reload");
    // Another engine needs a unit of this machine, above the package's.
    const other = systemdInstallation(
      both,
      { ...places, engine: "/usr/bin/env" },
      { ...nothing, hasGroup: true, packaged },
    );
    expect(other.flatMap((each) => (each.change === "file" ? [each.path] : []))).toEqual([
      "/etc/systemd/system/overlay-agent@.service",
    ]);
    expect(argvs(other).at(-1)).toBe("try-restart overlay-agent@acme-2.service");
    expect(argvs(systemdRemoval(undefined, both, { files: new Map(), packaged }))).toContain("daemon-reload");
  });

  test("an organization that is now in desktop mode loses its own unit", () => {
    const files = systemdUnits(both, places).files;
    const enabled = new Set([engineUnit("home"), engineUnit("acme-2")]);
    expect(argvs(systemdInstallation(both, places, { ...nothing, hasGroup: true, files, enabled }))).toEqual([
      "disable --now overlay-agent@home.service",
      "enable --now overlay-agent@acme-2.service overlay-agent-auth.timer overlay-agent.service",
    ]);
  });

  test("removal stops the units first, and keeps those of other organizations", () => {
    const state = { ...nothing, files: systemdUnits(both, places).files };
    expect(argvs(systemdRemoval(undefined, both, state))).toEqual([
      "disable --now overlay-agent@acme-2.service overlay-agent-edge@acme-2.service overlay-agent-auth.timer overlay-agent.service",
      "stop overlay-agent-auth.service",
      "daemon-reload",
    ]);
    const two: OrganizationMode[] = [...both, { slug: "other", mode: "server" }];
    expect(argvs(systemdRemoval("other", two, state))).toEqual([
      "disable --now overlay-agent@other.service overlay-agent-edge@other.service",
    ]);
    expect(argvs(systemdRemoval("acme-2", both, state))).toEqual([
      "disable --now overlay-agent-auth.timer",
      "stop overlay-agent-auth.service",
      "disable --now overlay-agent@acme-2.service overlay-agent-edge@acme-2.service",
    ]);
    expect(systemdRemoval(undefined, both, { files: new Map(), packaged: new Map() })).toEqual([]);
  });

  test("names: installed once, restarted only after a change, removed with all units", () => {
    const fresh = namesInstallation(places, nothing);
    expect(argvs(fresh)).toEqual(["daemon-reload", "enable --now overlay-agent-names.service"]);
    const files = new Map([["overlay-agent-names.service", namesService(places, plain)]]);
    expect(argvs(namesInstallation(places, { files }))).toEqual(["enable --now overlay-agent-names.service"]);
    const moved = namesInstallation({ ...places, configRoot: "/srv/agent" }, { files });
    expect(argvs(moved).at(-1)).toBe("try-restart overlay-agent-names.service");
    const short = namesInstallation(places, { files }, { search: true, peers: [] });
    expect(argvs(short).at(-1)).toBe("try-restart overlay-agent-names.service");
    const answering = namesService(places, { search: false, peers });
    expect(answering).toContain("IPAddressAllow=localhost 10.77.0.0/16 fd00:77::/64\n");
    expect(
      argvs(namesInstallation(places, { files: new Map([["overlay-agent-names.service", answering]]) })),
    ).toHaveLength(1);
    expect(namesService(places, plain)).toContain("IPAddressAllow=localhost\n");
    expect(namesService(places, plain)).not.toContain("CAP_NET_BIND_SERVICE");
    // An update of the units keeps what was chosen; `names --on` chooses again.
    const chosen = new Map([["overlay-agent-names.service", namesService(places, { search: true, peers })]]);
    expect(argvs(namesInstallation(places, { files: chosen }))).toHaveLength(1);
    expect(argvs(namesInstallation(places, { files: chosen }, plain))).toHaveLength(3);
    const removal = [
      "disable --now overlay-agent-names.service",
      "clean --what=cache overlay-agent-names.service",
      "daemon-reload",
    ];
    expect(argvs(namesRemoval({ files }))).toEqual(removal);
    expect(argvs(systemdRemoval(undefined, both, { files, packaged: new Map() }))).toEqual(removal);
    expect(namesRemoval(nothing)).toEqual([]);
  });

  test("a plan changes nothing; after applying it, everything is the same", async () => {
    using directory = temporaryDirectory();
    const path = join(directory.path, "deep/unit");
    const changes = [{ change: "file" as const, path, content: "one\n", mode: 0o644 }];
    expect(planChanges(changes)).toMatchObject([{ step: "file", change: "created", mode: "0644" }]);
    expect(existsSync(path)).toBe(false);
    await applyChanges(changes, realSystem());
    expect(readFileSync(path, "utf8")).toBe("one\n");
    expect(planChanges(changes)).toMatchObject([{ change: "same" }]);
    const failing = [{ change: "run" as const, argv: ["/bin/sh", "-c", "echo why >&2; exit 3"] }];
    const said = await applyChanges([...failing, ...changes], realSystem()).catch(String);
    expect(said).toContain("failed: why");
    const silent = [{ change: "run" as const, argv: ["/bin/sh", "-c", "kill -KILL $$"] }];
    expect(await applyChanges(silent, realSystem()).catch(String)).toContain("failed: exit 137");
    await applyChanges(
      [
        { change: "remove", path },
        { change: "remove", path },
      ],
      realSystem(),
    );
    expect(existsSync(path)).toBe(false);
  });
});
