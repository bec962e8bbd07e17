// The control plane on a full disk, or with a failing fsync: writes are refused with 503 and a message, reads and
// check-ins continue, and the server recovers with the disk, without a restart. strace injects the faults.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { Database } from "bun:sqlite";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { paths } from "../support/paths.ts";
import { seed, slug, tokenOf } from "../bench/seed.ts";
import { agentJson, buildAgent, startControlPlane, type ControlPlane } from "../support/agent.ts";
import { inCi, installMissing } from "../support/debian.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { until } from "../support/members.ts";

const missing = installMissing(["/usr/bin/strace"]);
if (missing !== undefined && inCi) throw new Error(missing);

const directory = temporaryDirectory();
const data = join(directory.path, "data");
let plane: ControlPlane;
let admin = "";
beforeAll(async () => {
  buildAgent();
  admin = (await seed({ dataDirectory: data }, 10)).admin;
  plane = await startControlPlane(data);
}, 60_000);
afterAll(async () => {
  await plane.stop();
  directory[Symbol.dispose]();
});

const send = (
  method: string,
  path: string,
  token: string,
  body?: unknown,
  headers: Record<string, string> = {},
) =>
  fetch(plane.url + path, {
    method,
    headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json", ...headers },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
const group = (name: string) => send("POST", `/api/org/${slug}/groups/`, admin, { name });
const checkin = (id: number, fields: Record<string, unknown> = {}, headers: Record<string, string> = {}) =>
  send("POST", paths.checkin(slug, id), tokenOf(id), { version: "0.1.0", uptime: 1, ...fields }, headers);
const groupNames = async () => {
  const answer = await send("GET", `/api/org/${slug}/groups/?page_size=1000`, admin);
  expect(answer.status).toBe(200);
  return v.parse(v.array(v.object({ name: v.string() })), await answer.json()).map(({ name }) => name);
};

function uptimeOf(node: number): number {
  using db = new Database(join(data, "control.db"), { readonly: true });
  const row = db.query("SELECT uptime FROM sightings WHERE node_id = $1").get(node);
  return Number(v.parse(v.object({ uptime: v.nullable(v.number()) }), row).uptime);
}

/** All these calls on the database's files fail during the work. */
async function withFault(calls: string, error: string, work: () => Promise<void>): Promise<number> {
  const trace = join(directory.path, `trace-${error}`);
  const files = ["control.db", "control.db-wal"].flatMap((name) => ["-P", join(data, name)]);
  const inject = ["-e", `trace=${calls}`, "-e", `inject=${calls}:error=${error}`];
  const argv = ["strace", "-f", "-qq", "-o", trace, "-p", String(plane.pid), ...inject, ...files];
  const child = Bun.spawn(argv, { stdin: "ignore", stdout: "ignore", stderr: "pipe" });
  try {
    await work();
  } finally {
    child.kill("SIGINT");
    await child.exited;
  }
  return readFileSync(trace, "utf8").split("(INJECTED)").length - 1;
}

test.skipIf(missing !== undefined).each([
  ["a full disk", "pwrite64,write,ftruncate", "ENOSPC"],
  ["a disk whose fsync fails", "fsync,fdatasync", "EIO"],
  ["a disk whose writes fail", "pwrite64,write", "EIO"],
])(
  "%s",
  async (_, calls, error) => {
    const accepted: string[] = [];
    const refused: string[] = [];
    const prefix = `${calls}-${error}`.replaceAll(/[^a-zA-Z]/g, "").toLowerCase();
    const uptime = uptimeOf(1) + 100;
    let at = 0;
    const tryGroup = async () => {
      const name = `${prefix}-${at++}`;
      const answer = await group(name);
      (answer.status === 201 ? accepted : refused).push(name);
      return answer;
    };
    expect((await tryGroup()).status).toBe(201);
    const injected = await withFault(calls, error, async () => {
      await until("the fault", async () => (await tryGroup()).status === 503);
      for (let again = 0; again < 5; again++) {
        const answer = await tryGroup();
        expect(answer.status).toBe(503);
        expect(Number(answer.headers.get("retry-after"))).toBeGreaterThan(0);
        expect(await answer.json()).toMatchObject({
          code: "storage_unavailable",
          status_code: 503,
          detail: expect.stringMatching(/^The database cannot be used now/),
        });
      }
      await until("unready", async () => (await fetch(`${plane.url}/readyz`)).status === 503);
      expect((await fetch(`${plane.url}/healthz`)).status).toBe(200);
      // Refused writes left no part, and nodes check in with new reports.
      expect(await groupNames()).not.toContain(refused.at(-1));
      expect((await send("GET", paths.nodes(slug), admin)).status).toBe(200);
      const download = await send("GET", paths.downloadConfig(slug, 1), tokenOf(1));
      expect(download.status).toBe(200);
      for (const id of [1, 2, 3]) {
        const said = { uptime: uptime + id, config_version: 1, overlay_version: `1.10.${at + id}` };
        expect((await checkin(id, said)).status).toBe(200);
      }
      expect((await checkin(4, { config_version: 1 }, { Prefer: "wait=1" })).status).toBe(200);
    });
    expect(injected).toBeGreaterThan(5);
    await until("the recovery", async () => (await tryGroup()).status === 201);
    await until("ready", async () => (await fetch(`${plane.url}/readyz`)).status === 200);
    const names = await groupNames();
    expect(accepted.filter((name) => !names.includes(name))).toEqual([]);
    expect(refused.filter((name) => names.includes(name))).toEqual([]);
    expect((await checkin(5)).status).toBe(200);
    // The reports of nodes meanwhile were kept, and are written now.
    for (const id of [1, 2, 3]) await until("what was said", async () => uptimeOf(id) === uptime + id);
    await agentJson(["admin", "audit", "verify", "--data-dir", data]);
  },
  120_000,
);

test.skipIf(missing !== undefined)(
  "a disk that cannot read for a while",
  async () => {
    await plane.stop();
    // Nothing is read yet.
    plane = await startControlPlane(data);
    for (const id of [1, 2, 3]) expect((await checkin(id)).status).toBe(200);
    const reads = ["nodes/", "groups/", "ca/", "policy/"].map((path) => `/api/org/${slug}/${path}`);
    const injected = await withFault("pread64", "EIO", async () => {
      await until("the fault", async () => {
        const answers = await Promise.all(reads.map((path) => send("GET", path, admin)));
        const refused = answers.filter(({ status }) => status !== 200);
        for (const answer of refused) {
          expect(answer.status).toBe(503);
          expect(await answer.json()).toMatchObject({ code: "storage_unavailable" });
        }
        return refused.length > 0;
      });
      expect((await fetch(`${plane.url}/readyz`)).status).toBe(503);
      expect((await fetch(`${plane.url}/healthz`)).status).toBe(200);
      for (const id of [1, 2, 3]) expect((await checkin(id)).status).toBe(200);
    });
    expect(injected).toBeGreaterThan(0);
    for (const path of reads) expect((await send("GET", path, admin)).status).toBe(200);
    await until("ready", async () => (await fetch(`${plane.url}/readyz`)).status === 200);
    expect((await group("after-reads")).status).toBe(201);
  },
  120_000,
);
