// Every action of the daemon and its right, with organizations that have real processes.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { dirname, join } from "node:path";
import { writeCredentials } from "../../src/node/files/organizations.ts";
import { readPermissions, writePermissions } from "../../src/node/files/permissions.ts";
import { sessionProof } from "../../src/pki/session-proof.ts";
import { actions, makeHandler } from "../../src/daemon/actions.ts";
import type { Answer, Notice, Request } from "../../src/daemon/ipc/messages.ts";
import type { Client } from "../../src/daemon/ipc/answer-line.ts";
import { codeOf, makeEnginesWorld, stateOf, type EnginesWorld } from "../support/organization-engines.ts";
import { until } from "../support/until.ts";

let world: EnginesWorld;

beforeEach(() => {
  world = makeEnginesWorld();
});

afterEach(() => world[Symbol.asyncDispose]());

const client = (right: "root" | "member"): Client & { lines: Notice[]; leave(): void } => {
  const gone = new AbortController();
  const lines: Notice[] = [];
  return {
    peer: { pid: 9, uid: right === "root" ? 0 : 1000, gid: 100, right },
    notify: (notice) => void lines.push(notice),
    stay() {},
    unread: () => 0,
    gone: gone.signal,
    lines,
    leave: () => gone.abort(new Error("left")),
  };
};

test("every action answers, and only root may end the daemon", async () => {
  const { system, log } = world;
  world.register("acme");
  const { engines } = world.open();
  await until(() => stateOf(engines, "acme") === "running");
  let ended = 0;
  const handle = makeHandler({
    engines,
    configRoot: world.configRoot,
    subscribers: new Set(),
    system,
    log,
    shutDown: () => (ended += 1),
  });
  const ask = (request: Request, right: "root" | "member" = "member"): Promise<Answer> =>
    handle(request, client(right));
  expect(Object.keys(actions).sort()).toEqual(
    "delete exit list logs peers prove provision restart shutdown start status stop subscribe switch sync teams version".split(
      " ",
    ),
  );
  expect(await ask({ action: "teams" })).toMatchObject({ ok: true, teams: ["acme"] });
  for (const action of ["list", "status"])
    expect(await ask({ action })).toMatchObject({
      ok: true,
      teams: [{ team: "acme", mode: "desktop" }],
      pid: process.pid,
    });
  expect(await ask({ action: "peers", team: "acme" })).toMatchObject({ peers: [], reports_tunnels: false });
  expect(await ask({ action: "sync", team: "acme" })).toMatchObject({
    result: "same",
    access: "ok",
    config_version: 1,
  });
  expect(await ask({ action: "stop", team: "acme", reason: "night" })).toMatchObject({
    ok: true,
    team: "acme",
  });
  expect(world.logged.join("\n")).toMatch(/Change requested.*"uid":1000,"pid":9,"reason":"night"/);
  expect(await codeOf(ask({ action: "shutdown" }))).toBe("permission_denied");
  expect(world.logged.at(-1)).toContain("refused");
  for (const action of ["start", "stop", "restart", "switch", "delete", "sync", "exit", "logs"])
    expect(await codeOf(ask({ action }))).toBe("validation_failed");
  const exit = { use: "gate", strict: false, lan: true };
  expect(await codeOf(ask({ action: "exit", team: "acme", exit }))).toBe("failed");
  const strict = { action: "exit", team: "acme", exit: { ...exit, strict: true } };
  expect(await codeOf(ask(strict))).toBe("permission_denied");
  expect(await codeOf(handle(strict, client("root")))).toBe("failed");
  for (const action of ["nonsense", "constructor", "__proto__"])
    expect(await codeOf(ask({ action }))).toBe("unknown_action");
  expect(ended).toBe(0);
  await ask({ action: "shutdown" }, "root");
  expect(ended).toBe(1);
});

test("an exit that root closed with --strict is opened or changed by root alone", async () => {
  const { system, log } = world;
  world.register("acme");
  const { engines } = world.open();
  await until(() => stateOf(engines, "acme") === "running");
  const { configRoot } = world;
  const handle = makeHandler({
    engines,
    configRoot,
    subscribers: new Set(),
    system,
    log,
    shutDown: () => undefined,
  });
  const directory = join(configRoot, "acme");
  const strict = { use: "auto", strict: true, lan: true };
  writePermissions(directory, { exit: strict });
  for (const use of ["off", "auto"]) {
    const asked = { action: "exit", team: "acme", exit: { use, strict: false, lan: true } };
    expect(await codeOf(handle(asked, client("member")))).toBe("permission_denied");
  }
  expect(readPermissions(directory).exit).toEqual(strict);
  // The command of the hint makes the same choice, for the same organization.
  const closed = { action: "exit", team: "acme", exit: { use: "auto", strict: true, lan: false } };
  const refusal: unknown = await handle(closed, client("member")).catch((error: unknown) => error);
  expect(refusal).toMatchObject({
    details: { hint: "`sudo agent exit use auto --strict --no-lan --org-slug acme`" },
  });
  const off = { action: "exit", team: "acme", exit: { use: "off", strict: false, lan: true } };
  await handle(off, client("root"));
  expect(readPermissions(directory).exit).toBeUndefined();
  // What a member chose, a member ends.
  writePermissions(directory, { exit: { ...strict, strict: false } });
  await handle(off, client("member"));
  expect(readPermissions(directory).exit).toBeUndefined();
});

test("the right of each action is fixed: changes need the group, the end of the daemon needs root", async () => {
  const { system, log } = world;
  const { engines } = world.open();
  const handle = makeHandler({
    engines,
    configRoot: world.configRoot,
    subscribers: new Set(),
    system,
    log,
    shutDown() {},
  });
  const rights = Object.groupBy(Object.keys(actions), (name) => actions[name]?.right ?? "none");
  expect(rights.root).toEqual(["shutdown"]);
  expect(Object.keys(rights).sort()).toEqual(["member", "root"]);
  for (const action of rights.root ?? [])
    expect(await codeOf(handle({ action }, client("member")))).toBe("permission_denied");
});

test("logs are read and followed, and subscribers get changes", async () => {
  const { system, log } = world;
  world.register("acme");
  const { engines } = world.open();
  await until(() => stateOf(engines, "acme") === "running");
  const subscribers = new Set<(notice: Notice) => void>();
  const handle = makeHandler({
    engines,
    configRoot: world.configRoot,
    subscribers,
    system,
    log,
    shutDown() {},
  });
  const reader = client("member");
  const answer = await handle({ action: "logs", team: "acme", lines: 5, follow: true }, reader);
  expect(answer.lines?.[0]).toContain("is active");
  const path = engines.logPath("acme");
  expect(dirname(path)).toBe(join(world.directory, "logs"));
  await Bun.write(path, `${await Bun.file(path).text()}one more\n`);
  await until(() => reader.lines.length > 0);
  expect(reader.lines).toEqual([{ event: "log", team: "acme", line: "one more" }]);
  await handle({ action: "subscribe" }, reader);
  expect(subscribers.size).toBe(1);
  reader.leave();
  expect(subscribers.size).toBe(0);
  expect(await codeOf(handle({ action: "logs", team: "beta" }, reader))).toBe("unknown_team");
});

test("a session is proven for the nodes at its control plane, with the hash of the node's token as the key", async () => {
  const { system, log, configRoot } = world;
  world.register("acme");
  const { engines } = world.open();
  const handle = makeHandler({ engines, configRoot, subscribers: new Set(), system, log, shutDown() {} });
  const credentials = {
    api_base: "https://control.example",
    org_slug: "acme",
    node_id: 77,
    api_token: "a token",
  };
  const { api_base, node_id, api_token } = credentials;
  writeCredentials(join(configRoot, "acme"), credentials);
  const prove = (control_plane: string) =>
    handle({ action: "prove", session: "a family", control_plane }, client("member"));
  expect((await prove(api_base)).proofs).toEqual([
    { organization: "acme", node_id, proof: sessionProof(api_token, "a family") },
  ]);
  expect((await prove("https://elsewhere.example")).proofs).toEqual([]);
  expect(await codeOf(handle({ action: "prove" }, client("member")))).toBe("validation_failed");
});
