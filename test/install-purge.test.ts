// `sh install --uninstall` on a machine with foreign data: a mount namespace gives the script its own /etc, /run, /usr/local
// and /var. It may delete only files that a node creates.

import { expect, test } from "bun:test";
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { asRoot } from "./support/engines.ts";
import { shells } from "./support/install-script.ts";
import { temporaryDirectory } from "./support/temporary.ts";

const script = join(import.meta.dir, "../install");
/** /run last: mount(8) makes a directory there. */
const places = ["etc", "usr/local", "var", "run"];
const organization =
  "host.key node.key credentials.json orders.json api-ca.crt auth-revoked.json stopped lock permissions.json hosts.json " +
  "node-config.copy.json resolved.json exit-block.nft run/exit.json run/ctl.sock run/local-changes.json run/peers.json run/peer-map.json run/tcp.json run/.tcp.json.7.tmp run/.local-changes.json.7.tmp generations/3/ca.crt " +
  "generations/3/host.crt generations/3/node.crt generations/3/config.yml generations/3/node-config.json " +
  "generations/3/test.yml generations/3/server.yml generations/3/sync.json generations/3/taken-up";
const state =
  "state.db state.db-wal state.db.lock state.db.root state.db.stopped release.json update.json update-run-acme.lock drill-acme.lock lock logs/acme.log logs/acme.log.1 logs/acme.log.hang";
const units =
  "overlay-agent.service overlay-agent-auth.service overlay-agent-auth.timer overlay-agent-edge@.service overlay-agent@.service";
const server =
  "control.db control.db-wal control.db.v3-2026-01-01T00-00-00Z secret.key data.begun serve.lock archive/events-1-1-20.jsonl";

type Machine = Disposable & {
  put(below: string, ...names: string[]): void;
  link(path: string, target: string): void;
  append(path: string, line: string): void;
  install(flags: string, around?: string, shell?: readonly string[]): { status: number; said: string };
  /** Every file and link below the places, and every directory that is empty, sorted. */
  files(): string[];
  text(path: string): string;
};

function makeMachine(): Machine {
  const directory = temporaryDirectory();
  const at = (path: string) => join(directory.path, path);
  for (const place of [...places, "usr/local/bin"]) mkdirSync(at(place), { recursive: true });
  const walk = (path: string): string[] =>
    readdirSync(at(path), { withFileTypes: true }).flatMap((entry) => {
      const below = `${path}/${entry.name}`;
      if (!entry.isDirectory()) return [below];
      const inside = walk(below);
      return inside.length > 0 || below === "usr/local/bin" ? inside : [`${below}/`];
    });
  const machine: Machine = {
    put(below, ...names) {
      for (const name of names) {
        mkdirSync(dirname(at(join(below, name))), { recursive: true });
        writeFileSync(at(join(below, name)), `${name}\n`);
      }
    },
    link(path, target) {
      mkdirSync(dirname(at(path)), { recursive: true });
      symlinkSync(target, at(path));
    },
    append(path, line) {
      appendFileSync(at(path), line);
    },
    install(flags, around = '"$@"', shell = ["sh"]) {
      const mounts = places.map((place) => `mount --bind ${at(place)} /${place}`).join(" && ");
      const argv = ["unshare", "--mount", "sh", "-c", `${mounts} && ${around}`, "sh", ...shell, script];
      const { exitCode, stdout, stderr } = Bun.spawnSync([...argv, ...flags.split(" ")], {
        env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL: "C" },
        stdin: "ignore",
      });
      return { status: exitCode, said: stdout.toString() + stderr.toString() };
    },
    files: () => places.flatMap(walk).sort(),
    text: (path) => readFileSync(at(path), "utf8"),
    [Symbol.dispose]: () => directory[Symbol.dispose](),
  };
  machine.put("etc", "group");
  return machine;
}

function putNode(machine: Machine): void {
  machine.put("usr/local/bin", "agent", "agent.old", ".agent.lock");
  machine.put("etc/systemd/system", ...units.split(" "));
  const wants = "etc/systemd/system/multi-user.target.wants";
  machine.link(`${wants}/overlay-agent.service`, "/etc/systemd/system/overlay-agent.service");
  machine.link(`${wants}/overlay-agent@acme.service`, "/etc/systemd/system/overlay-agent@.service");
  machine.put("etc/overlay-agent/acme", ...organization.split(" "));
  machine.link("etc/overlay-agent/acme/current", "generations/3");
  for (const name of ["ca.crt", "host.crt", "node.crt", "config.yml", "node-config.json"])
    machine.link(`etc/overlay-agent/acme/${name}`, `current/${name}`);
  machine.put("etc/overlay-agent/.other.pending", "host.key", "lock");
  machine.put("var/lib/overlay-agent", ...state.split(" "));
  machine.put("run/overlay-agent", "cmd.sock", "cmd.sock.lock");
  machine.put(
    "run/overlay-agent-health",
    "acme.json",
    "acme.probes.json",
    "acme.healing.json",
    "acme.reported.json",
  );
  for (const place of ["var/cache/overlay-agent-names", "var/lib/overlay-agent"])
    machine.put(place, "names.packed", ".names.packed.7.tmp");
  machine.put("var/lib/overlay-agent", "names-on.json", "names-state.json", ".names-state.json.7.tmp");
  machine.link("usr/local/bin/overlay", "/usr/bin/nebula");
}

/** What others have put where the product's own files lie. */
function putForeign(machine: Machine): void {
  machine.put("etc/systemd/system", "overlay-agent-serve.service", "overlay-agent-backup.timer");
  machine.put("etc/systemd/system", "overlay-agent@special.service", "overlay-agent.service.d/own.conf");
  const wants = "etc/systemd/system/multi-user.target.wants";
  machine.link(`${wants}/overlay-agent-serve.service`, "/etc/systemd/system/overlay-agent-serve.service");
  machine.link(`${wants}/overlay-agent@special.service`, "/etc/systemd/system/overlay-agent@special.service");
  machine.put("etc/overlay-agent", "notes.txt", "acme/overrides.yml", "acme.bak/host.key", "tls/server.key");
  machine.put("etc/overlay-agent", "acme/generations/mine/ca.crt");
  machine.link("etc/overlay-agent/linked", "/var/backups/linked");
  machine.put("var/backups/linked", "host.key", "credentials.json");
  machine.put("var/lib/overlay-agent", "backups/control.db", "state.db.copy", "moved/control.db");
  machine.put("run/overlay-agent", "serve.pid");
  machine.put("usr/local/bin", "overlay.old");
  machine.put("var/cache/overlay-agent-names", "notes.txt");
}

/** Left over from a purge: each is named once by its own path, or by that of its directory. */
const named = (path: string, said: string) =>
  said
    .split("\n")
    .some((line) => line.startsWith("kept: ") && `/${path}`.startsWith(line.slice(6).split(" ")[0] ?? ""));

asRoot("install --uninstall", () => {
  test("--purge deletes all files of a node", () => {
    using machine = makeMachine();
    putNode(machine);
    const before = machine.files();
    const plan = machine.install("--uninstall --purge --dry-run");
    expect(plan.status).toBe(0);
    expect(plan.said).not.toContain("kept:");
    expect(machine.files()).toEqual(before);
    expect(machine.install("--uninstall --purge")).toMatchObject({ status: 0 });
    expect(machine.files().filter((path) => path.includes("overlay") || path.includes("agent"))).toEqual([]);
  });

  test("it takes back what exits changed of the kernel, and a mapping of the router, where there is one", () => {
    const undo = "/usr/local/bin/agent edge --undo";
    for (const [file, text, isUndone] of [
      ["permissions.json", '{"exit":{}}', true],
      ["run/port-mapping.json", '{"mapped":{}}', true],
      ["run/port-mapping.json", '{"refused":"it does not allow port mappings"}', false],
    ] as const) {
      using machine = makeMachine();
      putNode(machine);
      machine.put("etc/overlay-agent/acme", file);
      machine.append(`etc/overlay-agent/acme/${file}`, text);
      // In a network of its own, whose kernel has no tables of ours.
      const around = 'chmod +x /usr/local/bin/agent && unshare --net "$@"';
      const { said } = machine.install("--uninstall --dry-run", around);
      expect(said.includes(undo)).toBe(isUndone);
    }
  });

  test("--purge knows each file that the agent names in an organization's directory", () => {
    const sources = [...new Bun.Glob("src/{node,daemon}/**/*.ts").scanSync({ cwd: dirname(script) })];
    const named = sources.flatMap((path) =>
      [
        ...readFileSync(join(dirname(script), path), "utf8").matchAll(/join\(directory, "([\w.-]+\.\w+)"\)/g),
      ].map(([, name = ""]) => name),
    );
    // The administrator's own file stays; the other one is not in such a directory.
    const own = new Set(named.filter((name) => !["overrides.yml", "state.db"].includes(name)));
    expect(own.size).toBeGreaterThan(8);
    const [, list = ""] = /^purge_organization\(\) \{\n([^]*?)^\}/m.exec(readFileSync(script, "utf8")) ?? [];
    expect([...own].filter((name) => !list.split(/[\s"]+/).includes(name))).toEqual([]);
  });

  const shellsHere = Object.values(shells).filter(([program = ""]) => existsSync(program));
  for (const shell of shellsHere)
    test(`--purge keeps and names a control plane and foreign files: ${shell.join(" ")}`, () => {
      using machine = makeMachine();
      putForeign(machine);
      machine.put("var/lib/overlay-agent/server", ...server.split(" "));
      const foreign = machine.files().filter((path) => path !== "etc/group");
      putNode(machine);
      const plan = machine.install("--uninstall --purge --dry-run", undefined, shell).said;
      const { status, said } = machine.install("--uninstall --purge", undefined, shell);
      expect(status).toBe(0);
      const left = machine.files().filter((path) => !/^etc\/(group|systemd)/.test(path));
      expect(left).toEqual(foreign.filter((path) => !path.startsWith("etc/systemd")));
      expect(machine.files().filter((path) => path.startsWith("etc/systemd"))).toEqual(
        foreign.filter((path) => path.startsWith("etc/systemd")),
      );
      expect(said).toContain(
        "kept: /var/lib/overlay-agent/server (a control plane; --purge-control-plane deletes it)",
      );
      const below = left.filter((path) => /^(etc|var\/lib|run)\/overlay-agent\//.test(path));
      expect(below.filter((path) => !named(path, said))).toEqual([]);
      expect(below.filter((path) => !named(path, plan))).toEqual([]);
      expect(said).toContain("kept: /usr/local/bin/overlay.old (not an overlay engine)");
    });

  test("--purge-control-plane deletes the control plane's own files", () => {
    using machine = makeMachine();
    putNode(machine);
    machine.put("var/lib/overlay-agent/server", ...server.split(" "), "export/acme/ca.key", "audit.log");
    expect(machine.install("--uninstall --purge --purge-control-plane")).toMatchObject({
      status: 0,
      said: expect.stringContaining("kept: /var/lib/overlay-agent/server/audit.log"),
    });
    expect(machine.files().filter((path) => path.includes("overlay-agent"))).toEqual([
      "var/lib/overlay-agent/server/audit.log",
      "var/lib/overlay-agent/server/export/acme/ca.key",
    ]);
  });

  test("--purge-control-plane deletes the service that `agent setup` made, with its user; --purge alone keeps it", () => {
    using machine = makeMachine();
    putNode(machine);
    const control = [
      "etc/overlay-agent/control-plane.toml",
      "etc/sysctl.d/60-overlay-agent-control.conf",
      "etc/systemd/system/overlay-agent-control.service",
      "var/lib/overlay-agent/server/control.db",
      "var/lib/overlay-agent/server/secret.key",
    ];
    machine.put(".", ...control);
    const wants = "etc/systemd/system/multi-user.target.wants/overlay-agent-control.service";
    machine.link(wants, "/etc/systemd/system/overlay-agent-control.service");
    const user = "overlay-agent-control:x:990:990::/var/lib/overlay-agent/server:/usr/sbin/nologin\n";
    machine.append("etc/passwd", `root:x:0:0::/root:/bin/sh\n${user}`);
    machine.append("etc/group", "root:x:0:\noverlay-agent-control:x:990:\n");
    const kept = [...control, wants].sort();
    const ours = () => machine.files().filter((path) => path.includes("overlay-agent"));
    expect(machine.install("--uninstall --purge")).toMatchObject({ status: 0 });
    expect(ours().sort()).toEqual(kept);
    expect(machine.text("etc/passwd")).toContain("overlay-agent-control");
    expect(machine.install("--uninstall --purge --purge-control-plane")).toMatchObject({ status: 0 });
    expect(ours()).toEqual([]);
    expect(machine.text("etc/passwd")).toBe("root:x:0:0::/root:/bin/sh\n");
  });

  test("a running control plane is not purged, and uninstalling warns about it", () => {
    using machine = makeMachine();
    putNode(machine);
    machine.put("var/lib/overlay-agent/server", ...server.split(" "));
    const before = machine.files();
    const running = 'exec 9<>/var/lib/overlay-agent/server/control.db && "$@"';
    for (const shell of shellsHere)
      expect(machine.install("--uninstall --purge --purge-control-plane", running, shell)).toMatchObject({
        status: 1,
        said: expect.stringContaining("stop it, then run this again"),
      });
    expect(machine.files()).toEqual(before);
    const { status, said } = machine.install("--uninstall", running);
    expect(status).toBe(0);
    expect(said).toContain("A control plane uses /var/lib/overlay-agent/server. It cannot start again");
    expect(machine.text("var/lib/overlay-agent/server/secret.key")).toBe("secret.key\n");
    expect(machine.text("etc/overlay-agent/acme/host.key")).toBe("host.key\n");
  });

  test.each(shellsHere)(
    "a container's control plane, which names its own files alike, is not the machine's: %s %s",
    (...shell) => {
      using machine = makeMachine();
      putNode(machine);
      machine.put("var/lib/overlay-agent/server", ...server.split(" "));
      const own = "mount -t tmpfs none /var/lib/overlay-agent && mkdir /var/lib/overlay-agent/server";
      const open = "exec 9<>/var/lib/overlay-agent/server/control.db && echo open && exec sleep 60";
      const container = `coproc unshare --mount sh -c '${own} && ${open}'; read -r _ <&"\${COPROC[0]}"; "$@"; status=$?; kill "$COPROC_PID"; exit $status`;
      const { status, said } = machine.install(
        "--uninstall --purge --purge-control-plane",
        `bash -c '${container.replaceAll("'", "'\\''")}' bash "$@"`,
        shell.filter((word) => typeof word === "string"),
      );
      expect([status, said]).toEqual([0, expect.not.stringContaining("uses /var/lib")]);
      expect(machine.files().filter((path) => path.includes("server/"))).toEqual([]);
    },
  );

  test("does not follow links in place of our directories", () => {
    using machine = makeMachine();
    machine.put("var/backups/etc/acme", "host.key", "credentials.json");
    machine.put("var/backups/lib", "state.db", "server/control.db", "logs/acme.log");
    machine.link("etc/overlay-agent", "/var/backups/etc");
    machine.link("var/lib/overlay-agent", "/var/backups/lib");
    const before = machine.files();
    const { status, said } = machine.install("--uninstall --purge --purge-control-plane");
    expect(status).toBe(0);
    expect(machine.files()).toEqual(before);
    for (const path of ["/etc/overlay-agent", "/var/lib/overlay-agent"])
      expect(said).toContain(`kept: ${path} (a link)`);
  });

  test("keeps a directory of the administrator that looks like an organization but has no keys", () => {
    using machine = makeMachine();
    machine.put("etc/overlay-agent/templates", "config.yml", "ca.crt");
    const before = machine.files();
    expect(machine.install("--uninstall --purge").said).toContain("kept: /etc/overlay-agent/templates");
    expect(machine.files()).toEqual(before);
  });
});

asRoot("what a purge says", () => {
  test("names the organizations that still list this machine, and nothing that is not so", () => {
    using machine = makeMachine();
    for (const slug of ["acme", "other"])
      machine.put(`etc/overlay-agent/${slug}`, "host.key", "credentials.json");
    machine.put("etc/systemd/system", "overlay-agent-names.service");
    machine.put("etc", "hosts");
    const first = machine.install("--uninstall --purge");
    for (const slug of ["acme", "other"]) {
      expect(first.said).toContain(`still lists this machine's node in ${slug}.`);
      expect(first.said).toContain(`agent admin node delete ${slug} NAME\n`);
    }
    // The executable is gone already, as after the removal of a package: its names were cleared then.
    expect(first.said).not.toMatch(/not found|Names/);
    const second = machine.install("--uninstall --purge");
    expect(second).toEqual({ status: 0, said: "" });
    machine.append("etc/hosts", "# BEGIN overlay-agent names: written by `agent names`\n");
    machine.put("etc/systemd/system", "overlay-agent-names.service");
    expect(machine.install("--uninstall --purge").said).toContain("Names are left in /etc/hosts");
  });
});
