// Approval with real processes: an agent that is killed while it waits, and a former agent, which does not know the answer.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import * as v from "valibot";
import { cleanEnvironment } from "../support/agent.ts";
import { runAdmin } from "../support/admin.ts";
import { formerAgent } from "../support/former-agent.ts";
import { serveHere } from "../support/in-process.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const directory = temporaryDirectory();
const data = join(directory.path, "data");
const main = join(import.meta.dir, "../../src/main.ts");
let serving: Awaited<ReturnType<typeof serveHere>>;
const admin = async (...words: string[]) =>
  JSON.parse((await runAdmin(data, [...words, "--json"])).out) as unknown;
beforeAll(async () => {
  await admin("org", "create", "acme", "--network", "10.77.0.0/16");
  await admin("org", "update", "acme", "--approval", "all");
  serving = await serveHere(data);
}, 60_000);
afterAll(async () => {
  await serving.stop();
  directory[Symbol.dispose]();
});

const Listed = v.object({ registrations: v.array(v.object({ id: v.number(), name: v.string() })) });
const waiting = async () => v.parse(Listed, await admin("registration", "list", "acme")).registrations;

async function machine(executable: readonly string[], name: string) {
  const made = await admin("token", "create", "acme");
  const { token } = v.parse(v.object({ token: v.string() }), made);
  const places = [
    "--config-root",
    join(directory.path, name),
    "--state-db-path",
    join(directory.path, "state.db"),
  ];
  const words = [
    "register",
    "--api-base",
    serving.url,
    "--org-slug",
    "acme",
    "--node-name",
    name,
    "--no-start",
  ];
  return () =>
    Bun.spawn([...executable, ...words, ...places, "--registration-token-file", "-"], {
      env: cleanEnvironment({ HOME: directory.path }),
      stdin: new Blob([token]),
      stdout: "ignore",
      stderr: "ignore",
    });
}

test("an agent that is killed while it waits continues with the same keys", async () => {
  const start = await machine([process.execPath, main], "killed");
  const first = start();
  while ((await waiting()).length === 0) await Bun.sleep(50);
  first.kill("SIGKILL");
  await first.exited;
  const [request, ...more] = await waiting();
  expect(more).toEqual([]);
  await admin("registration", "approve", "acme", String(request?.id));
  expect(await start().exited).toBe(0);
  expect(await waiting()).toEqual([]);
}, 60_000);

test("a former agent ends with exit status 6, and registers when it is run again after the approval", async () => {
  const start = await machine([formerAgent()], "former");
  expect(await start().exited).toBe(6);
  const [request] = await waiting();
  expect(request?.name).toBe("former");
  await admin("registration", "approve", "acme", String(request?.id));
  expect(await start().exited).toBe(0);
}, 60_000);
