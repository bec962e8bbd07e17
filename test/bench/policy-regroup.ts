// `bun test/bench/policy-regroup.ts [NODES] [ROUNDS]`: one apply puts all nodes of a user into a group, the next one takes
// them out again, on SQLite and on PostgreSQL. How long the application takes, and how long answers of /healthz, check-ins of
// another node and other writes of the organization take meanwhile (bars: no answer over 50 ms for it, no lock over 2 s).

import { join } from "node:path";
import { paths } from "../support/paths.ts";
import { openData, type DataOptions } from "../../src/server/store/data-directory.ts";
import { realSystem } from "../../src/base/system.ts";
import { buildAgent } from "../support/agent.ts";
import { createDatabase, startPostgres } from "../support/postgres.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { print, startServer } from "./measure.ts";
import { seed, slug, tokenOf } from "./seed.ts";

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
function watch(asked: Asked): { stop(): Promise<number[]> } {
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
function describe(answers: readonly number[]): string {
  const longest = answers.slice(0, 5).map((ms) => ms.toFixed(0));
  return `${answers.length} answers, p50 ${answers[answers.length >> 1]?.toFixed(1)}, longest ${longest.join(", ")}`;
}

async function measure(name: string, options: DataOptions, flags: string[], nodes: number, rounds: number) {
  const { admin, people } = await seed(options, nodes, { people: 1 });
  const [email = ""] = people;
  await giveOwner(options, nodes, email);
  await using server = await startServer(flags);
  const apply = async (members: string) => {
    const begun = performance.now();
    const answer = await fetch(`${server.url}/api/org/${slug}/policy/apply/`, {
      method: "POST",
      headers: { Authorization: `Bearer ${admin}`, "Content-Type": "application/json" },
      body: JSON.stringify({ policy: `groups: {web: {members: [${members}]}}\n`, prune: true }),
    });
    if (!answer.ok) throw new Error(`apply: ${answer.status} ${await answer.text()}`);
    await answer.arrayBuffer();
    return performance.now() - begun;
  };
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
    const watches = asked.map((each) => ({ each, watching: watch(each) }));
    await Bun.sleep(1000);
    await work();
    for (const { each, watching } of watches)
      print(`${name}, ${during}, ${each.name}, ms: ${describe(await watching.stop())}`);
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

if (import.meta.main) {
  const nodes = Number(process.argv[2] ?? 10_000);
  const rounds = Number(process.argv[3] ?? 1);
  buildAgent();
  using directory = temporaryDirectory();
  const onSqlite = { dataDirectory: join(directory.path, "sqlite") };
  await measure("SQLite", onSqlite, ["--data-dir", onSqlite.dataDirectory], nodes, rounds);
  await using cluster = await startPostgres();
  const url = await createDatabase(cluster.directory);
  const onPostgres = { dataDirectory: join(directory.path, "postgres"), databaseUrl: url };
  const flags = ["--data-dir", onPostgres.dataDirectory, "--database-url", url];
  await measure("PostgreSQL", onPostgres, flags, nodes, rounds);
}
