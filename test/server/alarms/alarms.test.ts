// Alarms: one for one cause, told when it begins and when it is well again, and never because the control plane was away.

import { beforeEach, describe, expect, test } from "bun:test";
import type { Organization } from "../../../src/api/organizations.ts";
import type { Alarm } from "../../../src/api/webhooks/alarms.ts";
import { makeAlarms } from "../../../src/server/alarms/evaluate.ts";
import { readWords } from "../../../src/server/alarms/present-title.ts";
import { recordAway } from "../../../src/server/nodes/contact/away-nodes.ts";
import type { Reader } from "../../../src/server/store/database.ts";
import { alarms as storedAlarms } from "../../../src/server/store/tables/webhooks.ts";
import { hour, minute, useEphemeral } from "../../support/ephemeral.ts";
import { registerNode, type RegisteredNode } from "../../support/nodes.ts";
import type { TestServer } from "../../support/server.ts";

let server: TestServer;
let org: Organization;
const { call, watch } = useEphemeral((made) => ({ server, org } = made));

const done = async (...of: Parameters<typeof call>) => expect((await call(...of)).status).toBeLessThan(300);
const alarms = async () => (await call("GET", "alarms/")).json as Alarm[];
const open = async () =>
  (await alarms()).filter(({ ended_at }) => ended_at === null).map(({ title }) => title);

let evaluate: ReturnType<typeof makeAlarms>;
beforeEach(() => void (evaluate = makeAlarms(server.app.services)));

async function toldDuring(run: () => Promise<unknown>): Promise<string[]> {
  const before = Number((await server.db.get("SELECT coalesce(max(id), 0) AS id FROM events"))?.["id"]);
  await run();
  const events = await server.db.all(
    "SELECT type, after FROM events WHERE id > $1 AND org_id = $2 AND type LIKE 'alarm.%' ORDER BY id",
    [before, org.id],
  );
  return events.map(({ after }) => JSON.parse(String(after)).name);
}

const lastText = async (): Promise<string> => {
  const sql = "SELECT after FROM events WHERE org_id = $1 AND type = 'alarm.ended' ORDER BY id DESC LIMIT 1";
  return JSON.parse(String((await server.db.get(sql, [org.id]))?.["after"])).text;
};

/** Time in which the server runs, and these nodes check in every 30 s. */
async function live(ms: number, nodes: readonly RegisteredNode[] = []): Promise<void> {
  for (let passed = 0; passed < ms; passed += minute / 2) {
    for (const node of nodes) expect((await node.checkin({ config_version: 1 })).status).toBe(200);
    for (let part = 0; part < 3; part++) {
      server.clock.ms += minute / 6;
      await watch();
      await evaluate(await recordAway(server.app.services));
    }
  }
}

const report = async (node: RegisteredNode, peer: string, probe: string) => {
  await node.checkin({ paths: { changed: [{ peer, path: "direct", probe }] } });
  await server.app.services.pathReports.stop();
};

describe("alarms", () => {
  let lh: RegisteredNode;
  let gw: RegisteredNode;
  let web: RegisteredNode;
  let db: RegisteredNode;
  beforeEach(async () => {
    [lh, gw, web, db] = (await Promise.all(
      ["lh", "gw", "web", "db"].map((name) => registerNode(server, org, name, { mode: "server" })),
    )) as [RegisteredNode, RegisteredNode, RegisteredNode, RegisteredNode];
    await done("PATCH", `nodes/${lh.id}/`, {
      is_lighthouse: true,
      public_ip: "192.0.2.9",
      external_port: 4242,
    });
    await done("PATCH", `nodes/${gw.id}/`, { subnets: ["192.168.9.0/24"] });
    await live(2 * minute, [lh, gw, web, db]);
  });

  test("a lighthouse that is away is told once, by whom it is lost, and told when it is back", async () => {
    await report(web, lh.ip, "broken");
    expect(await toldDuring(() => live(2.5 * minute, [gw, web, db]))).toEqual([]);
    expect(await toldDuring(() => live(minute, [gw, web, db]))).toEqual(["The lighthouse lh is away"]);
    const [alarm] = await alarms();
    expect(alarm).toMatchObject({ kind: "lighthouse", urgent: true, nodes: [lh.id], ended_at: null });
    expect(alarm?.text).toContain("Not reached by web");
    expect(alarm?.text).toContain("There is no other lighthouse");
    expect(await toldDuring(() => live(10 * minute, [gw, web, db]))).toEqual([]);
    expect(await toldDuring(() => live(minute, [lh, gw, web, db]))).toEqual([
      "Over: The lighthouse lh is away",
    ]);
    expect(await open()).toEqual([]);
  });

  test("what goes away together is one alarm, named after the router, and what stays away is told by itself", async () => {
    expect(await toldDuring(() => live(4 * minute, [lh]))).toEqual([
      "The router gw is away, and 2 nodes with it",
    ]);
    expect((await alarms())[0]?.text).toContain("Cut off: 192.168.9.0/24");
    expect(await toldDuring(() => live(20 * minute, [lh]))).toEqual([]);
    expect(await toldDuring(() => live(minute, [lh, gw, web]))).toEqual([]);
    expect(await toldDuring(() => live(3 * minute, [lh, gw, web]))).toEqual([
      "Over: The router gw is away, and 2 nodes with it",
      "The node db is away",
    ]);
  });

  test("a restart and a pause of the control plane, and jumps of its clock, raise nothing", async () => {
    const all = [lh, gw, web, db];
    for (const ms of [20_000, 4 * minute, 20 * minute, 5 * hour, -3 * hour]) {
      server.clock.ms += ms;
      // Nodes come back one after the other within two minutes.
      expect(await toldDuring(() => live(minute))).toEqual([]);
      expect(await toldDuring(() => live(minute, [lh, gw]))).toEqual([]);
      expect(await toldDuring(() => live(5 * minute, all))).toEqual([]);
    }
    server.clock.ms += hour;
    expect(await toldDuring(() => live(5 * minute, [gw, web, db]))).toEqual(["The lighthouse lh is away"]);
  });

  test("two replicas that look at the same time tell once", async () => {
    const other = makeAlarms(server.app.services);
    const told = await toldDuring(async () => {
      for (let passed = 0; passed < 5 * minute; passed += minute / 6) {
        for (const node of [gw, web, db]) await node.checkin({ config_version: 1 });
        server.clock.ms += minute / 6;
        await watch();
        const silence = await recordAway(server.app.services);
        await Promise.all([evaluate(silence), other(silence)]);
      }
    });
    expect(told).toEqual(["The lighthouse lh is away"]);
  });

  test("one reporter alone makes no node away or back; two bring it back", async () => {
    await report(web, db.ip, "broken");
    expect(await toldDuring(() => live(4 * minute, [lh, gw, web, db]))).toEqual([]);
    await report(web, db.ip, "answers");
    expect(await toldDuring(() => live(20 * minute, [lh, gw, web]))).toEqual([]);
    await report(web, db.ip, "broken");
    expect(await toldDuring(() => live(minute, [lh, gw, web]))).toEqual(["The node db is away"]);
    await report(web, db.ip, "answers");
    expect(await toldDuring(() => live(5 * minute, [lh, gw, web]))).toEqual([]);
    await report(gw, db.ip, "answers");
    expect(await toldDuring(() => live(minute, [lh, gw, web]))).toEqual(["Over: The node db is away"]);
  });

  test("what comes and goes is told as flapping, then no more until it is steady", async () => {
    const away = () => live(4 * minute, [gw, web, db]);
    const back = () => live(2 * minute, [lh, gw, web, db]);
    expect(
      await toldDuring(async () => {
        for (let n = 0; n < 8; n++) {
          await away();
          await back();
        }
      }),
    ).toHaveLength(5);
    expect((await alarms())[0]).toMatchObject({ flapping: true, ended_at: null });
    expect(await toldDuring(() => live(16 * minute, [lh, gw, web, db]))).toEqual([
      "Over: The lighthouse lh is away",
    ]);
  });

  test("a path that stays broken is told, grouped by the node, not while an end is away", async () => {
    for (const node of [lh, gw, web]) await report(node, db.ip, "broken");
    expect(await toldDuring(() => live(4 * minute, [lh, gw, web, db]))).toEqual([]);
    expect(await toldDuring(() => live(2 * minute, [lh, gw, web, db]))).toEqual([
      "db and gw, lh, web do not reach each other",
    ]);
    for (const node of [lh, gw, web]) await report(node, db.ip, "answers");
    expect(await toldDuring(() => live(minute, [lh, gw, web, db]))).toEqual([
      "Over: db and gw, lh, web do not reach each other",
    ]);
  });

  test("a turn that fails before the paths are read does not let the time of a broken path begin again", async () => {
    let isFailing = false;
    const failing: typeof server.db = Object.assign(Object.create(server.db), {
      all: (...query: Parameters<typeof server.db.all>) =>
        isFailing && query[0].includes("x.probe = 'broken'")
          ? Promise.reject(new Error("the database is away"))
          : server.db.all(...query),
    });
    evaluate = makeAlarms({ ...server.app.services, db: failing });
    for (const node of [lh, gw, web]) await report(node, db.ip, "broken");
    const all = [lh, gw, web, db];
    expect(await toldDuring(() => live(4 * minute, all))).toEqual([]);
    isFailing = true;
    expect(await toldDuring(() => live(minute / 2, all))).toEqual([]);
    isFailing = false;
    expect(await toldDuring(() => live(1.5 * minute, all))).toEqual([
      "db and gw, lh, web do not reach each other",
    ]);
  });

  test("a node that is revoked leaves its alarm, whose end tells of the others alone", async () => {
    const [told = ""] = await toldDuring(() => live(16 * minute, [lh, gw]));
    expect(told).toMatch(/^2 nodes are away: (web, db|db, web)$/);
    expect((await alarms())[0]?.text).toContain(
      "No peer reports that one of them is reached, and they do not check in.",
    );
    await done("DELETE", `nodes/${web.id}/`);
    expect(await toldDuring(() => live(minute, [lh, gw]))).toEqual([]);
    expect(await alarms()).toMatchObject([{ title: "The node db is away", nodes: [db.id] }]);
    expect(await toldDuring(() => live(minute, [lh, gw, db]))).toEqual(["Over: The node db is away"]);
    expect(await lastText()).toMatch(/^Well again, after \d+ minutes\.$/);
  });

  test("a node that is revoked is in the text of its alarm no more", async () => {
    await live(4 * minute, [lh]);
    const textNow = async () => (await alarms())[0]?.text;
    const told = await textNow();
    expect(told).toMatch(/\nSilent since then, too: (web, db|db, web)\.$/);
    await done("DELETE", `nodes/${web.id}/`);
    await live(minute, [lh]);
    expect(await textNow()).toEndWith("\nSilent since then, too: db.");
    await done("DELETE", `nodes/${db.id}/`);
    await live(minute, [lh]);
    expect(await textNow()).not.toContain("Silent");
    // As it was told.
    await live(minute, [lh, gw]);
    expect(await alarms()).toMatchObject([{ text: told, ended_at: expect.any(String) }]);
  });

  test("an open alarm is shown with the nodes that are still away, and ends as it was told", async () => {
    const [told = ""] = await toldDuring(() => live(16 * minute, [lh, gw]));
    expect(told).toMatch(/^2 nodes are away: (web, db|db, web)$/);
    expect(await toldDuring(() => live(minute, [lh, gw, web]))).toEqual([]);
    expect(await alarms()).toMatchObject([{ title: "The node db is away", nodes: [db.id] }]);
    expect(await toldDuring(() => live(minute, [lh, gw, web, db]))).toEqual([`Over: ${told}`]);
    expect(await alarms()).toMatchObject([{ title: told }]);
  });

  test("the names in all open alarms are read with one query, each in its own title", async () => {
    const row = { orgId: org.id, kind: "node", rest: [], text: "", since: 1, raisedAt: 1 };
    await server.db.write(async (tx) => {
      for (const heads of [[web.id], [db.id, web.id], [db.id]])
        await storedAlarms.insert(tx, { ...row, heads: heads.map(String), title: "As it was told" });
    });
    let queries = 0;
    const counting: Reader = {
      get: (...asked) => server.db.get(...asked),
      all: (...asked) => {
        queries++;
        return server.db.all(...asked);
      },
    };
    const rows = (await storedAlarms.all(server.db, { orgId: org.id })).toSorted((a, b) => a.id - b.id);
    const wordsNow = await readWords(counting, rows);
    const both = [web, db].toSorted((a, b) => a.id - b.id).map(({ name }) => name);
    expect(rows.map((each) => wordsNow(each).title)).toEqual([
      "The node web is away",
      `2 nodes are away: ${both.join(", ")}`,
      "The node db is away",
    ]);
    expect(queries).toBe(1);
  });

  test("a rule that is switched off ends its open alarms", async () => {
    for (const node of [lh, gw]) await report(node, db.ip, "broken");
    await live(6 * minute, [lh, gw, db, web]);
    expect(await toldDuring(() => live(16 * minute, [lh, gw, db]))).toEqual(["The node web is away"]);
    await done("PATCH", "", { alarm_rules: ["node=off", "path=off"] });
    expect((await toldDuring(() => live(minute, [lh, gw, db]))).toSorted()).toEqual([
      "Over: The node web is away",
      "Over: db and gw, lh do not reach each other",
    ]);
    expect(await lastText()).toStartWith("The rule is off, after");
    expect(await open()).toEqual([]);
  });

  test("thousands of reports of peers that are away hide no broken path", async () => {
    const [first, second, third] = [lh, gw, web, db].toSorted((a, b) => a.id - b.id);
    if (first === undefined || second === undefined || third === undefined) throw new Error("no nodes");
    const rows = Array.from({ length: 2100 }, (_, at) => `10.99.${at >> 8}.${at & 255}`);
    await server.db.write(async (tx) => {
      for (const peer of rows)
        await tx.run(
          "INSERT INTO paths (org_id, node_id, peer, path, relays, probe, at) VALUES ($1, $2, $3, 'direct', '[]', 'broken', 1)",
          [org.id, first.id, peer],
        );
    });
    await report(second, third.ip, "broken");
    await report(third, second.ip, "broken");
    expect(await toldDuring(() => live(6 * minute, [lh, gw, web, db]))).toHaveLength(1);
  });

  test("one revoked in the very turn in which the other is back is not well again", async () => {
    await live(16 * minute, [lh, gw]);
    await done("DELETE", `nodes/${web.id}/`);
    await db.checkin({ config_version: 1 });
    expect(await toldDuring(() => live(minute, [lh, gw, db]))).toEqual(["Over: The node db is away"]);
    expect(await lastText()).toStartWith("Well again");
  });

  test("the end of a path whose node is revoked does not call it well", async () => {
    for (const node of [lh, gw, web]) await report(node, db.ip, "broken");
    await live(6 * minute, [lh, gw, web, db]);
    await done("DELETE", `nodes/${db.id}/`);
    const title = "db and gw, lh, web do not reach each other";
    expect(await toldDuring(() => live(minute, [lh, gw, web]))).toEqual([`Over: ${title}`]);
    expect(await lastText()).toMatch(/^db was deleted or revoked, after \d+ minutes\.$/);
  });

  test("rules: off, by group, desktops only if asked; a revoked node is not well again", async () => {
    await done("PATCH", "", { alarm_rules: ["node=off", "lighthouse=off"] });
    expect(await toldDuring(() => live(20 * minute, [gw]))).toEqual([]);
    await done("PATCH", "", { alarm_rules: [] });
    // What was away for long before the rule is not told.
    await live(2 * minute, [lh, gw, web]);
    expect(await toldDuring(() => live(17 * minute, [lh, gw, web]))).toEqual([]);
    await live(minute, [lh, gw, web, db]);
    expect(await toldDuring(() => live(16 * minute, [lh, gw, web]))).toEqual(["The node db is away"]);
    expect(
      await toldDuring(async () => {
        await done("DELETE", `nodes/${db.id}/`);
        await live(minute, [lh, gw, web]);
      }),
    ).toEqual(["Over: The node db is away"]);
    expect(await lastText()).toMatch(/^db was deleted or revoked, after/);
  });

  test("rules that say two things, or name a group that is not there, are refused with what is right", async () => {
    const refusal = async (...rules: string[]) => (await call("PATCH", "", { alarm_rules: rules })).text;
    for (const rule of ["node=1", "ca=10081", "policy=5", "sign_ins=on", "nodes=5"])
      expect(await refusal(rule)).toContain(
        "lighthouse, relay, router, node, desktop, path and node:GROUP: 2 to 10080 minutes",
      );
    expect(await refusal("node=off", "node=5")).toContain("node has two values");
    expect(await refusal("node:nogroup=5")).toContain("There is no group nogroup");
    expect((await call("POST", "groups/", { name: "laptops" })).status).toBe(201);
    await done("PATCH", "", { alarm_rules: ["node:laptops=5", "node=off"] });
    await done("DELETE", "groups/laptops/");
    // What was right before does not stand in the way of other changes.
    await done("PATCH", "", { alarm_rules: ["node:laptops=5", "node=20"] });
  });
});
