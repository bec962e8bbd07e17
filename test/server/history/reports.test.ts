// Reports about a moment when something is wrong: a changed database, a missing event, archives, a forged report.

import { afterEach, expect, test } from "bun:test";
import { readdirSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { PastReport } from "../../../src/api/history/past.ts";
import { recordAllNotes } from "../../../src/server/history/record-notes.ts";
import { makeClockWatch } from "../../../src/server/certificates/clock-watch.ts";
import { archiveBatch } from "../../../src/server/retention/archive.ts";
import { openSqlite } from "../../../src/server/store/sqlite/sqlite.ts";
import { fixture, writeFixture } from "../../support/fixture.ts";
import { registerNode } from "../../support/nodes.ts";
import { makeTestServer, onPostgres, type TestServer, type TestServerOptions } from "../../support/server.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const undo: (() => unknown)[] = [];
afterEach(async () => {
  for (const each of undo.splice(0).reverse()) await each();
});

const Signed = v.object({ report: v.string(), signature: v.string() });

async function start(options: TestServerOptions = {}) {
  const directory = temporaryDirectory();
  undo.push(() => directory[Symbol.dispose]());
  const server = await makeTestServer({ dataDirectory: directory.path, ...options });
  undo.push(() => server[Symbol.asyncDispose]());
  server.clock.ms = Date.now();
  const org = await server.organization("acme");
  const token = await server.person("ada@example.org");
  await server.join(org, "ada@example.org", "owner");
  return { server, org, token, directory: directory.path, ...asking(server, token) };
}

function asking(server: TestServer, token: string) {
  const send = async (method: string, path: string, body?: unknown) => {
    await Bun.sleep(3);
    server.clock.ms = Date.now();
    const answer = await server.send(method, `/api/org/acme/${path}`, { token, body });
    await Bun.sleep(3);
    return answer;
  };
  const ask = async (at: number, more = "") =>
    send("GET", `policy/past/?at=${new Date(at).toISOString()}${more}`);
  const reportAt = async (at: number, more = "") => {
    const answer = await ask(at, more);
    expect([answer.status, answer.text]).toEqual([200, answer.text]);
    const signed = v.parse(Signed, answer.json);
    return { ...v.parse(PastReport, JSON.parse(signed.report)), signed };
  };
  return { send, ask, reportAt };
}

/** Two nodes, and a rule by which one reaches the other for a while. */
async function withRule() {
  const made = await start();
  const { server, org, send } = made;
  for (const name of ["laptop", "db"]) await registerNode(server, org, name);
  await Bun.sleep(60);
  const none = Date.now();
  await Bun.sleep(60);
  const rule = {
    direction: "inbound",
    protocol: "tcp",
    ports: "5432",
    peer: { any: true },
    target: { any: true },
  };
  const { id } = (await send("POST", "firewall_rules/", rule)).json as { id: number };
  await Bun.sleep(60);
  const allowed = Date.now();
  await Bun.sleep(60);
  await send("DELETE", `firewall_rules/${id}/`);
  return { ...made, none, allowed, id, packet: "&from=laptop&to=db&port=5432" };
}

test("a rule counts from its creation to its deletion, and the report names it with the certificate", async () => {
  const { reportAt, none, allowed, id, packet, ask } = await withRule();
  const at = async (ms: number) => (await reportAt(ms, packet)).access[0]?.allowed;
  expect([await at(none), await at(allowed), await at(Date.now())]).toEqual([false, true, false]);
  const { access, rules, doubts } = await reportAt(allowed, "&to=db&port=5432");
  expect(access.map(({ from, rule_id: rule }) => [from.name, rule])).toEqual([["laptop", id]]);
  expect(access[0]?.certificates).toHaveLength(1);
  expect(rules.map((each) => each.id)).toContain(id);
  expect(doubts).toEqual([]);
  expect((await ask(Date.now() + 3_600_000)).status).toBe(400);
  expect((await ask(allowed, "&to=nobody")).status).toBe(400);
  expect((await ask(Date.now() - 86_400_000)).json).toMatchObject({
    code: "conflict",
    detail: expect.stringContaining("did not exist"),
  });
});

test("without a port, everything that was permitted is told, with its rules and certificates", async () => {
  const { send, reportAt, none, allowed, id } = await withRule();
  const said = async (at: number, more: string) =>
    (await reportAt(at, more)).access.map(({ allowed: is, permitted }) => [is, permitted]);
  for (const who of ["&from=laptop&to=db", "&to=db"]) {
    const { access, rules, asked } = await reportAt(allowed, who);
    expect(access.map(({ allowed: is, permitted }) => [is, permitted])).toEqual([
      [true, ["icmp", "tcp/5432"]],
    ]);
    expect(access[0]?.reason).toContain("icmp, tcp/5432");
    expect(access[0]?.certificates).toHaveLength(1);
    expect(rules.map((each) => each.id)).toContain(id);
    expect(asked).toMatchObject({ protocol: "any", port: null });
  }
  expect(await said(none, "&from=laptop&to=db")).toEqual([[true, ["icmp"]]]);
  // With a protocol alone, of that protocol.
  expect(await said(allowed, "&from=laptop&to=db&protocol=tcp")).toEqual([[true, ["tcp/5432"]]]);
  expect(await said(none, "&from=laptop&to=db&protocol=tcp")).toEqual([[false, []]]);
  expect(await said(none, "&to=db&protocol=tcp")).toEqual([]);
  for (const { id: each } of (await send("GET", "firewall_rules/")).json as { id: number }[])
    await send("DELETE", `firewall_rules/${each}/`);
  expect(await said(Date.now(), "&from=laptop&to=db")).toEqual([[false, []]]);
});

test.skipIf(onPostgres)(
  "until a clock that was set back was right again, every moment is doubted",
  async () => {
    const { server, org, send, reportAt } = await withRule();
    const watch = makeClockWatch(server.app.services);
    const pause = () => Bun.sleep(150);
    await watch();
    await recordAllNotes(server.app.services);
    await pause();
    const before = Date.now();
    await pause();
    server.clock.ms = Date.now();
    server.clock.steppedMs = -3_600_000;
    await watch();
    const rule = {
      direction: "inbound",
      protocol: "tcp",
      ports: "4444",
      peer: { any: true },
      target: { any: true },
    };
    expect((await send("POST", "firewall_rules/", rule)).status).toBe(201);
    // The clock of SQLite is that of the machine.
    await server.db.write((tx) =>
      tx.run("UPDATE policy_changes SET at = at - 3600000 WHERE org_id = $1", [org.id]),
    );
    await recordAllNotes(server.app.services);
    await pause();
    const during = Date.now();
    await pause();
    server.clock.ms = Date.now();
    server.clock.steppedMs = 0;
    await watch();
    // Events tell the time of the clock in whole seconds.
    await Bun.sleep(1100);
    const doubts = async (at: number) => (await reportAt(at, "&from=laptop&to=db&port=4444")).doubts.join();
    expect(await doubts(before)).toContain("clock");
    expect(await doubts(during)).toContain("clock");
    expect(await doubts(Date.now())).toBe("");
  },
);

test("of a moment before its creation, an organization is said not to have existed", async () => {
  const { ask, org } = await withRule();
  const created = new Date(org.created_at).getTime();
  const { text } = await ask(created - 86_400_000);
  expect(text).toContain("It was created at");
  expect(text).not.toContain("version");
});

test("a change by hand in the database counts, and reports say so", async () => {
  const { server, org, reportAt, directory } = await withRule();
  await server.db.write((tx) =>
    tx.run("UPDATE firewall_rules SET protocol = 'any' WHERE org_id = $1", [org.id]),
  );
  // The database notes it by its own clock, which may be a fraction of a millisecond ahead.
  await Bun.sleep(60);
  const { access, signed } = await reportAt(Date.now(), "&from=laptop&to=db&port=80");
  expect(access[0]?.allowed).toBe(true);
  const file = join(directory, "report");
  writeFileSync(file, `${signed.report}\n${signed.signature}\n`);
  const { out } = await runVerify([file]);
  expect(out).toContain("by hand in the database");
  expect((await runVerify(["/dev/null"])).err).toContain("Name a regular file");
  for (const words of [["nofile"], [file, "--key", "nofile"]]) {
    const missing = await runVerify(words);
    expect([missing.status, missing.err]).toEqual([2, expect.stringContaining("There is no file nofile")]);
  }
  for (const head of ["zz", "A".repeat(64)]) {
    const refused = await runVerify([file, "--head", head]);
    expect([refused.status, refused.err]).toEqual([2, expect.stringContaining("64 hex digits")]);
  }
});

test("an order key that was changed by hand is said, and never stands in a report", async () => {
  const { server, org, ask, reportAt, allowed, packet } = await withRule();
  const whole = (await reportAt(allowed, packet)).order_key;
  const put = (text: string) =>
    server.db.write((tx) =>
      tx.run("UPDATE organizations SET order_public = $1 WHERE id = $2", [text, org.id]),
    );
  for (const text of ["no JSON", "{}", JSON.stringify({ ...whole, kid: `${whole.kid}Z` })]) {
    await put(text);
    const { status, json } = await ask(allowed, packet);
    expect([status, json]).toMatchObject([
      409,
      { code: "conflict", detail: expect.stringContaining("cannot be read") },
    ]);
  }
  await put(JSON.stringify({ ...whole, x: `${"A".repeat(42)}E` }));
  expect((await reportAt(allowed, packet)).order_key).toEqual(whole);
});

test("a changed event, a missing one, and rows that were changed past the log are told", async () => {
  const { server, org, reportAt, allowed, packet } = await withRule();
  const { chain } = await reportAt(allowed, packet);
  const doubts = async () => (await reportAt(allowed, `${packet}&head=${chain.head}`)).doubts.join("\n");
  const run = (sql: string, params: (string | number)[] = []) => server.db.write((tx) => tx.run(sql, params));
  await run(
    `DROP TRIGGER noted_firewall_rules_update${server.db.dialect === "postgres" ? " ON firewall_rules" : ""}`,
  );
  await run("UPDATE firewall_rules SET ports = '1-65535' WHERE org_id = $1", [org.id]);
  expect(await doubts()).toContain("The table firewall_rules holds something else");

  await run(
    "UPDATE events SET after = replace(after, '5432', '5433') WHERE org_id = $1 AND type = 'policy.recorded'",
    [org.id],
  );
  expect(await doubts()).toContain("or the events before it, were changed");
  const { access } = await reportAt(allowed, packet);
  expect(access[0]?.allowed).toBe(false);

  const unknown = await reportAt(allowed, `&head=${"0".repeat(64)}`);
  expect(unknown.chain.noted).toEqual({ hash: "0".repeat(64), event: null });
  expect(unknown.doubts.join("\n")).toContain("holds no event with the hash 0000");
  const rows = await server.db.all("SELECT id FROM events WHERE org_id = $1 AND type = 'policy.recorded'", [
    org.id,
  ]);
  await run("DELETE FROM deliveries");
  await run("DELETE FROM events WHERE id = $1", [Number(rows[0]?.["id"])]);
  const missing = await reportAt(allowed, packet).catch((error: unknown) => String(error));
  const said = typeof missing === "string" ? missing : missing.doubts.join("\n");
  expect(said).toMatch(/events before it, were changed|does not tell/);
});

test("an event that was changed to something else is told", async () => {
  const { server, org, reportAt, allowed } = await withRule();
  await reportAt(allowed);
  const where = "WHERE org_id = $1 AND type = 'policy.recorded'";
  const last = `id = (SELECT max(id) FROM events ${where})`;
  await server.db.write((tx) =>
    tx.run(`UPDATE events SET after = '{"noted_rows":[1]}' WHERE ${last}`, [org.id]),
  );
  const answer = await reportAt(allowed).catch(String);
  expect(typeof answer === "string" ? answer : answer.doubts.join()).toMatch(/cannot be read|does not tell/);
});

test("who did reach the node comes from the flows of that day, and is unknown without them", async () => {
  const { server, org, send, reportAt, allowed, packet } = await withRule();
  expect((await send("PATCH", "", { flows: true })).status).toBe(200);
  expect((await reportAt(allowed, packet)).did).toBeNull();
  const { flowBlockOf, flows } = await import("../../../src/server/store/tables/paths.ts");
  const ids = await server.db.all("SELECT id FROM nodes WHERE org_id = $1 ORDER BY id", [org.id]);
  const [laptop, db] = ids.map((row) => Number(row["id"]));
  const row = {
    nodeId: db ?? 0,
    day: Math.floor(allowed / 86_400_000),
    block: flowBlockOf(Math.floor(allowed / 86_400_000)),
    orgId: org.id,
    answered: 3,
    unseenS: 0,
  };
  const times = { firstAt: allowed, lastAt: allowed, report: "", protocol: "tcp", port: 5432, flows: 3 };
  await server.db.write(async (tx) => {
    await flows.insert(tx, { ...row, ...times, side: 1, peer: laptop ?? 0, address: "10.77.0.1" });
    await flows.insert(tx, { ...row, ...times, side: 2, peer: 0, address: "" });
  });
  const { did } = await reportAt(allowed, packet);
  expect(did).toMatchObject([{ from: { id: laptop, name: "laptop" }, port: 5432, flows: 3 }]);
  expect((await reportAt(allowed, "&from=laptop&to=db&port=22")).did).toEqual([]);
  const read = await server.db.all("SELECT actor FROM events WHERE type = 'flows.exported'");
  expect(read).toHaveLength(2);
  // Many newer flows of another kind hide none, nor does another name since.
  await server.db.write(async (tx) => {
    for (let port = 6000; port < 7001; port++)
      await flows.insert(tx, {
        ...row,
        ...times,
        lastAt: allowed + 1,
        port,
        side: 1,
        peer: laptop ?? 0,
        address: "10.77.0.1",
      });
  });
  await send("PATCH", `nodes/${laptop}/`, { name: "notebook" });
  expect((await reportAt(allowed, packet)).did).toMatchObject([
    { from: { id: laptop, name: "notebook" }, port: 5432 },
  ]);
});

test("a question without the node that it is about is refused, not answered with the policy", async () => {
  const { ask, allowed } = await withRule();
  for (const part of ["&from=laptop", "&protocol=tcp", "&port=22"])
    expect((await ask(allowed, part)).json).toMatchObject({ code: "bad_request" });
});

test("a whole chain that was computed anew is told by the hash that was noted", async () => {
  const { server, org, reportAt, allowed, packet } = await withRule();
  const { head } = (await reportAt(allowed, packet)).chain;
  expect((await reportAt(allowed, `${packet}&head=${head}`)).chain.noted?.event).toBeNumber();
  const { eventHash, eventText } = await import("../../../src/server/audit/record.ts");
  const { events } = await import("../../../src/server/store/tables/events.ts");
  await server.db.write(async (tx) => {
    let previous = "";
    for (const event of await events.all(tx, { orgId: org.id })) {
      const after = event.after?.replaceAll(/\b5432\b/g, "9999") ?? null;
      previous = eventHash(previous, eventText({ ...event, after }));
      await events.update(tx, { id: event.id }, { after, hash: previous });
    }
  });
  const { chain, doubts, access } = await reportAt(allowed, `${packet}&head=${head}`);
  expect(access[0]?.allowed).toBe(false);
  expect(doubts).toEqual([expect.stringContaining(`holds no event with the hash ${head}`)]);
  expect(chain.noted).toEqual({ hash: head, event: null });
});

test("archived events count, and an archive that is gone is named", async () => {
  const { server, org, directory, reportAt, ask, send, allowed, packet } = await withRule();
  const deps = { ...server.app.services, dataDirectory: directory };
  await recordAllNotes(server.app.services);
  const { head } = (await reportAt(allowed, packet)).chain;
  server.clock.ms = Date.now() + 1000;
  while (await archiveBatch(deps, { id: org.id, slug: "acme" }, { eventsS: 0, eventBytes: 1e9 }));
  await send("POST", "groups/", { name: "later" });
  const later = Date.now();
  await send("POST", "groups/", { name: "last" });
  // The beginning went into the archive, so the database has a new one.
  expect((await reportAt(later)).policy).toContain("later");
  expect((await reportAt(later)).chain.archives).toEqual([]);
  const { access, chain, doubts } = await reportAt(allowed, `${packet}&head=${head}`);
  expect(access[0]?.allowed).toBe(true);
  expect(chain.archives).toHaveLength(1);
  expect(chain.noted?.event).toBeNumber();
  expect(doubts).toEqual([]);

  const [file = ""] = readdirSync(join(directory, "archive"));
  renameSync(join(directory, "archive", file), join(directory, "moved"));
  const answer = await ask(allowed, packet);
  expect(answer.json).toMatchObject({ code: "conflict", detail: expect.stringContaining("It does from") });
  expect(answer.text).toContain("put it there");
  renameSync(join(directory, "archive"), join(directory, "elsewhere"));
  expect((await ask(allowed, packet)).text).toContain("put it there");
  expect((await reportAt(later)).policy).toContain("later");
});

test("of an organization from before, the moments since the update are known", async () => {
  const directory = temporaryDirectory();
  undo.push(() => directory[Symbol.dispose]());
  const path = join(directory.path, "control.db");
  writeFixture(path);
  const before = Date.now();
  await Bun.sleep(5);
  const server = await makeTestServer({
    secretKey: fixture.secret_key,
    open: async () => ({
      db: await openSqlite({ path, now: Date.now, role: "server" }),
      dispose: () => undefined,
    }),
  });
  undo.push(() => server[Symbol.asyncDispose]());
  server.clock.ms = Date.now();
  const token = await server.person("eve@example.org", { isStaff: true });
  const org = await server.db.get("SELECT id FROM organizations WHERE slug = 'acme'");
  await server.join({ id: Number(org?.["id"]), slug: "acme" } as never, "eve@example.org", "owner");
  const { send, ask, reportAt } = asking(server, token);
  const since = Date.now();
  expect((await send("POST", "groups/", { name: "new" })).status).toBe(201);
  const policy = async () => ((await send("GET", "policy/")).json as { policy: string }).policy;
  expect((await reportAt(Date.now())).policy).toBe(await policy());
  expect((await reportAt(since)).policy).not.toContain("new:");
  expect((await ask(before)).json).toMatchObject({
    code: "conflict",
    detail: expect.stringContaining("It does from"),
  });
});

test("a report is verified offline; a forged one, a foreign key and a hash that it does not have are told", async () => {
  const { server, directory, reportAt, allowed, packet } = await withRule();
  const { head } = (await reportAt(allowed, packet)).chain;
  const { signed, order_key: key } = await reportAt(allowed, `${packet}&head=${head}`);
  const place = (name: string, text: string) => {
    const path = join(directory, name);
    writeFileSync(path, text);
    return path;
  };
  const file = place("report", `${signed.report}\n${signed.signature}\n`);
  const config = place("node-config.json", JSON.stringify({ order_key: key, more: 1 }));
  const verify = (...words: string[]) => runVerify(words);
  const proved = await verify(file, "--key", config, "--head", head);
  expect([proved.status, proved.err]).toEqual([0, expect.not.stringContaining("Unproved")]);
  expect(proved.out).toContain("laptop → db: permitted");
  expect(proved.out).toContain("about the organization acme, made at");
  const alone = await verify(file);
  expect(alone.status).toBe(1);
  expect(alone.err).toContain("Give --key");
  expect(alone.err).toContain("Give --head");
  expect((await verify(file, "--key", config, "--head", "1".repeat(64))).err).toContain(
    "says nothing of the hash",
  );

  const forged = place(
    "forged",
    `${signed.report.replace('"allowed":true', '"allowed":false')}\n${signed.signature}\n`,
  );
  expect((await verify(forged, "--key", config, "--head", head)).err).toContain("forged");
  const other = await server.organization("other", "10.78.0.0/16");
  const row = await server.db.get("SELECT order_public FROM organizations WHERE id = $1", [other.id]);
  const foreign = place("foreign.json", String(row?.["order_public"]));
  expect((await verify(file, "--key", foreign)).err).toContain("--key is of another organization");
  for (const text of ["hello", signed.report.slice(0, 500), `${signed.report}\n${signed.signature}\nmore\n`])
    expect((await verify(place("text", text), "--key", config)).err).toContain("two lines");
});

const runVerify = async (words: string[]) => {
  const { run } = await import("../../../src/cli/run.ts");
  const { realSystem } = await import("../../../src/base/system.ts");
  let [out, err] = ["", ""];
  const status = await run(["admin", "audit", "verify-report", ...words], {
    ...realSystem(),
    env: {},
    stdout: { write: (text) => void (out += text), isTerminal: false, columns: 80 },
    stderr: { write: (text) => void (err += text), isTerminal: false, columns: 80 },
  });
  return { status, out, err };
};
