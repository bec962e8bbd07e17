// `bun test/bench/policy.ts [ROUNDS]`: planning and applying a policy with 10,000 nodes in 300 combinations of 100 groups
// and 500 rules (bar: 1 s), and how long /healthz takes meanwhile (bar: p99 20 ms, beside the same load without plans).
// `BUN_CONFIG_MAX_HTTP_REQUESTS=10000 bun test/bench/policy.ts apply [ROUNDS] [NODES]`: a policy is applied while NODES nodes
// that it concerns and as many others wait for news. How long until the last one has its new configuration (bar: p99 2 s
// with 1,000), and what the others download (bar: nothing).
// `bun test/bench/policy.ts regroup [NODES] [ROUNDS]`: one apply puts all nodes of a user into a group, the next one takes
// them out again, on SQLite and on PostgreSQL. How long the application takes, and how long answers of /healthz, check-ins of
// another node and other writes of the organization take meanwhile (bars: no answer over 50 ms for it, no lock over 2 s).

import { join } from "node:path";
import { type DataOptions, openData } from "../../src/server/store/data-directory.ts";
import { realSystem } from "../../src/base/system.ts";
import { buildAgent } from "../support/agent.ts";
import { makeRandom } from "../support/random.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { paths } from "../support/paths.ts";
import { createDatabase, startPostgres } from "../support/postgres.ts";
import { choose, figure, print, type Program, quantile, startServer } from "./measure.ts";
import { groups, seed, slug, tokenOf } from "./seed.ts";

const nodes = 10_000;
const combinations = 300;
const rules = 500;

async function giveGroups(dataDirectory: string): Promise<void> {
  const random = makeRandom(1);
  const group = () => `group-${Math.floor(random() * groups)}`;
  const sets = Array.from({ length: combinations }, () => [...new Set([group(), group(), group()])].sort());
  const { db } = await openData({ dataDirectory }, "server", realSystem());
  await db.write(async (tx) => {
    for (let id = 1; id <= nodes; id++) {
      const set = JSON.stringify(sets[id % combinations]);
      await tx.run("UPDATE nodes SET groups = $1 WHERE id = $2", [set, id]);
    }
  });
  await db.close();
}

/** `shift`: another policy of the same size, half of whose rules differ. */
function policyOf(shift: number): string {
  const lines = ["rules:", "  - {direction: outbound, peer: any, target: any}"];
  for (let at = 0; at < rules - 1; at++) {
    const port = 1000 + at + (at % 2 === 0 ? shift : 0);
    lines.push(
      "  - protocol: tcp",
      `    ports: ${port}`,
      `    peer: group:group-${at % groups}`,
      `    target: group:group-${(at * 7) % groups}`,
    );
  }
  lines.push("tests:", "  - accept: {from: group:group-1, to: group:group-7, protocol: tcp, port: 1001}", "");
  return lines.join("\n");
}

/** `queuedMs`: while it took, server or client were ready to run, but other programs had the processors. */
type Answered = { ms: number; queuedMs: number };

/** Asks /healthz every 5 ms in a process of its own. Returns all answers, the longest first. */
function watch({ url, pid }: Pick<Program, "url" | "pid">): { stop(): Promise<Answered[]> } {
  const program = `
    const { readFileSync } = require("node:fs");
    const [url, pid] = process.argv.slice(1);
    const queuedOf = (id) => Number(readFileSync("/proc/" + id + "/schedstat", "utf8").split(" ")[1]) / 1e6;
    const queued = () => queuedOf(pid) + queuedOf("self");
    const answers = [];
    process.on("SIGTERM", () => { console.log(JSON.stringify(answers.sort((a, b) => b.ms - a.ms))); process.exit(0); });
    for (;;) { const [at, before] = [performance.now(), queued()]; await fetch(url).then((a) => a.arrayBuffer());
      answers.push({ ms: performance.now() - at, queuedMs: queued() - before }); await Bun.sleep(5); }`;
  const child = Bun.spawn([process.execPath, "-e", program, `${url}/healthz`, String(pid)], {
    stdout: "pipe",
  });
  return {
    async stop() {
      child.kill();
      const answers: Answered[] = JSON.parse(await new Response(child.stdout).text());
      return answers;
    },
  };
}

function describe(name: string, answers: readonly Answered[]): string {
  const at = (share: number) => answers[Math.floor(answers.length * (1 - share))]?.ms.toFixed(1);
  const longest = answers.slice(0, 5).map(({ ms, queuedMs }) => `${ms.toFixed(1)} (${queuedMs.toFixed(1)})`);
  const own = answers.map(({ ms, queuedMs }) => ms - queuedMs).toSorted((a, b) => b - a);
  return [
    `/healthz ${name}, ms: p50 ${at(0.5)}, p99 ${at(0.99)}, longest without the wait for a processor ${own[0]?.toFixed(1)}`,
    `  longest (of which waiting for a processor): ${longest.join(", ")}`,
  ].join("\n");
}

/** Sends a request about the policy. Returns how long the answer took, ms. */
async function send(url: string, admin: string, path: string, body: object): Promise<number> {
  const begun = performance.now();
  const answer = await fetch(`${url}/api/org/${slug}/policy/${path}/`, {
    method: "POST",
    headers: { Authorization: `Bearer ${admin}`, "Content-Type": "application/json" },
    body: JSON.stringify({ prune: true, ...body }),
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${text}`);
  return performance.now() - begun;
}

async function plan([given = "7"]: string[]): Promise<void> {
  const rounds = Number(given);
  buildAgent();
  using directory = temporaryDirectory();
  const data = join(directory.path, "data");
  const { admin } = await seed({ dataDirectory: data }, nodes);
  await giveGroups(data);
  await using server = await startServer(["--data-dir", data]);
  const ask = (path: string, policy: string) => send(server.url, admin, path, { policy });
  print(`apply first: ${(await ask("apply", policyOf(0))).toFixed(0)} ms`);
  const quiet = watch(server);
  await Bun.sleep(3000);
  const alone = await quiet.stop();
  print(describe("without plans", alone));
  const busy = watch(server);
  const plans: number[] = [];
  const applications: number[] = [];
  for (let round = 1; round <= rounds; round++) {
    plans.push(await ask("plan", policyOf(round * 1000)));
    applications.push(await ask("apply", policyOf(round)));
  }
  const beside = await busy.stop();
  print(describe("with plans", beside));
  const p99 = (answers: readonly Answered[]) =>
    quantile(
      answers.map(({ ms }) => ms),
      0.99,
    );
  figure("/healthz beside plans, p99", p99(beside), { unit: "ms", floor: p99(alone), most: 20 });
  figure("plan", plans, { unit: "ms", digits: 0, most: 1000 });
  figure("apply", applications, { unit: "ms", digits: 0 });
}

/** Group 0 for the first half, group 1 for the others. */
async function giveTwoGroups(dataDirectory: string, nodes: number): Promise<void> {
  const { db } = await openData({ dataDirectory }, "server", realSystem());
  const sql = "UPDATE nodes SET groups = $1 WHERE id > $2 AND id <= $3";
  await db.write(async (tx) => {
    await tx.run(sql, [JSON.stringify(["group-0"]), 0, nodes]);
    await tx.run(sql, [JSON.stringify(["group-1"]), nodes, 2 * nodes]);
  });
  await db.close();
}

const policyWithPort = (port: number) => `rules:
  - {direction: outbound, peer: any, target: any}
  - {protocol: tcp, ports: ${port}, peer: any, target: group:group-0}
  - {protocol: tcp, ports: 22, peer: any, target: group:group-1}
`;

type NodeState = { id: number; version: number; etag: string };
type Download = { at: number; status: number; bytes: number };

/** A node as it works: it polls, and asks for its configuration with the tag of the one that it has. */
function makeClient(url: string) {
  const headers = ({ id }: NodeState) => ({ Authorization: `Bearer ${tokenOf(id)}` });
  let running = 0;
  const waiting: (() => void)[] = [];
  return {
    async download(node: NodeState): Promise<Download> {
      if (running >= 128) await new Promise<void>((resolve) => waiting.push(resolve));
      running++;
      const more = node.etag === "" ? {} : { "If-None-Match": node.etag };
      const answer = await fetch(`${url}${paths.downloadConfig(slug, node.id)}`, {
        headers: { ...headers(node), ...more },
      });
      const { byteLength } = await answer.arrayBuffer();
      running--;
      waiting.shift()?.();
      node.etag = answer.headers.get("ETag") ?? node.etag;
      return { at: performance.now(), status: answer.status, bytes: byteLength };
    },
    /** Resolves when the control plane has news. */
    async poll(node: NodeState): Promise<void> {
      const body = { version: "0.1.0", uptime: 1, config_version: node.version, overlay_version: "1.10.3" };
      const answer = await fetch(`${url}${paths.checkin(slug, node.id)}`, {
        method: "POST",
        headers: { ...headers(node), "Content-Type": "application/json", Prefer: "wait=55" },
        body: JSON.stringify(body),
      });
      const { config_version: version }: { config_version: number } = JSON.parse(await answer.text());
      node.version = version;
    },
  };
}

async function applyTo([given = "20", count = "1000"]: string[]): Promise<void> {
  const rounds = Number(given);
  const concerned = Number(count);
  buildAgent();
  using directory = temporaryDirectory();
  const data = join(directory.path, "data");
  const { admin } = await seed({ dataDirectory: data }, 2 * concerned);
  await giveTwoGroups(data, concerned);
  await using server = await startServer(["--data-dir", data]);
  const apply = (policy: string) => send(server.url, admin, "apply", { policy });
  await apply(policyWithPort(1000));
  const client = makeClient(server.url);
  const all = Array.from({ length: 2 * concerned }, (_, at) => ({ id: at + 1, version: 1, etag: "" }));
  for (const node of all) await client.poll(node);
  await Promise.all(all.map((node) => client.download(node)));
  const times: number[] = [];
  const others: Download[] = [];
  for (let round = 1; round <= rounds; round++) {
    const news = all.map(async (node) => {
      await client.poll(node);
      return client.download(node);
    });
    // Until all wait.
    await Bun.sleep(2000);
    const begun = performance.now();
    await apply(policyWithPort(1000 + round));
    const downloads = await Promise.all(news);
    const own = downloads.slice(0, concerned);
    if (own.some(({ status }) => status !== 200)) throw new Error("A node that is concerned got nothing");
    times.push(Math.max(...own.map(({ at }) => at)) - begun);
    others.push(...downloads.slice(concerned).filter(({ status, bytes }) => status !== 304 || bytes > 0));
  }

  figure(`until the last of ${concerned} nodes has it`, times, { unit: "ms", digits: 0 });
  figure("the same, p99", quantile(times, 0.99), { unit: "ms", digits: 0, most: 2000 });
  figure(`downloads of ${concerned} nodes that are not concerned`, others.length, { most: 0 });
}

/** All nodes but the last two belong to the user of the address. */
async function giveOwner(options: DataOptions, nodes: number, email: string): Promise<void> {
  const { db } = await openData(options, "server", realSystem());
  await db.write(async (tx) => {
    const user = Number((await tx.get("SELECT id FROM users WHERE email = $1", [email]))?.["id"]);
    await tx.run(
      "INSERT INTO memberships (org_id, email, user_id, role, created_at) VALUES (1, $1, $2, 'member', 0)",
      [email, user],
    );
    await tx.run("UPDATE nodes SET owner_id = $1, owner_known = 1 WHERE id < $2", [user, nodes - 1]);
  });
  await db.close();
}

/** Posts the bodies in turn. Without one, gets. */
type Asked = { name: string; url: string; token?: string; bodies: string[] };

/** Asks every 5 ms in a process of its own. `stop` returns how long each answer took, ms, the longest first. */
function watchAnswers(asked: Asked): { stop(): Promise<number[]> } {
  const program = `
    const { url, token, bodies } = JSON.parse(process.argv[1]);
    const method = bodies.length > 0 ? "POST" : "GET";
    const headers = { "Content-Type": "application/json", ...(token && { Authorization: "Bearer " + token }) };
    const answers = [];
    process.on("SIGTERM", () => { console.log(JSON.stringify(answers.sort((a, b) => b - a))); process.exit(0); });
    for (let n = 0; ; n++) { const at = performance.now(), body = bodies[n % bodies.length]; const answer = await fetch(url, { method, headers, body }); await answer.arrayBuffer();
      if (!answer.ok) throw new Error(url + " " + answer.status);
      answers.push(performance.now() - at); await Bun.sleep(5); }`;
  const child = Bun.spawn([process.execPath, "-e", program, JSON.stringify(asked)], { stdout: "pipe" });
  return {
    async stop() {
      child.kill();
      const answers: number[] = JSON.parse(await new Response(child.stdout).text());
      return answers;
    },
  };
}

/** The median and the five longest. */
function describeTimes(answers: readonly number[]): string {
  const longest = answers.slice(0, 5).map((ms) => ms.toFixed(0));
  return `${answers.length} answers, p50 ${answers[answers.length >> 1]?.toFixed(1)}, longest ${longest.join(", ")}`;
}

async function regroupOn(name: string, options: DataOptions, flags: string[], nodes: number, rounds: number) {
  const { admin, people } = await seed(options, nodes, { people: 1 });
  const [email = ""] = people;
  await giveOwner(options, nodes, email);
  await using server = await startServer(flags);
  const apply = (members: string) =>
    send(server.url, admin, "apply", { policy: `groups: {web: {members: [${members}]}}\n` });
  // A check-in without news is answered from memory; one with another version of the engine is written.
  const checkin = (id: number, engines: string[]) => ({
    url: server.url + paths.checkin(slug, id),
    token: tokenOf(id),
    bodies: engines.map((engine) => JSON.stringify({ version: "0.1.0", uptime: 1, overlay_version: engine })),
  });
  const asked: Asked[] = [
    { name: "/healthz", url: `${server.url}/healthz`, bodies: [] },
    { name: "check-in", ...checkin(nodes - 1, ["1.10.3"]) },
    { name: "write", ...checkin(nodes, ["1.10.3", "1.10.2"]) },
  ];
  const watched = async (during: string, work: () => Promise<unknown>) => {
    const watches = asked.map((each) => ({ each, watching: watchAnswers(each) }));
    await Bun.sleep(1000);
    await work();
    for (const { each, watching } of watches)
      print(`${name}, ${during}, ${each.name}, ms: ${describeTimes(await watching.stop())}`);
  };
  await watched("at rest", () => Bun.sleep(2000));
  for (let round = 1; round <= rounds; round++) {
    await watched("all join", async () =>
      print(`${name}: apply, all join: ${(await apply(`"user:${email}"`)).toFixed(0)} ms`),
    );
    await watched("all leave", async () =>
      print(`${name}: apply, all leave: ${(await apply("")).toFixed(0)} ms`),
    );
  }
}

async function regroup([given = "10000", times = "1"]: string[]): Promise<void> {
  const count = Number(given);
  const rounds = Number(times);
  buildAgent();
  using directory = temporaryDirectory();
  const onSqlite = { dataDirectory: join(directory.path, "sqlite") };
  await regroupOn("SQLite", onSqlite, ["--data-dir", onSqlite.dataDirectory], count, rounds);
  await using cluster = await startPostgres();
  const url = await createDatabase(cluster.directory);
  const onPostgres = { dataDirectory: join(directory.path, "postgres"), databaseUrl: url };
  const flags = ["--data-dir", onPostgres.dataDirectory, "--database-url", url];
  await regroupOn("PostgreSQL", onPostgres, flags, count, rounds);
}

if (import.meta.main) await choose({ plan, apply: applyTo, regroup });
