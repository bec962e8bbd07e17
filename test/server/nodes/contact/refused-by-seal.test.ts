// What nodes report that their seal refuses: one event for each refusal.

import { expect, test } from "bun:test";
import * as v from "valibot";
import type { Organization } from "../../../../src/api/organizations.ts";
import { registerNode } from "../../../support/nodes.ts";
import { useNumbered } from "../../../support/numbered.ts";
import type { TestServer } from "../../../support/server.ts";

let server: TestServer;
let org: Organization;

useNumbered((made) => ({ server, org } = made));

const Row = v.object({ subject: v.string(), after: v.pipe(v.string(), v.parseJson(), v.looseObject({})) });
const events = async () =>
  v
    .parse(
      v.array(Row),
      await server.db.all(
        "SELECT subject, after FROM events WHERE org_id = $1 AND type = 'node.seal_refused' ORDER BY id",
        [org.id],
      ),
    )
    .map(({ subject, after }): Record<string, unknown> => ({ subject, ...after }));

const refusing = (...keys: string[]) => ({
  config_version: 1,
  seal_refused: { enforced: true, what: keys.map((key) => ({ key, reason: "the seal has no such CA" })) },
});
const told = (...keys: string[]) => ({
  is_enforced: true,
  refused: keys.map((key) => ({ key, reason: "the seal has no such CA" })),
});

test("a refusal is one event, however often the node tells it, and a new one names only what is new", async () => {
  const web = await registerNode(server, org, "web");
  const subject = `node/${web.id}`;
  for (let times = 0; times < 3; times++) await web.checkin(refusing("the CA 1"));
  expect(await events()).toEqual([{ subject, ...told("the CA 1") }]);
  await web.checkin(refusing("the CA 1", "the CA 2"));
  expect(await events()).toEqual([
    { subject, ...told("the CA 1") },
    { subject, ...told("the CA 2") },
  ]);
  await web.checkin({ config_version: 1 });
  server.clock.ms += 2 * 3_600_000;
  await web.checkin(refusing("the CA 2"));
  expect(await events()).toHaveLength(3);
});

test("the same refusal of other nodes is no other event within an hour", async () => {
  for (const name of ["one", "two", "three"]) {
    const node = await registerNode(server, org, name);
    await node.checkin(refusing("the CA 1"));
  }
  expect(await events()).toHaveLength(1);
  const later = await registerNode(server, org, "later");
  server.clock.ms += 2 * 3_600_000;
  await later.checkin(refusing("the CA 1"));
  expect(await events()).toHaveLength(2);
});

test("a node that tells another refusal each time does not fill the audit log", async () => {
  const web = await registerNode(server, org, "web");
  for (let at = 0; at < 40; at++) await web.checkin(refusing(`the CA ${at}`));
  expect(await events()).toHaveLength(20);
});

test("a seal that is only observed says so, and the same refusal counts anew once it is enforced", async () => {
  const web = await registerNode(server, org, "web");
  const { enforced: _, ...observed } = refusing("the CA 1").seal_refused;
  await web.checkin({ config_version: 1, seal_refused: observed });
  await web.checkin(refusing("the CA 1"));
  expect((await events()).map((each) => each["is_enforced"])).toEqual([false, true]);
});

test("a report that cannot be stored fails no check-in, and a damaged node says nothing of its seal", async () => {
  const web = await registerNode(server, org, "web");
  await web.checkin(refusing("the CA 1"));
  // Of a node with a damaged directory.
  await web.checkin({});
  await web.checkin(refusing("the CA 1"));
  expect(await events()).toHaveLength(1);
  const long = { what: [{ key: "k".repeat(10_000), reason: "?" }] };
  expect((await web.checkin({ config_version: 1, seal_refused: long })).status).toBe(200);
  expect(await events()).toHaveLength(1);
});
