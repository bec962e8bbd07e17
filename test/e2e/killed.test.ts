// `register` killed at any instant and run again: one node on the control plane, one directory here, one use of the
// token. The instants that matter are met on purpose by a proxy; the rest by a sweep over the time it takes.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as v from "valibot";
import { paths } from "../../src/protocol.ts";
import {
  agent,
  buildAgent,
  cleanEnvironment,
  runAgent,
  startControlPlane,
  type ControlPlane,
} from "../support/agent.ts";
import { makeOrganization, registerArguments, registerNode, type Organization } from "../support/overlay.ts";

const directory = mkdtempSync(join(tmpdir(), "agent-test-"));
let plane: ControlPlane;
let acme: Organization;

beforeAll(async () => {
  buildAgent();
  plane = await startControlPlane(join(directory, "server"));
  acme = await makeOrganization(plane);
});

afterAll(async () => {
  await plane.stop();
  rmSync(directory, { recursive: true, force: true });
});

function startRegister(url: string, root: string, name: string, token: string): Bun.Subprocess {
  const args = registerArguments({ slug: "acme", plane: { url } }, root, name);
  return Bun.spawn([agent, ...args], {
    env: cleanEnvironment(),
    stdin: new Blob([token]),
    stdout: "ignore",
    stderr: "ignore",
  });
}

/** After a kill: the second run is the first one's end. */
async function finishes(name: string, root: string, token: string): Promise<void> {
  expect(
    readdirSync(root)
      .filter((entry) => !entry.startsWith("."))
      .every((entry) => entry === "acme"),
  ).toBe(true);
  if (!readdirSync(root).includes("acme")) await registerNode(acme, root, name, token);
  expect(readdirSync(root)).toEqual(["acme"]);
  const listed = await acme.api("GET", `${paths.nodes("acme")}?search=${name}`);
  const nodes = v.parse(v.array(v.object({ name: v.string() })), await listed.json());
  expect(nodes.filter((node) => node.name === name)).toHaveLength(1);
  // And the token that it left behind is alive.
  expect((await runAgent(["checkin", "--config-root", root])).status).toBe(0);
}

for (const moment of ["before the request arrives", "after it is done, before the answer"] as const) {
  test(`killed ${moment}`, async () => {
    const name = moment.startsWith("before") ? "early" : "late";
    const root = mkdtempSync(join(directory, `${name}-`));
    const token = await acme.makeToken(["--uses", "1"]);
    const dead = Promise.withResolvers<void>();
    using proxy = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      async fetch(request) {
        const path = new URL(request.url).pathname;
        const forward = async () =>
          fetch(plane.url + path, {
            method: request.method,
            headers: request.headers,
            body: await request.text(),
          });
        if (path !== paths.register("acme")) return forward();
        if (name === "late") await forward();
        dead.resolve();
        return new Promise<Response>(() => {});
      },
    });
    const child = startRegister(`http://127.0.0.1:${proxy.port}`, root, name, token);
    await dead.promise;
    child.kill("SIGKILL");
    await child.exited;
    await finishes(name, root, token);
  }, 30_000);
}

test("killed at any other time", async () => {
  for (let ms = 4; ms <= 120; ms += 8) {
    const name = `sweep-${ms}`;
    const root = mkdtempSync(join(directory, `${name}-`));
    const token = await acme.makeToken(["--uses", "1"]);
    const child = startRegister(plane.url, root, name, token);
    await Promise.race([Bun.sleep(ms), child.exited]);
    child.kill("SIGKILL");
    await child.exited;
    await finishes(name, root, token);
  }
}, 60_000);
