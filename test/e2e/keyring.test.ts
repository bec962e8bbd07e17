// A real Secret Service (gnome-keyring on a private session bus), unlocked, locked, frozen and absent. The last three
// states cost at most three seconds, and nothing is lost.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  agent,
  buildAgent,
  cleanEnvironment,
  runAgent,
  startControlPlane,
  type ControlPlane,
} from "../support/agent.ts";
import { inCi, installMissing } from "../support/debian.ts";
import { makeOrganization, registerArguments } from "../support/overlay.ts";
import { inFull } from "../support/soak.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { until } from "../support/until.ts";

const missing = installMissing();
if (missing !== undefined && inCi) throw new Error(missing);

const directory = temporaryDirectory();
const home = join(directory.path, "home");
const root = join(directory.path, "node");
let plane: ControlPlane;
let bus: Bun.Subprocess<"ignore", "pipe", "ignore">;
let environment: Record<string, string>;
let daemon: Bun.Subprocess;

/** Whether a keyring answers on the bus. */
function isThere(): boolean {
  const owner = ["org.freedesktop.DBus.NameHasOwner", "string:org.freedesktop.secrets"];
  const argv = ["/usr/bin/dbus-send", "--print-reply", "--dest=org.freedesktop.DBus", "/", ...owner];
  const { stdout } = Bun.spawnSync(argv, { env: cleanEnvironment(environment), stderr: "ignore" });
  return stdout.toString().includes("boolean true");
}

/** The keyring's daemon; a password on its standard input unlocks it. */
async function startKeyring(unlock: boolean): Promise<Bun.Subprocess> {
  const child = Bun.spawn(
    [
      "/usr/bin/gnome-keyring-daemon",
      "--foreground",
      "--components=secrets",
      ...(unlock ? ["--unlock"] : []),
    ],
    {
      env: cleanEnvironment(environment),
      stdin: new Blob([unlock ? "password" : ""]),
      stdout: "ignore",
      stderr: "ignore",
    },
  );
  await until(isThere, { everyMs: 50 });
  return child;
}

async function endKeyring(): Promise<void> {
  daemon.kill("SIGKILL");
  await daemon.exited;
  await until(() => !isThere(), { everyMs: 50 });
}

async function firstLine(stream: ReadableStream<Uint8Array>): Promise<string> {
  for await (const chunk of stream) return new TextDecoder().decode(chunk).trim();
  throw new Error("dbus-daemon said nothing");
}

beforeAll(async () => {
  if (missing !== undefined) return;
  buildAgent();
  for (const each of [home, root]) mkdirSync(each, { mode: 0o700 });
  plane = await startControlPlane(join(directory.path, "server"));
  bus = Bun.spawn(["/usr/bin/dbus-daemon", "--session", "--nofork", "--print-address"], {
    env: cleanEnvironment({ HOME: home, XDG_RUNTIME_DIR: home }),
    stdin: "ignore",
    stdout: "pipe",
    stderr: "ignore",
  });
  environment = { HOME: home, XDG_RUNTIME_DIR: home, DBUS_SESSION_BUS_ADDRESS: await firstLine(bus.stdout) };
  daemon = await startKeyring(true);
}, 60_000);

afterAll(async () => {
  if (missing !== undefined) return;
  await endKeyring();
  bus.kill();
  await plane.stop();
  directory[Symbol.dispose]();
}, 30_000);

async function checkin(env = environment): Promise<{ status: number; ms: number; output: string }> {
  const from = performance.now();
  const { status, stdout, stderr } = await runAgent(["checkin", "--config-root", root], { env });
  return { status, ms: performance.now() - from, output: stdout + stderr };
}

/** The session of `agent login` is in the keyring alone; without the keyring, it is in a file. */
async function signsIn(): Promise<void> {
  const password = "correct horse battery";
  await plane.admin(["user", "create", "keys@example.org", "--password-file", "-"], password);
  const words = ["login", "--api-base", plane.url, "--email", "keys@example.org", "--profile", "plane"];
  const file = join(home, ".config/overlay-agent/profiles/plane.session");
  const signedIn = await runAgent([...words, "--password-file", "-"], { env: environment, input: password });
  expect(`${signedIn.status} ${signedIn.stderr}`).toBe("0 ");
  expect(existsSync(file)).toBe(false);
  expect((await runAgent(["admin", "org", "list"], { env: environment })).status).toBe(0);
  expect((await runAgent(["admin", "org", "list"], { env: { HOME: home } })).status).toBe(4);
  const without = { env: { HOME: home }, input: password };
  expect((await runAgent([...words, "--password-file", "-"], without)).status).toBe(0);
  expect(existsSync(file)).toBe(true);
  expect((await runAgent(["logout"], { env: environment })).status).toBe(0);
  expect(existsSync(file)).toBe(false);
}

const path = join(root, "acme/credentials.json");
const stored = async () => (await runAgent(["__keyring", "get", "acme:1"], { env: environment })).stdout;

test.skipIf(missing !== undefined)(
  "a keyring in each state",
  async () => {
    const acme = await makeOrganization(plane);
    const token = await acme.makeToken();
    const registered = await runAgent(registerArguments(acme, root, "one"), {
      env: environment,
      input: token,
    });
    expect(`${registered.status} ${registered.stderr}`).toStartWith("0");
    const credentials = readFileSync(path, "utf8");
    const apiToken = /"api_token": "([^"]+)"/.exec(credentials)?.[1] ?? "";
    expect(await stored()).toBe(apiToken);

    // The keyring has precedence: the file's token is invalid now, and not used.
    writeFileSync(path, credentials.replace(apiToken, "F".repeat(43)));
    expect((await checkin()).status).toBe(0);
    writeFileSync(path, credentials);

    // An outdated token in the keyring is replaced by the file's.
    const set = Bun.spawn([agent, "__keyring", "set", "acme:1"], {
      env: cleanEnvironment(environment),
      stdin: new Blob(["K".repeat(43)]),
    });
    expect(await set.exited).toBe(0);
    expect((await checkin()).status).toBe(0);
    expect(await stored()).toBe(apiToken);

    await signsIn();

    const plain = await checkin({});
    expect(plain.status).toBe(0);

    daemon.kill("SIGSTOP");
    const frozen = await checkin();
    daemon.kill("SIGCONT");
    expect(frozen.status).toBe(0);
    expect(frozen.ms - plain.ms).toBeLessThan(inFull ? 4000 : 15_000);

    await endKeyring();
    daemon = await startKeyring(false);
    const locked = await checkin();
    expect(locked.status).toBe(0);
    expect(locked.ms - plain.ms).toBeLessThan(inFull ? 4000 : 15_000);
    expect(readFileSync(path, "utf8")).toBe(credentials);
  },
  60_000,
);
