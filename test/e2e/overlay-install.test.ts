// `agent overlay install` and `update` with real engines, archives and package manager: a good engine replaces the present
// one and can be rolled back, a bad one replaces nothing.

import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import {
  chmodSync,
  copyFileSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { agent, buildAgent, cleanEnvironment, runAgent, startControlPlane } from "../support/agent.ts";
import { inCi } from "../support/debian.ts";
import { archive, openChannel, packEngine, packFiles, type Channel } from "../support/engine-channel.ts";
import { asRoot, engines, missing } from "../support/engines.ts";
import { makeOrganization, registerNode } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { sha256Hex } from "../../src/base/sha256.ts";

const [older, newer] = engines;
if (inCi && (missing !== undefined || older === undefined || newer === undefined))
  throw new Error(`Two engines are needed: ${missing}`);

const directory = temporaryDirectory();
const packed = new Map<string, Uint8Array>();
let channel: Channel;
let place: string;
let overlay: string;

beforeAll(() => {
  buildAgent();
  for (const engine of engines) packed.set(engine.version, packEngine(directory.path, engine));
}, 240_000);

beforeEach(() => {
  channel = openChannel();
  for (const [version, bytes] of packed) channel.publish(version, bytes);
  place = mkdtempSync(join(directory.path, "place-"));
  overlay = join(place, "overlay");
});

afterAll(() => directory[Symbol.dispose]());

async function engine(verb: "install" | "update" | "check", ...flags: string[]) {
  const root = flags.includes("--config-root") ? [] : ["--config-root", join(directory.path, "none")];
  const places = ["--overlay-binary", overlay, "--state-db-path", join(directory.path, "state.db"), ...root];
  const { status, stdout, stderr } = await runAgent(["overlay", verb, ...flags, ...places, "--json"]);
  return { status, json: JSON.parse(stdout) as unknown, stderr };
}

const from = (version: string) => ["--release-url", channel.url, "--version", version, "--source", "release"];
/** The files in the engine's directory; links with their targets. */
const present = () =>
  Object.fromEntries(
    readdirSync(place).map((name) => {
      const path = join(place, name);
      return [name, lstatSync(path).isSymbolicLink() ? readlinkSync(path) : sha256Hex(readFileSync(path))];
    }),
  );
const program = (path: string) => sha256Hex(readFileSync(path));

describe.skipIf(older === undefined || newer === undefined)("with two engines", () => {
  if (older === undefined || newer === undefined) return;

  test("installs from the release channel, updates, and rolls back twice", async () => {
    expect(await engine("check")).toMatchObject({ status: 1, json: { installed: false } });
    const first = await engine("install", ...from(older.version));
    const sum = sha256Hex(packed.get(older.version) ?? new Uint8Array());
    expect(first).toMatchObject({
      status: 0,
      json: { from: null, to: older.version, source: "release", changed: true, path: overlay, sha256: sum },
    });
    expect(first.stderr).toContain("not signed");
    expect(present()).toEqual({ overlay: program(older.nebula) });
    expect(lstatSync(overlay).mode & 0o777).toBe(0o755);
    expect(await engine("check")).toMatchObject({
      status: 0,
      json: { installed: true, path: overlay, version: older.version, source: "installed" },
    });
    expect(await engine("install", ...from(older.version))).toMatchObject({ json: { changed: false } });

    expect(await engine("update", ...from(newer.version))).toMatchObject({
      status: 0,
      json: { from: older.version, to: newer.version, changed: true },
    });
    const updated = { overlay: program(newer.nebula), "overlay.old": program(older.nebula) };
    expect(present()).toEqual(updated);
    for (const wanted of [older.version, newer.version]) {
      const back = await engine("update", "--rollback");
      expect(back).toMatchObject({ status: 0, json: { to: wanted, source: "rollback", changed: true } });
    }
    expect(present()).toEqual(updated);
  }, 240_000);

  test("a mirror with one version and a given hash; never a lower version without a request", async () => {
    const mirror = channel.url.replace("{version}", older.version);
    copyFileSync(newer.nebula, overlay);
    const before = present();
    const lower = await engine("update", "--release-url", mirror);
    expect(lower).toMatchObject({
      status: 1,
      json: { error: { message: expect.stringContaining("older than the present") } },
    });
    expect(present()).toEqual(before);
    channel.files.delete(`/v${older.version}/SHASUM256.txt`);
    const sum = sha256Hex(packed.get(older.version) ?? new Uint8Array());
    const flags = ["--release-url", mirror, "--version", older.version, "--sha256", sum];
    const asked = await engine("update", ...flags);
    expect(asked).toMatchObject({ status: 0, json: { to: older.version, changed: true } });
    expect(asked.stderr).not.toContain("not signed");
  }, 240_000);

  test("installs an archive or a program from a file and prints its SHA-256", async () => {
    const file = join(place, "../engine.tar.gz");
    writeFileSync(file, packed.get(older.version) ?? "");
    const unpacked = await engine("install", "--source", "file", "--file", file);
    expect(unpacked).toMatchObject({
      status: 0,
      json: { to: older.version, source: "file", sha256: program(file) },
    });
    const plain = await engine(
      "update",
      "--file",
      newer.nebula,
      "--sha256",
      program(newer.nebula).toUpperCase(),
    );
    expect(plain).toMatchObject({ status: 0, json: { to: newer.version, source: "file", changed: true } });
    const before = present();
    for (const flags of [
      ["--file", older.nebula, "--version", older.version, "--sha256", "0".repeat(64)],
      ["--file", join(place, "nothing")],
      ["--file", place],
      ["--source", "file"],
    ]) {
      const { status } = await engine("install", ...flags);
      expect(status).toBe(flags.includes("--file") ? 1 : 2);
    }
    expect(present()).toEqual(before);
  }, 240_000);

  test("shows progress on a terminal only", async () => {
    const words = ["overlay", "install", ...from(newer.version), "--overlay-binary", overlay];
    const child = Bun.spawn(["script", "-qec", [agent, ...words].join(" "), "/dev/null"], {
      env: cleanEnvironment({ TERM: "xterm" }),
      stdin: "ignore",
    });
    const typescript = await new Response(child.stdout).text();
    expect(typescript).toContain(`${archive} [`);
    expect(typescript).toContain(`${overlay} is now ${newer.version}`);
    const { stderr } = await runAgent([
      "overlay",
      "install",
      ...from(older.version),
      "--overlay-binary",
      overlay,
    ]);
    expect(stderr).not.toContain("[#");
  }, 240_000);

  test("refuses an engine that does not accept a configuration in force", async () => {
    await using plane = await startControlPlane(mkdtempSync(join(directory.path, "plane-")));
    const acme = await makeOrganization(plane);
    const root = join(place, "../root");
    copyFileSync(older.nebula, overlay);
    await registerNode(acme, root, "one", await acme.makeToken(), ["--overlay-binary", overlay]);
    const before = present();
    const script = join(directory.path, "picky");
    writeFileSync(script, "#!/bin/sh\n[ $1 = -version ] && echo Version: 9.0.0 && exit 0\nexit 1\n", {
      mode: 0o755,
    });
    const picky = await engine("update", "--file", script, "--config-root", root);
    expect(picky).toMatchObject({
      status: 1,
      json: { error: { code: "engine_failed", message: expect.stringContaining("does not accept") } },
    });
    expect(present()).toEqual(before);
    // The new engine accepts the same configuration.
    const good = await engine("update", ...from(newer.version), "--config-root", root);
    expect(good).toMatchObject({ status: 0, json: { to: newer.version } });
  }, 240_000);
});

asRoot("the real apt", () => {
  test("links to the package manager's engine, which apt updates; a mirror that fails has no fallback", async () => {
    const direct = await engine("install", "--source", "package");
    expect(direct).toMatchObject({ status: 0, json: { from: null, source: "package", changed: true } });
    expect(readlinkSync(overlay)).toBe("/usr/bin/nebula");
    expect(await engine("check")).toMatchObject({ status: 0, json: { source: "package" } });
    const again = await engine("install", "--source", "package");
    expect(again).toMatchObject({ status: 0, json: { source: "package", changed: false } });
    for (const verb of ["install", "update"] as const) {
      const mirror = await engine(verb, "--release-url", "http://127.0.0.1:1/");
      expect(mirror).toMatchObject({
        status: 6,
        json: { error: { code: "control_plane_unreachable" } },
        stderr: expect.not.stringContaining("package manager"),
      });
    }
    // Without any network the package of the system is there already, and says nothing of newer engines.
    const places = ["--overlay-binary", overlay, "--state-db-path", join(directory.path, "state.db")];
    const offline = (verb: string) =>
      runAgent(["overlay", verb, ...places, "--config-root", join(directory.path, "none"), "--json"], {
        inside: (argv) => ["unshare", "--net", ...argv],
      });
    const before = present();
    const { status, stdout } = await offline("update");
    expect([status, JSON.parse(stdout)]).toMatchObject([
      6,
      {
        error: {
          code: "control_plane_unreachable",
          message: expect.stringMatching(
            /^The engine stays \S+: .*, and the system's package has the same version$/,
          ),
          hint: expect.stringContaining("agent overlay update --file FILE --sha256 HEX"),
        },
      },
    ]);
    expect(present()).toEqual(before);
    expect((await offline("install")).status).toBe(0);
  }, 110_000);
});

/** Bad archives and programs: the expected message, and how to make them in a directory. */
const elf = "a program for another processor";
const hostile: [string, string, (work: string) => Uint8Array][] = [
  [
    "a truncated archive",
    "it is damaged or too large",
    (work) => packFiles(work, ["nebula"]).subarray(0, 100),
  ],
  ["an archive without the engine", "contains no file", (work) => packFiles(work, ["other"])],
  [
    "a path that leads out",
    "contains no file",
    (work) => packFiles(work, ["nebula"], ["-P", "--transform=s,^,../,"]),
  ],
  [
    "a symbolic link",
    "not a regular file",
    (work) => {
      symlinkSync("/usr/bin/nebula", join(work, "link"));
      return packFiles(work, ["link"], ["--transform=s,^link$,nebula,"]);
    },
  ],
  [
    "a hard link",
    "not a regular file",
    (work) => {
      linkSync(join(work, "other"), join(work, "hard"));
      return packFiles(work, ["other", "hard"], ["--transform=s,^hard$,nebula,"]);
    },
  ],
  [
    "two engines in one archive",
    "more than once",
    (work) => packFiles(work, ["nebula", "nebula"], ["--hard-dereference"]),
  ],
  [
    "a program that is not an engine",
    "does not run on this machine, or is not an engine",
    (work) => packFiles(work, ["nebula"]),
  ],
  [
    elf,
    "does not run on this machine",
    (work) => {
      const bytes = readFileSync("/usr/bin/nebula");
      // e_machine of the ELF header: a SPARC.
      bytes.writeUInt16LE(2, 18);
      writeFileSync(join(work, "nebula"), bytes);
      chmodSync(join(work, "nebula"), 0o755);
      return packFiles(work, ["nebula"]);
    },
  ],
  [
    "an engine on the refused list",
    "CVE-2025-62820",
    (work) => {
      writeFileSync(join(work, "nebula"), "#!/bin/sh\necho Version: 1.9.5\n", { mode: 0o755 });
      return packFiles(work, ["nebula"]);
    },
  ],
  [
    "an engine of another version than announced",
    "not 1.10.0",
    (work) => {
      writeFileSync(join(work, "nebula"), "#!/bin/sh\necho Version: 1.10.1\n", { mode: 0o755 });
      return packFiles(work, ["nebula"]);
    },
  ],
];
for (const [what, said, make] of hostile) {
  test.skipIf(older === undefined)(`${what}: nothing is replaced`, async () => {
    const work = mkdtempSync(join(directory.path, "work-"));
    for (const name of ["nebula", "other"])
      writeFileSync(join(work, name), "#!/bin/sh\necho hello\n", { mode: 0o755 });
    copyFileSync(older?.nebula ?? "", overlay);
    const before = present();
    channel.publish("1.10.0", make(work));
    const { status, json } = await engine("update", ...from("1.10.0"));
    expect({ status, json }).toMatchObject({
      status: 1,
      json: { error: { message: expect.stringContaining(said) } },
    });
    expect(present()).toEqual(before);
  });
}

test("a wrong hash, a sum file without a line and a short download replace nothing", async () => {
  const bytes = packed.get(newer?.version ?? "") ?? new Uint8Array(100_000);
  channel.publish("1.0.1", bytes, "0".repeat(64));
  channel.files.set(`/v1.0.2/${archive}`, bytes);
  channel.files.set("/v1.0.2/SHASUM256.txt", Buffer.from(`${sha256Hex(bytes)}  other.tar.gz\n`));
  mkdirSync(join(place, "sub"));
  using short = Bun.listen({
    hostname: "127.0.0.1",
    port: 0,
    socket: {
      data(socket) {
        socket.end(`HTTP/1.1 200 OK\r\nContent-Length: ${bytes.length}\r\n\r\n${"x".repeat(5000)}`);
      },
    },
  });
  const cut = [
    "--source",
    "release",
    "--release-url",
    `http://127.0.0.1:${short.port}/`,
    "--sha256",
    sha256Hex(bytes),
  ];
  for (const [flags, said] of [
    [from("1.0.1"), "1.0.1"],
    [from("1.0.2"), "1.0.2"],
    [from("1.10.9"), "404"],
    [cut, "Cannot download"],
  ] as const) {
    const { status, json } = await engine("install", ...flags);
    expect(`${status} ${JSON.stringify(json)}`).toMatch(/^[16] \{"error"/);
    expect(JSON.stringify(json)).toContain(said);
  }
  expect(readdirSync(place)).toEqual(["sub"]);
});
