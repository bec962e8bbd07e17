// Names with the compiled executable: hosts.json of a node that holds a check-in follows every change, also with the
// control plane away.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { statSync } from "node:fs";
import { join } from "node:path";
import { indexHosts, readHosts } from "../../src/node/files/hosts.ts";
import {
  agent,
  buildAgent,
  cleanEnvironment,
  startControlPlane,
  type ControlPlane,
} from "../support/agent.ts";
import { makeOrganization, registerNode, type Organization, type Registered } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const directory = temporaryDirectory();
const data = join(directory.path, "server");
const nodes: Registered[] = [];
const following: Bun.Subprocess[] = [];
let plane: ControlPlane;
let acme: Organization;

beforeAll(async () => {
  buildAgent();
  plane = await startControlPlane(data);
  acme = await makeOrganization(plane);
  for (const name of ["alpha", "beta"]) {
    const node = await registerNode(acme, join(directory.path, name), name, await acme.makeToken());
    nodes.push(node);
    const words = ["check-auth", "--wait", "58", "--config-root", join(directory.path, name)];
    const stdio = ["ignore", "ignore", "ignore"] as const;
    following.push(Bun.spawn([agent, ...words], { env: cleanEnvironment(), stdio: [...stdio] }));
  }
}, 120_000);

afterAll(async () => {
  for (const each of following) each.kill("SIGKILL");
  await plane.stop();
  directory[Symbol.dispose]();
});

const placeOf = (name: string) => join(directory.path, name, "acme");
/** What alpha takes the name for, as other programs would read it. */
function lookUp(name: string): readonly string[] | undefined {
  const hosts = readHosts(placeOf("alpha"));
  return hosts === undefined ? undefined : indexHosts(hosts, "acme").byName(name)?.addresses;
}

/** Waits until the condition holds. */
async function until(what: string, condition: () => boolean): Promise<void> {
  for (const end = Date.now() + 20_000; !condition();) {
    if (Date.now() > end) throw new Error(`${what}: ${JSON.stringify(readHosts(placeOf("alpha")))}`);
    await Bun.sleep(20);
  }
}

async function api(method: string, path: string, body?: unknown): Promise<void> {
  const answer = await acme.api(method, path, body);
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
}

test("hosts.json follows registrations, renames, aliases, revocations and restores", async () => {
  const [, beta] = nodes;
  if (beta === undefined) throw new Error("beta is not registered");
  const own = [beta.ip_address];
  await until("the registration", () => Bun.deepEquals(lookUp("beta.acme.internal"), own));
  expect(statSync(join(placeOf("alpha"), "hosts.json")).mode & 0o777).toBe(0o644);

  await api("PATCH", `/api/org/acme/nodes/${beta.node_id}/`, { name: "gamma" });
  await until("the rename", () => lookUp("beta") === undefined && Bun.deepEquals(lookUp("gamma"), own));

  // By another process, as an administrator does on the server.
  const made = await plane.admin(["name", "create", "acme", "db", "--to", "gamma"]);
  expect([made.status, made.stdout]).toEqual([0, "db.acme.internal is gamma\n"]);
  await until("the alias", () => Bun.deepEquals(lookUp("db"), own));

  await api("DELETE", `/api/org/acme/nodes/${beta.node_id}/`);
  await until("the revocation", () => lookUp("gamma") === undefined && lookUp("db") === undefined);
  await api("POST", `/api/org/acme/nodes/${beta.node_id}/restore/`, {});
  await until("the restore", () => Bun.deepEquals(lookUp("gamma"), own) && Bun.deepEquals(lookUp("db"), own));

  await plane.stop();
  expect(lookUp("gamma")).toEqual(own);
  plane = await startControlPlane(data);
}, 120_000);
