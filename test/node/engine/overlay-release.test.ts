// Where an engine's hash comes from: the signed list of releases, or the caller. An address that withholds the list gets
// nothing installed by a build with release keys.

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { rejection } from "../../pki/thrown.ts";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { brand, releaseAddressPath } from "../../../src/brand.ts";
import { buildInfo } from "../../../src/build-info.ts";
import { AppError } from "../../../src/base/errors.ts";
import { checkEngine, installEngine, planEngine } from "../../../src/node/engine/overlay-install.ts";
import { planRollBack, rollBackEngine } from "../../../src/node/engine/overlay-rollback.ts";
import {
  fetchEngine,
  findEngineRelease,
  planEngineRelease,
  type EngineSource,
} from "../../../src/node/engine/overlay-release.ts";
import { writeSeenSequence } from "../../../src/node/files/update-marker.ts";
import { checkForUpdate } from "../../../src/node/update/self-update.ts";
import { archiveName } from "../../../src/platform/engine-archive.ts";
import { findPackageManager } from "../../../src/platform/packages.ts";
import { trustingControlPlanes } from "../../../src/node/files/pinned-authorities.ts";
import { sha256Hex } from "../../../src/base/sha256.ts";
import { realSystem, type System } from "../../../src/base/system.ts";
import { signatureName } from "../../../src/release/manifest.ts";
import { makeRelease, makeReleaseKey } from "../../support/releases.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const key = makeReleaseKey();
const keysBefore = buildInfo.releaseKeys;
const hash = "a".repeat(64);
let directory: ReturnType<typeof temporaryDirectory>;
let stateDb: string;

const trust = (releaseKeys: readonly string[]) => Object.assign(buildInfo, { releaseKeys });
beforeAll(() => trust([key.text]));
afterAll(() => trust(keysBefore));
beforeEach(() => {
  directory = temporaryDirectory();
  stateDb = join(directory.path, "state/state.db");
});
afterEach(() => directory[Symbol.dispose]());

/** Every address answers `answer`, except that of the newest engine. */
function systemWith(answer: () => Promise<Response>) {
  const asked: string[] = [];
  const fetch = (url: string) => {
    asked.push(url);
    const location = "https://example.org/releases/tag/v1.11.1";
    return url === brand.engineLatestUrl
      ? Promise.resolve(new Response(null, { status: 302, headers: { location } }))
      : answer();
  };
  return { asked, system: trustingControlPlanes("/nonexist", { ...realSystem(), fetch }) };
}

const ours = "https://releases.example/";

/** As an executable that came with the address of its publisher. */
function installed<T extends System>(system: T): T {
  const executable = join(directory.path, "bin/agent");
  mkdirSync(join(directory.path, "lib/overlay-agent"), { recursive: true });
  writeFileSync(releaseAddressPath(executable, "linux"), `${ours}\n`);
  return { ...system, executable };
}

const missing = () => Promise.resolve(new Response("", { status: 404 }));
const away = () => Promise.reject(new Error("away"));

const failureOf = async (work: Promise<unknown>) => {
  const error = await work.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (!(error instanceof AppError)) throw new Error(`no failure: ${String(error)}`);
  return { code: error.code, message: error.message, hint: error.details.hint };
};

describe("without the signed list", () => {
  test("our own address gets no engine installed, and the hint has the lines to type", async () => {
    const { asked, system } = systemWith(missing);
    expect(await failureOf(findEngineRelease({}, stateDb, installed(system)))).toMatchObject({
      code: "release_unsigned",
      message: expect.stringContaining("The signed list of releases cannot be read"),
      hint:
        "Give the hash of the engine's archive: `agent overlay install --source release --version V --sha256 HEX`. " +
        "Or take the system's package: `agent overlay install --source package`.",
    });
    expect(asked).toEqual(["manifest.json", "manifest.json.minisig"].map((name) => ours + name));
    // Without an address nothing is asked.
    const none = systemWith(missing);
    expect(await failureOf(findEngineRelease({}, stateDb, none.system))).toMatchObject({
      code: "release_unsigned",
      message: expect.stringContaining("came without an address of releases"),
    });
    expect(none.asked).toEqual([]);
  });

  test("an address that others than root can change, or that is none, is refused with its file", async () => {
    const { asked, system } = systemWith(missing);
    const placed = installed(system);
    const file = releaseAddressPath(placed.executable, "linux");
    const refusal = async () => (await failureOf(findEngineRelease({}, stateDb, placed))).message;
    for (const damage of ["\0".repeat(1000), `https://${"a".repeat(3000)}/`, "https://x.example/\u001b[2J"]) {
      writeFileSync(file, damage);
      expect(await refusal()).toContain(`${file} holds no address of releases`);
    }
    writeFileSync(file, ours);
    for (const place of [file, dirname(file)]) {
      const { mode } = statSync(place);
      chmodSync(place, mode | 0o002);
      expect(await refusal()).toContain(`every user can write to ${place}`);
      chmodSync(place, mode);
    }
    expect(asked).toEqual([]);
  });

  test("an unreachable address keeps its code, so that --source auto asks the package manager", async () => {
    const { system } = systemWith(away);
    expect(await failureOf(findEngineRelease({}, stateDb, installed(system)))).toMatchObject({
      code: "control_plane_unreachable",
    });
  });

  test("a mirror is refused too, and its address is quoted in the hint", async () => {
    const source = { version: "1.11.1", releaseUrl: "https://mirror.example/$(id)/" };
    const { code, hint } = await failureOf(findEngineRelease(source, stateDb, systemWith(missing).system));
    expect(code).toBe("release_unsigned");
    expect(hint).toContain("--version 1.11.1 --sha256 HEX --release-url 'https://mirror.example/$(id)/'`");
  });

  test("a hash that the caller knows is enough", async () => {
    for (const known of [{ sha256: hash }, { isPinned: true }])
      expect(await findEngineRelease(known, stateDb, systemWith(missing).system)).toMatchObject({
        version: "1.11.1",
        sha256: known.sha256,
      });
  });

  test("a build without release keys asks the engine's own release", async () => {
    trust([]);
    try {
      const { asked, system } = systemWith(missing);
      expect(await findEngineRelease({}, stateDb, system)).toMatchObject({ version: "1.11.1" });
      expect(asked).toEqual([brand.engineLatestUrl]);
    } finally {
      trust([key.text]);
    }
  });
});

describe("a plan names exactly the requests of an installation", () => {
  const archive = Buffer.from("an archive");
  const sum = sha256Hex(archive);
  const file = archiveName(realSystem());
  const version = "1.11.1";
  const mirror = "https://mirror.example/engine/";

  /** The addresses that the plan names and those that an installation then asks. */
  async function plannedAndAsked(source: EngineSource, hasAddress: boolean) {
    const release = join(directory.path, "release");
    await makeRelease(
      release,
      { version: "0.2.0", executables: {}, engines: [{ version, file, sha256: sum }] },
      key,
    );
    const { asked, system: bare } = systemWith(missing);
    const answer = async (url: string) => {
      const newest = await bare.fetch(url);
      if (newest.status === 302) return newest;
      if (url.endsWith(file)) return new Response(archive);
      if (url.endsWith("SHASUM256.txt")) return new Response(`${sum}  ${file}\n`);
      return new Response(readFileSync(join(release, url.slice(url.lastIndexOf("/") + 1))));
    };
    const system = hasAddress ? installed({ ...bare, fetch: answer }) : { ...bare, fetch: answer };
    const planned = planEngineRelease(source, system);
    expect(asked).toEqual([]);
    const log = { debug() {}, info() {}, warn() {}, error() {} };
    await fetchEngine(await findEngineRelease(source, stateDb, system), { system, log });
    // The version of the newest engine is not known before an answer.
    const urls = planned.flatMap((step) => ("url" in step ? [step.url.replace("{version}", version)] : []));
    return [urls, asked] as const;
  }

  const sources: readonly EngineSource[] = [
    {},
    { version },
    { sha256: sum },
    { version, sha256: sum },
    { releaseUrl: mirror },
    { releaseUrl: mirror, version, sha256: sum },
  ];
  for (const source of sources)
    test(JSON.stringify(source), async () => {
      const [planned, asked] = await plannedAndAsked(source, true);
      expect(planned).toEqual(asked);
      expect(planned.length).toBeGreaterThan(2);
    });

  test("without an address of the list, with a hash", async () => {
    const [planned, asked] = await plannedAndAsked({ sha256: sum }, false);
    expect(planned).toEqual(asked);
  });

  test("by a build without release keys", async () => {
    trust([]);
    try {
      for (const source of sources) {
        const [planned, asked] = await plannedAndAsked(source, true);
        expect([source, planned]).toEqual([source, asked]);
      }
    } finally {
      trust([key.text]);
    }
  });

  test("--source auto names the package manager where there is no address", () => {
    const { system } = systemWith(missing);
    const places = { overlayBinary: join(directory.path, "overlay"), configRoot: directory.path, stateDb };
    const plan = () => planEngine({ source: "auto" }, { ...places, overlayBinaryGiven: true }, system);
    const manager = findPackageManager();
    if (manager === undefined) expect(plan).toThrow("came without an address of releases");
    else
      expect(plan().slice(0, manager.install.length)).toEqual(
        manager.install.map((argv) => ({ step: "run", argv })),
      );
  });

  test("a directory is no request", () => {
    expect(planEngineRelease({ releaseUrl: directory.path }, realSystem())).toEqual([]);
  });
});

test("the hint about an outdated list names no command that replaces the agent", async () => {
  const mirror = join(directory.path, "release");
  await makeRelease(mirror, { version: "0.2.0", sequence: 5, executables: {} }, key);
  writeSeenSequence(stateDb, 6);
  const found = findEngineRelease(
    { releaseUrl: mirror, version: "1.10.3" },
    stateDb,
    systemWith(away).system,
  );
  expect(await rejection(found)).toMatchObject({
    message: expect.stringContaining("is outdated"),
    details: { hint: expect.stringMatching(/^(?!.*self-update).*`agent overlay install --source file`/) },
  });
});

test("a signed list that is there, and has no engine for this machine, permits the engine's own release", async () => {
  const mirror = join(directory.path, "release");
  await makeRelease(mirror, { version: "0.2.0", sequence: 5, executables: {} }, key);
  const source = { releaseUrl: mirror, version: "1.10.3" };
  const found = await findEngineRelease(source, stateDb, systemWith(away).system);
  expect(found).toEqual({
    base: mirror,
    file: archiveName(realSystem()),
    version: "1.10.3",
    sha256: undefined,
  });
});

test.skipIf(findPackageManager() === undefined)(
  "--source auto asks the package manager where our own address has no list, never where a mirror fails",
  async () => {
    const places = { overlayBinary: join(directory.path, "overlay"), configRoot: directory.path, stateDb };
    const install = async (releaseUrl: string | undefined, answer = missing) => {
      const ran: string[] = [];
      const warned: string[] = [];
      const run: System["run"] = async ([program = ""]) => {
        ran.push(program);
        return { status: 1, stdout: "", stderr: "refused by the test", timedOut: false };
      };
      const log = { debug() {}, info() {}, error() {}, warn: (line: string) => void warned.push(line) };
      const isRoot = findPackageManager()?.name !== "brew";
      const deps = { system: { ...systemWith(answer).system, run, isRoot }, log };
      await failureOf(
        installEngine({ source: "auto", releaseUrl }, { ...places, overlayBinaryGiven: true }, deps),
      );
      return { hasRun: ran.length > 0, warned: warned.join() };
    };
    expect(await install(undefined)).toEqual({
      hasRun: true,
      warned: expect.stringContaining("The engine's release channel has no signed list"),
    });
    for (const answer of [missing, away])
      expect(await install("https://mirror.example/", answer)).toEqual({ hasRun: false, warned: "" });
  },
);

describe.each([
  ["with release keys", [key.text]],
  ["without release keys", []],
])("overlay update --check %s", (_, keys) => {
  beforeEach(() => trust(keys));
  afterEach(() => trust([key.text]));
  const log = { debug() {}, info() {}, warn() {}, error() {} };
  const check = (releaseUrl: string, answer = missing, sha256?: string) => {
    const places = { overlayBinary: join(directory.path, "overlay"), configRoot: directory.path, stateDb };
    const deps = { system: systemWith(answer).system, log };
    return checkEngine({ source: "auto", releaseUrl, sha256 }, { ...places, overlayBinaryGiven: true }, deps);
  };

  test("fails if the mirror's list cannot be read, also with a known hash", async () => {
    const unsigned = join(directory.path, "unsigned");
    await makeRelease(unsigned, { version: "0.2.0", sequence: 5, executables: {} }, key);
    rmSync(join(unsigned, signatureName));
    for (const sum of [undefined, hash]) {
      for (const mirror of ["/nonexist", unsigned, "https://mirror.example/"])
        expect(await failureOf(check(mirror, missing, sum))).toMatchObject({ code: "release_unsigned" });
      expect(await failureOf(check("https://mirror.example/", away, sum))).toMatchObject({
        code: "control_plane_unreachable",
        message: expect.stringContaining("The signed list of releases cannot be read"),
      });
    }
  });

  test("fails if the mirror's list names no engine", async () => {
    const mirror = join(directory.path, "release");
    await makeRelease(mirror, { version: "0.2.0", sequence: 5, executables: {} }, key);
    expect(await failureOf(check(mirror))).toMatchObject({
      code: "release_unsigned",
      message: expect.stringContaining("names one for this machine"),
    });
  });
});

describe("checking for an update", () => {
  const log = { debug: (line: string) => void lines.push(line) };
  const lines: string[] = [];
  const { system } = systemWith(away);
  const remembered = () => join(directory.path, "state/release.json");
  const ours = { [buildInfo.target]: Buffer.from("an executable") };
  const release = async (
    sequence: number,
    signer = key,
    expiresAt?: string,
    executables: Record<string, Uint8Array> = ours,
  ) => {
    const path = join(directory.path, `release-${sequence}`);
    rmSync(path, { recursive: true, force: true });
    const content = { version: "0.2.0", sequence, executables, ...(expiresAt && { expiresAt }) };
    await makeRelease(path, content, signer);
    return { releaseUrl: path, allowDowngrade: false };
  };
  const check = async (request: { releaseUrl: string; allowDowngrade: boolean }, more: object = {}) =>
    checkForUpdate(request, { stateDb, configRoot: directory.path, dryRun: false, ...more }, { system, log });

  test("remembers the highest release number, and refuses a lower one afterwards", async () => {
    await check(await release(5));
    expect(JSON.parse(readFileSync(remembered(), "utf8"))).toEqual({ sequence: 5 });
    const older = await release(4);
    expect(await failureOf(check(older))).toMatchObject({
      message: expect.stringContaining("its sequence number is 4, and this machine has seen 5"),
    });
    await check({ ...older, allowDowngrade: true });
    expect(JSON.parse(readFileSync(remembered(), "utf8"))).toEqual({ sequence: 5 });
    await check(await release(5));
  });

  test("a release that is foreign, expired or missing leaves no trace, nor does --dry-run", async () => {
    await failureOf(check(await release(1_000_000, makeReleaseKey())));
    await failureOf(check(await release(1_000_001, key, "2026-01-02T00:00:00Z")));
    await failureOf(check({ releaseUrl: join(directory.path, "nothing"), allowDowngrade: false }));
    await check(await release(7), { dryRun: true });
    expect(existsSync(remembered())).toBe(false);
    await check(await release(3));
  });

  test("a newer release without an executable for this machine is none that is available", async () => {
    const newer = await release(6, key, undefined, { "bun-other": Buffer.from("an executable") });
    expect((await failureOf(check(newer))).message).toBe(
      `Release 0.2.0 has no executable for ${buildInfo.target}`,
    );
  });

  test("works where nothing can be written", async () => {
    const request = await release(5);
    // A file is where the directory should be: root cannot write there either.
    const places = { stateDb: join(request.releaseUrl, "manifest.json/state.db") };
    expect(await check(request, places)).toMatchObject({ latest: "0.2.0" });
    expect(lines.join("\n")).toContain("cannot remember release number 5");
  });
});

test.skipIf(!existsSync("/usr/bin/nebula"))(
  "a rollback to the engine of a package links to it, and another one undoes that",
  async () => {
    const overlayBinary = join(directory.path, "overlay");
    writeFileSync(overlayBinary, "#!/bin/sh\necho Version: 1.13.0\n", { mode: 0o755 });
    const places = { overlayBinary, overlayBinaryGiven: false, configRoot: directory.path, stateDb };
    const deps = { system: realSystem(), log: { debug() {}, info() {}, warn() {}, error() {} } };
    expect(planRollBack(places, deps.system)).toMatchObject([
      { path: `${overlayBinary}.old` },
      { path: overlayBinary },
    ]);
    expect(await rollBackEngine(places, deps)).toMatchObject({ from: "1.13.0", source: "rollback" });
    expect(readlinkSync(overlayBinary)).toBe("/usr/bin/nebula");
    expect(await rollBackEngine(places, deps)).toMatchObject({ to: "1.13.0" });
  },
);
