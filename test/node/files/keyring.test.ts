// The keyring's token has precedence over the file's. A keyring that hangs, is locked or absent costs time at most. The
// child process is a fake here; test/e2e uses a real Secret Service.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { keyringWord } from "../../../src/brand.ts";
import { connectOrganization } from "../../../src/node/contact/requests/connection.ts";
import { keyringToken, removeFromKeyring, storeInKeyring } from "../../../src/node/files/keyring.ts";
import { readCredentials, type Organization } from "../../../src/node/files/organizations.ts";
import type { RunOptions, RunResult } from "../../../src/platform/run-program.ts";
import { rejection } from "../../pki/thrown.ts";
import { makeNodeWorld, type NodeWorld } from "../../support/node.ts";

type Call = { argv: readonly string[]; options: RunOptions };

let world: NodeWorld;
let organization: Organization;
let calls: Call[];
let kept: Map<string, string>;

beforeEach(async () => {
  world = await makeNodeWorld();
  organization = await world.register();
  calls = [];
  kept = new Map();
});

afterEach(() => world[Symbol.asyncDispose]());

const done = (stdout = ""): RunResult => ({ status: 0, stdout, stderr: "", timedOut: false });

/** A fake keyring, unlocked by default. */
function keyring(state: "unlocked" | "locked" | "hanging" = "unlocked") {
  const run = async (argv: readonly string[], options: RunOptions = {}): Promise<RunResult> => {
    calls.push({ argv, options });
    if (state === "hanging") return { status: 137, stdout: "", stderr: "", timedOut: true };
    if (state === "locked") return { status: 1, stdout: "", stderr: "locked", timedOut: false };
    const [, , verb, account = ""] = argv;
    if (verb === "set") kept.set(account, options.input ?? "");
    if (verb === "delete") kept.delete(account);
    return done(verb === "get" ? kept.get(account) : "");
  };
  return { ...world.system, run, env: { DBUS_SESSION_BUS_ADDRESS: "unix:path=/nowhere" } };
}

const account = () => `acme:${organization.config.node_id}`;
const beat = { version: "1", uptime: 1 };
const checkin = (system: ReturnType<typeof keyring>) =>
  connectOrganization(
    organization,
    system,
    world.log,
  )((client) => client.checkin("acme", organization.config.node_id, beat));

test("tokens pass by standard input and output, never by arguments; the child has 3 s", async () => {
  const system = keyring();
  expect(await storeInKeyring(account(), "secret-token", system)).toBe(true);
  expect(await keyringToken(account(), system)).toBe("secret-token");
  expect(await removeFromKeyring(account(), system)).toBe(true);
  expect(await keyringToken(account(), system)).toBeUndefined();
  for (const { argv, options } of calls) {
    expect(argv[1]).toBe(keyringWord);
    expect(argv.join(" ")).not.toContain("secret-token");
    expect(options.timeoutMs).toBe(3000);
  }
});

test("without a session bus no child is started", async () => {
  const system = { ...keyring(), platform: "linux" as const, env: {} };
  expect(await keyringToken(account(), system)).toBeUndefined();
  expect(await storeInKeyring(account(), "x", system)).toBe(false);
  expect(calls).toEqual([]);
});

test("the keyring's token has precedence over the file's", async () => {
  const system = keyring();
  kept.set(account(), readCredentials(organization.directory).api_token);
  await checkin(system);
  expect(calls).toHaveLength(1);
});

for (const state of ["locked", "hanging"] as const) {
  test(`with a ${state} keyring, the file's token is used`, async () => {
    expect(await checkin(keyring(state))).toMatchObject({ config_version: 1 });
  });
}

test("after a refusal of the keyring's token, the file's is tried once and stored in the keyring", async () => {
  const system = keyring();
  kept.set(account(), "Z".repeat(43));
  world.requests.length = 0;
  expect(await checkin(system)).toMatchObject({ config_version: 1 });
  expect(world.requests).toHaveLength(2);
  expect(kept.get(account())).toBe(readCredentials(organization.directory).api_token);
  expect(world.logged.join("\n")).not.toContain(readCredentials(organization.directory).api_token);
});

test("when both tokens are refused, the refusal is reported after two tries", async () => {
  const system = keyring();
  kept.set(account(), "Z".repeat(43));
  world.system.fetch = async (url) => {
    world.requests.push(url);
    return Response.json(
      { error: "x", code: "token_not_valid", detail: "No.", status_code: 401 },
      { status: 401 },
    );
  };
  world.requests.length = 0;
  const refusal = await rejection(checkin({ ...system, fetch: world.system.fetch }));
  expect(refusal.code).toBe("token_not_valid");
  expect(world.requests).toHaveLength(2);
  expect(kept.get(account())).toBe("Z".repeat(43));
});

test("a token that a new registration has replaced is read again", async () => {
  const connection = connectOrganization(organization, world.system, world.log);
  const id = organization.config.node_id;
  await connection((client) => client.checkin("acme", id, beat));
  await world.register({ force: true });
  expect(await connection((client) => client.checkin("acme", id, beat))).toMatchObject({
    config_version: 1,
  });
});
