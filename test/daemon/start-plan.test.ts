// `agent --ipc-mode socket --dry-run`: the plan of the daemon's start, which changes nothing.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { readdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { openState } from "../../src/daemon/state.ts";
import { makeNodeWorld, type NodeWorld } from "../support/node.ts";

const engine = '#!/bin/sh\n[ "$1" = -version ] && echo Version: 1.10.3\nexit 0\n';

let world: NodeWorld;
let place = "";
let stateDb = "";

beforeEach(async () => {
  world = await makeNodeWorld();
  place = join(world.root, "..");
  stateDb = join(place, "state.db");
  writeFileSync(world.settings.overlayBinary, engine, { mode: 0o755 });
  await world.register({ mode: "desktop" });
});
afterEach(() => world[Symbol.asyncDispose]());

/** Path → time of its last change and size. */
function snapshot() {
  return readdirSync(place, { recursive: true, encoding: "utf8" }).map((name) => {
    const { mtimeMs, size, mode } = statSync(join(place, name));
    return [name, mtimeMs, size, mode];
  });
}

const Plan = v.object({
  plan: v.array(
    v.looseObject({
      step: v.string(),
      path: v.optional(v.string()),
      change: v.optional(v.string()),
      argv: v.optional(v.array(v.string())),
      url: v.optional(v.string()),
    }),
  ),
});

async function plan(...more: string[]) {
  const before = snapshot();
  world.requests.length = 0;
  const words = ["--ipc-mode", "socket", "--dry-run", "--json", "--state-db-path", stateDb, ...more];
  const ran = await world.agent(words);
  expect(snapshot()).toEqual(before);
  expect(world.requests).toEqual([]);
  const steps = ran.status === 0 ? v.parse(Plan, ran.json).plan : [];
  return {
    ...ran,
    files: Object.fromEntries(
      steps.flatMap(({ path, change }) => (path === undefined ? [] : [[path, change]])),
    ),
    engines: steps.flatMap(({ argv }) => (argv === undefined ? [] : [argv.at(-1)])),
    checkins: steps.filter(({ step }) => step === "request").length,
  };
}

const config = () => join(world.root, "acme/config.yml");

test("holds directory, socket, state database and the engine of each wanted organization", async () => {
  const { status, stderr, files, engines, checkins } = await plan();
  expect({ status, stderr, engines, checkins }).toEqual({
    status: 0,
    stderr: "",
    engines: [config()],
    checkins: 1,
  });
  expect(files).toMatchObject({
    [`${place}/`]: "same",
    [stateDb]: "created",
    [join(place, "cmd.sock")]: "created",
    [join(place, "logs/acme.log")]: "created",
  });
  expect(await plan("--no-autostart")).toMatchObject({ status: 0, engines: [], checkins: 1 });
});

test("follows the records of a daemon that was killed, and leaves its files as they are", async () => {
  const store = openState(stateDb, world.log, Date.now);
  try {
    store.putRecord("acme", { wanted: "down", forgotten: false });
    const { status, files, engines, checkins } = await plan();
    expect({ status, engines, checkins }).toEqual({ status: 0, engines: [], checkins: 0 });
    expect(files).toMatchObject({ [stateDb]: "changed" });
    store.putRecord("acme", { wanted: "up", forgotten: true });
    expect(await plan()).toMatchObject({ status: 0, engines: [], checkins: 0 });
    store.putRecord("acme", { wanted: "down", forgotten: true, registration: "a former one" });
    expect(await plan()).toMatchObject({ status: 0, engines: [config()], checkins: 1 });
    store.putRecord("acme", { wanted: "up", forgotten: false });
    expect(await plan()).toMatchObject({ status: 0, engines: [config()], checkins: 1 });
  } finally {
    store.close();
  }
});

test("a damaged state database is not renamed", async () => {
  writeFileSync(stateDb, "no database at all, but long enough to be read as one".repeat(100));
  expect(await plan()).toMatchObject({
    status: 0,
    engines: [config()],
    stderr: expect.stringContaining(`${stateDb} is damaged: the daemon would rename it`),
  });
});

test("tells why an engine would not start", async () => {
  writeFileSync(world.settings.overlayBinary, engine.replace("exit 0", "exit 1"), { mode: 0o755 });
  expect(await plan()).toMatchObject({
    status: 0,
    engines: [],
    checkins: 1,
    stderr: expect.stringMatching(/^acme: its engine would not start: ./),
  });
});

test("is refused while a daemon is running, like the start", async () => {
  const path = join(place, "cmd.sock");
  const listener = Bun.listen({ unix: path, socket: { data() {} } });
  try {
    expect(await plan()).toMatchObject({
      status: 1,
      json: { error: { code: "busy", message: `A daemon is already listening on ${path}` } },
    });
  } finally {
    listener.stop(true);
  }
});
