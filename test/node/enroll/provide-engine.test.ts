// Which engine a machine gets: what is installed, and what --dry-run lists, follow from the same candidates.

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { AppError } from "../../../src/base/errors.ts";
import type { Step } from "../../../src/base/plan/plan.ts";
import { realSystem, type System } from "../../../src/base/system.ts";
import { releaseAddressPath } from "../../../src/brand.ts";
import { buildInfo } from "../../../src/build-info.ts";
import { makeGate } from "../../../src/daemon/start-checks.ts";
import { can } from "../../../src/engine/features.ts";
import { planMissing } from "../../../src/node/demo/demo.ts";
import { engineVersion } from "../../../src/node/engine/engine.ts";
import { planProvision, provideEngine, type Newcomer } from "../../../src/node/enroll/provide-engine.ts";
import { readSyncState, writeSyncState } from "../../../src/node/files/generations.ts";
import { archiveName } from "../../../src/platform/engine-archive.ts";
import { signatureName } from "../../../src/release/manifest.ts";
import { packEngine } from "../../support/engine-channel.ts";
import { engines } from "../../support/engines.ts";
import { emptyMachine } from "../../support/machine.ts";
import { makeNodeWorld } from "../../support/node.ts";
import { makeRelease, makeReleaseKey } from "../../support/releases.ts";
import { temporaryDirectory } from "../../support/temporary.ts";
import { sha256Hex } from "../../../src/base/sha256.ts";

const key = makeReleaseKey();
const keysBefore = buildInfo.releaseKeys;
let directory: ReturnType<typeof temporaryDirectory>;

beforeAll(() => Object.assign(buildInfo, { releaseKeys: [key.text] }));
afterAll(() => Object.assign(buildInfo, { releaseKeys: keysBefore }));
beforeEach(() => {
  directory = temporaryDirectory();
});
afterEach(() => directory[Symbol.dispose]());

const ours = "https://releases.example/";

/** As an executable that came with the address of its publisher. */
function installed<T extends System>(system: T): T {
  const executable = join(directory.path, "bin/agent");
  mkdirSync(join(directory.path, "lib/overlay-agent"), { recursive: true });
  writeFileSync(releaseAddressPath(executable, "linux"), `${ours}\n`);
  return { ...system, executable };
}

const away = () => Promise.reject(new Error("away"));

const packaged = "/usr/bin/nebula";
const [newest] = engines.filter(({ version }) => can(version, "offloads"));
const isOld = existsSync(packaged) && process.getuid?.() === 0 && newest !== undefined;

const settings = () => ({
  configRoot: join(directory.path, "root"),
  overlayBinary: join(directory.path, "overlay"),
  overlayBinaryGiven: false,
  stateDb: join(directory.path, "state/state.db"),
  socketPath: "",
  pipeName: "",
  autostart: true,
});

/** The log of `agent up` on this machine. */
async function provide(answer: (url: string) => Promise<Response>, newcomer?: Newcomer, places = settings()) {
  const said: string[] = [];
  const note = (message: string) => void said.push(message);
  const system = installed({ ...realSystem(), fetch: answer });
  const log = { debug: () => undefined, info: note, warn: note, error: note };
  mkdirSync(places.configRoot, { recursive: true });
  await provideEngine(places, { system, log }, newcomer);
  return { said: said.join("\n"), path: places.overlayBinary };
}

/** A release with the newest engine; its list, and the archive. */
async function publish() {
  if (newest === undefined) throw new Error("No engine with offloads");
  const packed = packEngine(directory.path, newest);
  const release = join(directory.path, "release");
  const file = archiveName(realSystem());
  const engine = { version: newest.version, file, sha256: sha256Hex(packed) };
  await makeRelease(release, { version: "0.2.0", executables: {}, engines: [engine] }, key);
  const list = (url: string) =>
    new Response(readFileSync(join(release, url.slice(url.lastIndexOf("/") + 1))));
  return { version: newest.version, file, list, archive: () => new Response(Buffer.from(packed)) };
}

describe("a machine without an engine", () => {
  const without = () => ({ ...settings(), overlayBinaryGiven: true });
  const theirs = "https://control.example/releases/";
  const newcomer = { slug: "acme", apiBase: "https://control.example/" };
  const urlsOf = (plan: readonly Step[]) => plan.flatMap((step) => ("url" in step ? [step.url] : []));

  test.skipIf(newest === undefined)(
    "gets the one that its control plane offers, as --dry-run says",
    async () => {
      const { version, file, list, archive } = await publish();
      const asked: string[] = [];
      const answer = async (url: string) => {
        asked.push(url);
        if (!url.startsWith(theirs)) throw new Error("away");
        return url.endsWith(file) ? archive() : list(url);
      };
      const system = installed({ ...realSystem(), fetch: answer });
      const plan = await planProvision(without(), system, newcomer);
      expect(urlsOf(plan).at(-1)).toBe(theirs + file);
      expect(urlsOf(plan)).toEqual([...new Set(urlsOf(plan))]);
      asked.length = 0;
      const { said, path } = await provide(answer, newcomer, without());
      expect(said).toContain(`installing ${version}`);
      expect(await engineVersion(path, realSystem())).toBe(version);
      expect(asked.at(-1)).toBe(theirs + file);
      expect([...new Set(asked)].sort()).toEqual([...new Set(urlsOf(plan))].sort());
      expect(await planProvision(without(), system, newcomer)).toEqual([]);
    },
  );

  test.skipIf(newest === undefined)(
    "gets that of the own list, where the control plane has none",
    async () => {
      const { file, list, archive } = await publish();
      const answer = async (url: string) => {
        if (url.startsWith(theirs)) return new Response("", { status: 404 });
        return url.endsWith(file) ? archive() : list(url);
      };
      const system = installed({ ...realSystem(), fetch: answer });
      const planned = urlsOf(await planProvision(without(), system, newcomer));
      expect(planned[0]).toBe(`${theirs}manifest.json`);
      expect(planned.at(-1)).not.toStartWith(theirs);
      const { path } = await provide(answer, newcomer, without());
      expect(await engineVersion(path, realSystem())).toBe(newest?.version ?? "");
    },
  );
});

describe("an old engine of the system's package", () => {
  test.if(isOld)(
    "is replaced by the newest one of the signed list, before the first organization",
    async () => {
      const { version, list, archive } = await publish();
      const { said, path } = await provide(async (url) => (url.startsWith(ours) ? list(url) : archive()));
      expect(said).toContain(`installing ${version}`);
      expect(await engineVersion(path, realSystem())).toBe(version);
      expect(await planProvision(settings(), installed(realSystem()))).toEqual([]);
    },
  );

  test.if(isOld)(
    "is replaced from what the control plane serves, with the archive or without, where the own list is away",
    async () => {
      const { version, file, list, archive } = await publish();
      for (const hasArchive of [true, false]) {
        rmSync(settings().overlayBinary, { force: true });
        const asked: string[] = [];
        const { said, path } = await provide(
          async (url) => {
            asked.push(url);
            const isTheirs = url.startsWith("https://control.example/releases/");
            if (!url.endsWith(file)) return isTheirs ? list(url) : away();
            return isTheirs && !hasArchive ? new Response("", { status: 404 }) : archive();
          },
          { slug: "acme", apiBase: "https://control.example/" },
        );
        expect(said).toContain(`installing ${version}`);
        expect(await engineVersion(path, realSystem())).toBe(version);
        const theirs = `https://control.example/releases/${file}`;
        expect(asked.filter((url) => url.endsWith(file))[0]).toBe(theirs);
        expect(asked.at(-1) === theirs).toBe(hasArchive);
      }
    },
  );

  test.if(isOld)("stays with a list of the control plane that another key has signed", async () => {
    const { list, archive, file } = await publish();
    const forged = async (url: string) =>
      url.endsWith("minisig")
        ? new Response("untrusted comment: x\nAAAA\n")
        : url.endsWith(file)
          ? archive()
          : list(url);
    const { path } = await provide(
      async (url) => (url.startsWith("https://control.example/") ? forged(url) : away()),
      { slug: "acme", apiBase: "https://control.example/" },
    );
    expect(existsSync(path)).toBe(false);
  });

  test.if(isOld)("is warned of once, though `agent up` asks before and after the registration", async () => {
    const said: string[] = [];
    const note = (message: string) => void said.push(message);
    const log = { debug: () => undefined, info: () => undefined, warn: note, error: note };
    const system = { ...installed(realSystem()), fetch: away };
    mkdirSync(settings().configRoot, { recursive: true });
    for (const _ of "12") await provideEngine(settings(), { system, log }, { slug: "acme" });
    expect(said.filter((each) => each.includes("is old"))).toHaveLength(1);
  });

  test.if(isOld)("stays while another organization runs with it, also for `doctor --fix`", async () => {
    const { list, archive } = await publish();
    const other = join(settings().configRoot, "other");
    mkdirSync(other, { recursive: true });
    writeFileSync(join(other, "node-config.json"), JSON.stringify({ schema: 1, mode: "server" }));
    for (const newcomer of [{ slug: "acme" }, undefined]) {
      const { path } = await provide(async (url) => (url.startsWith(ours) ? list(url) : archive()), newcomer);
      expect(existsSync(path)).toBe(false);
      expect(await planProvision(settings(), installed(realSystem()), newcomer)).toEqual([]);
    }
  });

  test.if(isOld)(
    "does not start in the place of a newer one whose file is gone, in desktop mode either",
    async () => {
      await using world = await makeNodeWorld();
      const organization = await world.register();
      const system = { ...installed(realSystem()), machineState: async () => emptyMachine };
      const version = await engineVersion(packaged, system);
      const gate = makeGate({ ...settings(), configRoot: join(organization.directory, "..") }, system, {
        debug() {},
      });
      const check = () => gate.check(organization, "beside others");
      const refused = () =>
        check().then(
          () => undefined,
          (error: unknown) => (error instanceof AppError ? error : undefined),
        );
      const ranBefore = (engine: string) => {
        const state = readSyncState(organization.directory);
        const plane = {
          engine,
          kernel: "6.1",
          tun: off,
          udp: off,
          since: 0,
          former: { tun: false, udp: false },
        };
        writeSyncState(organization.directory, { ...(state ?? expect.unreachable()), data_plane: plane });
      };
      const off = { on: false, by: "default" as const };
      ranBefore(version);
      expect((await refused())?.code).not.toBe("engine_missing");
      ranBefore("99.0.0");
      expect(await refused()).toMatchObject({
        code: "engine_missing",
        message: `The engine ${settings().overlayBinary} (99.0.0) is gone, and that of the system's package, ${packaged}, is the older ${version}`,
        details: { hint: expect.stringContaining("agent overlay install --source package") },
      });
      // An administrator's word: the older one is in its place then.
      symlinkSync(packaged, settings().overlayBinary);
      expect((await refused())?.code).not.toBe("engine_missing");
    },
  );

  test.if(isOld)("is listed by --dry-run, and by the demo with --yes", async () => {
    mkdirSync(settings().configRoot, { recursive: true });
    const { list } = await publish();
    const system = installed({ ...realSystem(), fetch: async (url) => list(url) });
    const lists = ["manifest.json", signatureName].map((name) => ({
      step: "request" as const,
      method: "GET",
      url: ours + name,
    }));
    const plan = await planProvision(settings(), system, { slug: "acme" });
    expect(plan.slice(0, 2)).toEqual(lists);
    const isArchive = ({ step, ...more }: Step) =>
      step === "request" && "url" in more && more.url.endsWith(archiveName(system));
    expect(plan.filter(isArchive)).toHaveLength(1);
    expect(plan.at(-1)).toMatchObject({ step: "file", path: settings().overlayBinary, change: "created" });
    expect(await planMissing(settings(), true, system)).toEqual(expect.arrayContaining(plan));
    expect((await planMissing(settings(), false, system)).some(isArchive)).toBe(false);
    // Without an answer it stays, and only the question is planned.
    expect(await planProvision(settings(), installed({ ...realSystem(), fetch: away }))).toEqual(lists);
  });

  test.if(isOld)(
    "stays where no list can be read, and what it costs is said with the line to type",
    async () => {
      const { said, path } = await provide(away);
      expect(existsSync(path)).toBe(false);
      expect(said).toContain("a tenth of the throughput");
      expect(said).toContain("agent overlay update");
    },
  );
});
