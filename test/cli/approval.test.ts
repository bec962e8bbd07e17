// A machine that waits for approval, from its command line and from the administrator's.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { Registration } from "../../src/api/registrations.ts";
import { apiBase, makeNodeWorld, registerWords, type NodeWorld } from "../support/node.ts";

let world: NodeWorld;
let token = "";
beforeEach(async () => {
  world = await makeNodeWorld();
  world.system.monotonic = () => world.server.clock.ms;
  await api("PATCH", "", { node_approval: "all" });
  token = await world.token({ uses: 1 });
});
afterEach(() => world[Symbol.asyncDispose]());

const api = (method: string, path: string, body?: unknown) =>
  world.api(method, `/api/org/acme/${path}`, body);

const words = [...registerWords, "--no-start", "--registration-token-file", "-"];
const register = (...more: string[]) => world.agent([...words, ...more], { stdin: token });
const asOwner = (...line: string[]) =>
  world.agent(["admin", "registration", ...line, "--api-base", apiBase, "--access-token-file", "-"], {
    stdin: world.owner,
  });
const waiting = async () => v.parse(v.array(Registration), await api("GET", "registrations/"));
async function onlyOne() {
  const [item, ...more] = await waiting();
  if (item === undefined || more.length > 0) throw new Error(`${more.length} more registrations`);
  return item;
}
/** Runs `act` the next time that the agent sleeps; time passes with each sleep. */
function onSleep(act: () => Promise<unknown>): void {
  let isDone = false;
  world.system.sleep = async (ms) => {
    world.server.clock.ms += ms;
    if (isDone) return;
    isDone = true;
    await act();
  };
}
async function approveFirst(): Promise<void> {
  const { id } = await onlyOne();
  const ran = await asOwner("approve", "acme", String(id));
  expect(ran).toMatchObject({ status: 0, stdout: `Approved registration ${id}\n` });
}
const requests = () => world.requests.filter((each) => each.endsWith("/nodes/register/"));

test("register says what it waits for, and goes on by itself after the approval", async () => {
  onSleep(async () => {
    await approveFirst();
  });
  const ran = await register();
  expect(ran).toMatchObject({ status: 0 });
  expect(ran.stderr).toContain("acme admits new machines after approval");
  expect(ran.stderr.match(/admits/g)).toHaveLength(1);
  expect(requests()).toHaveLength(2);
});

test("the key that the machine shows is the one of the administrator's list", async () => {
  let key = "";
  onSleep(async () => {
    key = (await onlyOne()).key_sha256;
    await approveFirst();
  });
  const { stderr } = await register();
  expect(key).toHaveLength(64);
  expect(stderr).toContain(`approves alpha with key ${key.slice(0, 16)}`);
});

test("after --wait it ends with exit status 6, and the next run continues with the same keys", async () => {
  onSleep(async () => undefined);
  const first = await register("--wait", "10s", "--json");
  expect(first.status).toBe(6);
  expect(first.json).toMatchObject({ error: { code: "approval_pending" } });
  expect(requests()).toHaveLength(3);
  const before = await waiting();
  expect(before).toHaveLength(1);
  await approveFirst();
  expect(await register("--wait", "10s")).toMatchObject({ status: 0 });
  expect(await waiting()).toEqual([]);
});

test("an approval is withdrawn before the machine comes back; one that waits is no approval", async () => {
  onSleep(async () => undefined);
  await register("--wait", "10s");
  const { id } = await onlyOne();
  expect(await asOwner("list", "acme", "--approved")).toMatchObject({
    stderr: "Every machine that was approved in acme has come back.\n",
  });
  expect(await asOwner("refuse", "acme", String(id), "--approved")).toMatchObject({
    status: 1,
    stderr: expect.stringContaining("It is not approved: it still waits"),
  });
  await approveFirst();
  expect((await asOwner("list", "acme", "--approved", "--json")).json).toMatchObject({
    registrations: [{ id, name: "alpha" }],
  });
  const planned = await asOwner("refuse", "acme", String(id), "--approved", "--dry-run");
  expect(planned.stderr).toContain("Would withdraw the approval of a machine that has not come back");
  expect(await asOwner("refuse", "acme", String(id))).toMatchObject({
    status: 1,
    stderr: expect.stringContaining("It was approved already"),
  });
  const refused = { status: 0, stdout: `Refused registration ${id}\n` };
  expect(await asOwner("refuse", "acme", String(id), "--approved")).toMatchObject(refused);
  expect(await register("--json")).toMatchObject({ json: { error: { code: "registration_refused" } } });
});

test("a control plane that is away for a moment does not end the wait", async () => {
  const { fetch } = world.system;
  let isAway = false;
  world.system.fetch = async (url, init) => {
    if (isAway) throw new Error("away");
    return fetch(url, init);
  };
  let sleeps = 0;
  world.system.sleep = async (ms) => {
    world.server.clock.ms += ms;
    sleeps++;
    isAway = sleeps < 5;
    if (sleeps === 5) await approveFirst();
  };
  expect(await register()).toMatchObject({ status: 0 });
});

test("a refused machine is told so, and its next run asks anew with other keys", async () => {
  let key = "";
  onSleep(async () => {
    const item = await onlyOne();
    key = item.key_sha256;
    await api("POST", `registrations/${item.id}/refuse/`, {});
  });
  const ran = await register("--json");
  expect(ran.status).toBe(5);
  expect(ran.json).toMatchObject({ error: { code: "registration_refused" } });
  expect(readdirSync(world.root).filter((name) => name.includes("acme"))).toEqual([]);
  expect((await register("--wait", "1s")).status).toBe(6);
  expect((await onlyOne()).key_sha256).not.toBe(key);
});

test("a token that is revoked meanwhile ends the wait", async () => {
  onSleep(async () => {
    const { registration_token_id: id } = await onlyOne();
    await api("DELETE", `registration_tokens/${id}/`);
  });
  const ran = await register("--json");
  expect(ran.status).toBe(5);
  expect(ran.json).toMatchObject({ error: { code: "token_not_valid" } });
  expect(existsSync(join(world.root, "acme"))).toBe(false);
});
