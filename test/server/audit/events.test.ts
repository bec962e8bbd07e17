// The audit log: what events hold, reading them by cursor, and verifying the hash chains.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { createHash } from "node:crypto";
import * as v from "valibot";
import { emptyChain, verifyEnd, verifyNext } from "../../../src/console/activity/chain.ts";
import { Event, eventsApi } from "../../../src/api/events.ts";
import { faultsIn, verifyChains } from "../../../src/server/audit/verify.ts";
import { eventHash, eventText, operator, record } from "../../../src/server/audit/record.ts";
import { events as table } from "../../../src/server/store/tables/events.ts";
import { createServiceToken } from "../../../src/server/users/service-tokens.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { announceExpiring } from "../../../src/server/nodes/lifecycle/expiring.ts";
import { signInBrowser } from "../../support/browser-session.ts";
import { registerNode } from "../../support/nodes.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";

let server: TestServer;
let org: Organization;
let owner: string;
beforeAll(async () => {
  server = await makeTestServer();
  org = await server.organization("acme");
  await server.organization("other", "10.78.0.0/16");
  owner = await server.person("ada@example.org");
  await server.join(org, "ada@example.org", "owner");
});
afterAll(() => server[Symbol.asyncDispose]());

const events = async (query = "") => {
  const answer = await server.send("GET", `/api/org/acme/events/${query}`, { token: owner });
  expect(answer.status).toBe(200);
  return { list: v.parse(v.array(Event), answer.json), link: answer.headers.get("link"), text: answer.text };
};
const send = (method: string, path: string, body?: unknown) =>
  server.send(method, `/api/org/acme/${path}`, { token: owner, body, address: "203.0.113.5" });

test("an event has type, actor, address, subject, and what changed before and after", async () => {
  const node = await registerNode(server, org, "laptop");
  await send("POST", "groups/", { name: "web" });
  await send("PATCH", `nodes/${node.id}/`, { groups: ["web"] });
  await send("POST", `nodes/${node.id}/renew_cert/`, {});
  await send("DELETE", `nodes/${node.id}/`);
  await send("POST", `nodes/${node.id}/restore/`, {});
  const wrong = { email: "ada@example.org", password: "not her password" };
  await server.send("POST", "/api/token/", { body: wrong, address: "198.51.100.9" });
  const { list } = await events();
  expect(list.map((each) => each.type)).toEqual([
    "organization.created",
    "member.created",
    "token.created",
    "token.used",
    "node.registered",
    "certificate.issued",
    "group.created",
    "node.updated",
    "certificate.issued",
    "certificate.renewed",
    "node.revoked",
    "node.restored",
    "certificate.issued",
    "security.login_failed",
  ]);
  const user = await server.db.get("SELECT id FROM users WHERE email = 'ada@example.org'");
  expect(list.find((each) => each.type === "node.updated")).toMatchObject({
    actor: { kind: "person", id: user?.["id"], ip: "203.0.113.5" },
    subject: `node/${node.id}`,
    before: { groups: [] },
    after: { groups: ["web"] },
  });
  expect(list.at(-1)).toMatchObject({ actor: { kind: "nobody", id: null, ip: "198.51.100.9" } });
});

test("members read the addresses of their own actions only, and no hashes; visiting staff and programs read all", async () => {
  await server.person("eve@example.org");
  await server.join(org, "eve@example.org", "member");
  const eve = await signInBrowser(server, "eve@example.org");
  const id = Number((await server.db.get("SELECT id FROM users WHERE email = 'eve@example.org'"))?.["id"]);
  const event = { orgId: org.id, at: server.clock.ms, subject: "node/1" };
  await server.db.write((tx) =>
    record(tx, [
      { ...event, type: "node.updated", actor: { kind: "person", id, ip: "203.0.113.7" } },
      { ...event, type: "node.updated", actor: { kind: "node", id: 1, ip: "203.0.113.8" } },
      {
        ...event,
        type: "registration.waiting",
        actor: { kind: "nobody", id: null, ip: "203.0.113.9" },
        after: { name: "web", seen_from: "203.0.113.9" },
      },
    ]),
  );
  const maker = { userId: null, actor: operator };
  const program = { name: "siem", role: "member" } as const;
  const { token } = await createServiceToken(server.app.services, org, program, maker);
  const all = (await events("?limit=1000")).list;
  const path = "/api/org/acme/events/";
  for (const query of ["?limit=1000", `?limit=1000&before=999999999`]) {
    const seen = v.parse(v.array(Event), (await eve.send("GET", `${path}${query}`)).json);
    expect(seen.map((each) => each.id)).toEqual(all.map((each) => each.id));
    expect(new Set(seen.map((each) => each.hash))).toEqual(new Set([""]));
    expect(seen.flatMap(({ actor }) => actor.ip ?? [])).toEqual(["203.0.113.7"]);
    expect(seen.at(-2)).toMatchObject({ after: { name: "web" } });
    expect(JSON.stringify(seen)).not.toContain("203.0.113.9");
  }
  await server.person("staff@example.org", { isStaff: true });
  const staff = await signInBrowser(server, "staff@example.org");
  const readers = [
    server.send("GET", `${path}?limit=1000`, { token }),
    staff.send("GET", `${path}?limit=1000`),
  ];
  for (const answer of await Promise.all(readers)) expect(v.parse(v.array(Event), answer.json)).toEqual(all);
  expect(faultsIn(await verifyChains(server.db, server.app.services.secretKey))).toEqual([]);
});

test("staff read what belongs to no organization; members, owners and programs do not", async () => {
  const path = "/api/events/";
  await server.person("gone@example.org");
  await server.join(org, "gone@example.org", "admin");
  await server.person("root@example.org", { isStaff: true });
  const staff = await signInBrowser(server, "root@example.org");
  const admin = await signInBrowser(server, "gone@example.org");
  const member = await signInBrowser(server, "eve@example.org");
  const read = async (query: string) => {
    const answer = await staff.send("GET", `${path}${query}`);
    expect(answer.status).toBe(200);
    return { list: v.parse(v.array(Event), answer.json), link: answer.headers.get("link") };
  };
  const id = Number((await server.db.get("SELECT id FROM users WHERE email = 'gone@example.org'"))?.["id"]);
  const maker = { userId: null, actor: operator };
  const program = { name: "all", role: "admin" } as const;
  const { token } = await createServiceToken(server.app.services, org, program, maker);
  const refused = [
    admin.send("GET", path),
    member.send("GET", path),
    server.send("GET", path, { token: owner }),
    server.send("GET", path, { token }),
  ];
  for (const answer of await Promise.all(refused)) {
    expect(answer).toMatchObject({ status: 403, json: { code: "permission_denied" } });
    expect(answer.text).not.toContain("user.");
  }
  expect((await server.send("GET", path)).status).toBe(401);
  expect((await staff.send("PATCH", `/api/users/${id}/`, { body: { is_active: false } })).status).toBe(200);
  const { list } = await read("?limit=1000");
  expect(list.at(-1)).toMatchObject({ type: "user.disabled", actor: { kind: "person" } });
  // Nothing of an organization.
  expect(list.filter(({ type }) => /^(node|member|organization|token)\./.test(type))).toEqual([]);
  const count = Number((await server.db.get("SELECT count(*) AS n FROM events WHERE org_id IS NULL"))?.["n"]);
  expect(list).toHaveLength(count);
  // Page by page, and back.
  const first = await read("?limit=1");
  expect(first.list).toEqual(list.slice(0, 1));
  expect(first.link).toBe(
    `<${server.app.services.publicUrl}${path}?after=${list[0]?.id}&limit=1>; rel="next"`,
  );
  expect((await read(`?after=${list.at(-2)?.id}`)).list).toEqual(list.slice(-1));
  expect((await read(`?before=${list.at(-1)?.id}&limit=1`)).list).toEqual(list.slice(-2, -1));
  // Its chain is its own, and is verified as one of an organization.
  const sha256 = async (text: string) => createHash("sha256").update(text).digest("hex");
  const chain = await verifyEnd(await verifyNext(emptyChain, list, sha256), sha256);
  expect(chain).toMatchObject({ events: count, brokenAt: undefined });
});

test("an event holds only the fields and the settings that changed", async () => {
  const ranges = Object.fromEntries(
    Array.from({ length: 300 }, (_, at) => [`10.${at >> 8}.${at & 255}.0/24`, true]),
  );
  const lighthouse = { remote_allow_list: ranges };
  await send("PATCH", "", { config_overrides: { lighthouse, punchy: { punch: true, delay: "1s" } } });
  await send("PATCH", "", { name: "Acme Ltd" });
  await send("PATCH", "", { config_overrides: { lighthouse, punchy: { punch: false, respond: true } } });
  await send("PATCH", "", { name: "Acme Ltd" });
  const { list } = await events();
  const updated = list.filter(({ type }) => type === "organization.updated").slice(1);
  expect(updated.map(({ before, after }) => [before, after])).toEqual([
    [{ name: "acme" }, { name: "Acme Ltd" }],
    [
      { config_overrides: { punchy: { punch: true, delay: "1s" } } },
      { config_overrides: { punchy: { punch: false, respond: true } } },
    ],
    [{}, {}],
  ]);
  await send("PATCH", "", { config_overrides: {} });
});

test("the overrides of a node are in its event", async () => {
  const { id } = await registerNode(server, org, "tuned");
  await send("PATCH", `nodes/${id}/`, { config_overrides: { tun: { mtu: 1400 } } });
  await send("PATCH", `nodes/${id}/`, { config_overrides: { tun: { mtu: 1300 }, routines: 2 } });
  const { list } = await events();
  expect(
    list.filter(({ subject, type }) => type === "node.updated" && subject === `node/${id}`),
  ).toMatchObject([
    { before: { config_overrides: {} }, after: { config_overrides: { tun: { mtu: 1400 } } } },
    {
      before: { config_overrides: { tun: { mtu: 1400 } } },
      after: { config_overrides: { tun: { mtu: 1300 }, routines: 2 } },
    },
  ]);
});

test("a certificate without renewal gets one `certificate.expiring`, two weeks before it expires", async () => {
  const node = await registerNode(server, org, "asleep");
  const expiring = async () =>
    (await events()).list.filter(
      ({ type, subject }) => type === "certificate.expiring" && subject === `node/${node.id}`,
    );
  const end = Date.parse(node.answer.node.certificate?.not_after ?? "");
  const { ms } = server.clock;
  server.clock.ms = end - 14 * 86_400_000;
  await announceExpiring(server.app.services);
  server.clock.ms = ms;
  expect(await expiring()).toEqual([]);
  server.clock.ms = end - 13 * 86_400_000;
  for (let again = 0; again < 2; again++) await announceExpiring(server.app.services);
  server.clock.ms = ms;
  expect(await expiring()).toMatchObject([
    { actor: { kind: "server" }, after: { not_after: node.answer.node.certificate?.not_after } },
  ]);
});

test("a reader resumes at its cursor and gets only newer events", async () => {
  const all = (await events()).list;
  const read = [];
  for (let after = 0; ;) {
    const { list, link } = await events(`?after=${after}&limit=4`);
    read.push(...list);
    expect(link === null).toBe(list.length < 4);
    if (link !== null) expect(link).toContain(`?after=${list.at(-1)?.id}&limit=4>; rel="next"`);
    if (list.length === 0) break;
    after = list.at(-1)?.id ?? 0;
  }
  expect(read).toEqual(all);
  await send("POST", "groups/", { name: "later" });
  const { list } = await events(`?after=${all.at(-1)?.id}`);
  expect(list.map((each) => each.type)).toEqual(["group.created"]);
  for (const query of ["?after=-1", "?limit=0", "?limit=1001", "?after=x", "?before=0", "?newest=3"]) {
    expect((await send("GET", `events/${query}`)).status).toBe(400);
  }
});

test("a reader can verify the hash chain from the answers alone", async () => {
  const { text } = await events();
  let previous = "";
  for (const { id, hash, ...rest } of JSON.parse(text)) {
    expect(id).toBeGreaterThan(0);
    previous = createHash("sha256")
      .update(`${previous}\n${JSON.stringify(rest)}`)
      .digest("hex");
    expect(hash).toBe(previous);
  }
});

test("verification finds a changed, a removed and an inserted event", async () => {
  const broken = async () =>
    (await verifyChains(server.db, server.app.services.secretKey)).map(({ organization, breaks }) => [
      organization,
      breaks[0]?.event ?? null,
    ]);
  const whole = [
    [null, null],
    ["acme", null],
    ["other", null],
  ];
  expect(await broken()).toEqual(whole);
  const { list } = await events();
  const victim = list[3]?.id ?? 0;
  const after = list[4]?.id ?? 0;
  const run = (sql: string, params: (string | number)[]) => server.db.write((tx) => tx.run(sql, params));
  await run("UPDATE events SET subject = 'node/99' WHERE id = $1", [victim]);
  expect((await broken())[1]).toEqual(["acme", victim]);
  await run("UPDATE events SET subject = $2 WHERE id = $1", [victim, list[3]?.subject ?? ""]);
  expect(await broken()).toEqual(whole);
  // Moving the event to another chain breaks both chains; moving it back repairs them.
  await run("UPDATE events SET org_id = NULL WHERE id = $1", [victim]);
  expect(await broken()).toEqual([
    [null, victim],
    ["acme", after],
    ["other", null],
  ]);
  await run("UPDATE events SET org_id = $2 WHERE id = $1", [victim, org.id]);
  expect(await broken()).toEqual(whole);
});

test("what is hashed is what is stored: a subject that no database stores breaks no chain", async () => {
  const event = { orgId: org.id, at: server.clock.ms, type: "node.updated", actor: operator } as const;
  await server.db.write((tx) =>
    record(tx, { ...event, subject: "node/\udfff", before: { name: "a\0\ud800" }, after: { name: "b" } }),
  );
  expect(faultsIn(await verifyChains(server.db, server.app.services.secretKey))).toEqual([]);
  expect((await events("?limit=1000")).list.at(-1)?.subject).toBe("node/\ufffd");
});

test("an event that an earlier version hashed with a lone surrogate is proven by its hash; a forgery after it is found", async () => {
  const faults = async () => faultsIn(await verifyChains(server.db, server.app.services.secretKey));
  const event = { orgId: null, at: server.clock.ms, type: "user.created", actor: operator } as const;
  await server.db.write((tx) => record(tx, { ...event, subject: "user/x" }));
  const [last] = await server.db.all("SELECT * FROM events WHERE org_id IS NULL ORDER BY id DESC LIMIT 1");
  const [former] = await server.db.all(
    "SELECT hash FROM events WHERE org_id IS NULL ORDER BY id DESC LIMIT 1 OFFSET 1",
  );
  const row = table.parse(last ?? {});
  const hash = eventHash(
    String(former?.["hash"] ?? ""),
    eventText({ ...row, subject: "user/\udfff@a.example" }),
  );
  await server.db.write((tx) =>
    tx.run("UPDATE events SET subject = $1, hash = $2, chain_bytes = NULL WHERE id = $3", [
      "user/\ufffd@a.example",
      hash,
      row.id,
    ]),
  );
  await server.db.write((tx) => record(tx, { ...event, subject: "user/y" }));
  expect(await faults()).toEqual([]);
  const rename = (subject: string) =>
    server.db.write((tx) =>
      tx.run("UPDATE events SET subject = $2 WHERE id > $1 AND org_id IS NULL", [row.id, subject]),
    );
  await rename("forged");
  expect(await faults()).toEqual([expect.stringContaining("the log of the operator: event")]);
  await rename("user/y");
});

test("verification finds a changed count of bytes, by which events are archived and storage is bounded", async () => {
  await server.organization("counted", "10.98.0.0/16");
  const org = "(SELECT id FROM organizations WHERE slug = 'counted')";
  const faults = async () =>
    (await verifyChains(server.db, server.app.services.secretKey)).find(
      ({ organization }) => organization === "counted",
    )?.breaks;
  const set = (value: string, which: "min" | "max") =>
    server.db.write((tx) =>
      tx.run(
        `UPDATE events SET chain_bytes = ${value} WHERE id = (SELECT ${which}(id) FROM events WHERE org_id = ${org})`,
      ),
    );
  const add = (subject: string) =>
    server.db.write(async (tx) => {
      const id = Number((await tx.get(`SELECT ${org} AS id`))?.["id"]);
      const event = { at: server.clock.ms, type: "node.updated", actor: operator, subject } as const;
      await record(tx, { orgId: id, ...event });
    });
  for (const subject of ["node/1", "node/2", "node/3"]) await add(subject);
  expect(await faults()).toEqual([]);
  await set("chain_bytes - 100", "max");
  expect(await faults()).toMatchObject([{ what: "has a wrong count of bytes" }]);
  // What is counted on from there is right again; the place stays named.
  await add("node/4");
  expect(await faults()).toHaveLength(1);
  await set("0", "min");
  expect(await faults()).toHaveLength(3);
  // Earlier versions counted none.
  await server.db.write((tx) => tx.run(`UPDATE events SET chain_bytes = NULL WHERE org_id = ${org}`));
  expect(await faults()).toEqual([]);
  await add("node/5");
  expect(await faults()).toEqual([]);
});

test("verification finds that all events of an organization were deleted", async () => {
  const chains = () => verifyChains(server.db, server.app.services.secretKey);
  expect(faultsIn(await chains())).toEqual([]);
  await server.organization("emptied", "10.99.0.0/16");
  await server.db.write((tx) =>
    tx.run("DELETE FROM events WHERE org_id = (SELECT id FROM organizations WHERE slug = 'emptied')"),
  );
  expect(faultsIn(await chains())).toEqual([expect.stringContaining("the log of emptied is empty")]);
});

test("the log is read backwards by before, which does not go with after", async () => {
  const { list } = await events("?limit=1000");
  const ids = list.map(({ id }) => id);
  const newest = await events("?before=999999999999999&limit=3");
  expect(newest.list.map(({ id }) => id)).toEqual(ids.slice(-3));
  const older = await events(`?before=${newest.list[0]?.id}&limit=3`);
  expect(older.list.map(({ id }) => id)).toEqual(ids.slice(-6, -3));
  expect((await events(`?before=${ids[0]}`)).list).toEqual([]);
  const both = await server.send("GET", "/api/org/acme/events/?before=9&after=3", { token: owner });
  expect(both.status).toBe(400);
});

test("events are counted by hour and type, and read for a time; another organization's are not", async () => {
  const hourMs = 3_600_000;
  server.clock.ms += 48 * hourMs - (server.clock.ms % hourMs);
  const start = server.clock.ms;
  const signIn = async () => {
    const user = await server.db.get("SELECT id FROM users WHERE email = 'ada@example.org'");
    owner = (await server.app.services.sessions.start(Number(user?.["id"]))).access;
  };
  await signIn();
  await send("POST", "groups/", { name: "late-1" });
  await send("POST", "groups/", { name: "late-2" });
  server.clock.ms = start + 1.5 * hourMs;
  await signIn();
  const other = await server.db.get("SELECT id FROM organizations WHERE slug = 'other'");
  await server.db.writeFor({ org: Number(other?.["id"]) }, (tx) =>
    record(tx, {
      orgId: Number(other?.["id"]),
      at: server.clock.ms,
      type: "group.created",
      actor: operator,
      subject: "group/x",
    }),
  );
  await send("POST", "groups/", { name: "late-3" });
  const hours = async (query = "") => {
    const { json } = await server.send("GET", `/api/org/acme/events/hours/${query}`, { token: owner });
    return v.parse(eventsApi.hours.answers[200].schema, json);
  };
  const at = (hour: number) => new Date(start + hour * hourMs).toISOString();
  expect(await hours("?days=1")).toEqual([
    { at: at(0).replace(".000", ""), count: 2, types: { "group.created": 2 } },
    { at: at(1).replace(".000", ""), count: 1, types: { "group.created": 1 } },
  ]);
  // What happened two days ago is in the week.
  expect((await hours()).length).toBeGreaterThan(2);
  const names = async (query: string) => (await events(query)).list.map(({ subject }) => subject);
  const first = `?from=${at(0)}&until=${at(1)}`;
  expect(await names(first)).toEqual(["group/late-1", "group/late-2"]);
  expect(await names(`?from=${at(1)}&until=${at(2)}`)).toEqual(["group/late-3"]);
  expect(await names(`?from=${at(1.2)}&until=${at(1.4)}`)).toEqual([]);
  expect(await names(`?from=${at(1.2)}&until=${at(1.6)}`)).toEqual(["group/late-3"]);
  expect(await names(`?from=${at(8)}&until=${at(9)}`)).toEqual([]);
  // Pages, forwards and backwards.
  const page = await events(`${first}&limit=1`);
  const next = /<[^?]*(\?[^>]*)>/.exec(page.link ?? "")?.[1] ?? "";
  expect(await names(next)).toEqual(["group/late-2"]);
  expect((await events(first)).link).toBeNull();
  const newest = `?before=${Number.MAX_SAFE_INTEGER}&from=${at(0)}&until=${at(1)}`.replace(
    /9007\d+/,
    "999999999999999",
  );
  expect(await names(`${newest}&limit=1`)).toEqual(["group/late-2"]);
  for (const wrong of ["from=yesterday", "until=2026-11-27", "from=1", `from=${"9".repeat(50)}`])
    expect((await send("GET", `events/?${wrong}`)).status).toBe(400);
});
