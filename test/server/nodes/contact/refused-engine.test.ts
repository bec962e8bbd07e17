// A registered node that reports an engine with which it could not register.

import { expect, test } from "bun:test";
import * as v from "valibot";
import type { Organization } from "../../../../src/api/organizations.ts";
import { makeRefusalNotes } from "../../../../src/server/nodes/contact/refused-engine.ts";
import { checkinOf, codeOf, registerNode } from "../../../support/nodes.ts";
import { useNumbered } from "../../../support/numbered.ts";
import type { TestServer } from "../../../support/server.ts";

let server: TestServer;
let org: Organization;
let admin: string;

useNumbered((made) => ({ server, org, admin } = made));

const day = 86_400_000;
const Told = v.object({ subject: v.string(), after: v.string() });
const refusals = async () =>
  v
    .parse(
      v.array(Told),
      await server.db.all(
        "SELECT subject, after FROM events WHERE org_id = $1 AND type = 'node.engine_refused' ORDER BY id",
        [org.id],
      ),
    )
    .map(({ subject, after }) => ({ subject, after: JSON.parse(after) as unknown }));

test("an unsafe engine is told of changes but gets no renewal, and an event names its node", async () => {
  const node = await registerNode(server, org, "web", { overlay_version: "1.9.3" });
  const report = async (overlay_version: string) =>
    checkinOf(await node.checkin({ overlay_version, config_version: 1 }));
  const first = await report("1.9.3");
  expect(await refusals()).toEqual([]);

  await registerNode(server, org, "hub", { is_lighthouse: true, public_ip: "203.0.113.1" });
  expect(await report("1.9.5")).toMatchObject({ config_changed: true });
  expect(await refusals()).toMatchObject([
    { subject: `node/${node.id}`, after: { overlay_version: "1.9.5" } },
  ]);
  for (const version of ["1.9.3", "1.9.6"]) await report(version);
  expect(await refusals()).toHaveLength(1);
  const renew = `/api/org/${org.slug}/nodes/${node.id}/renew_cert/`;
  expect(codeOf(await server.send("POST", renew, { token: admin, body: {} }))).toEqual([409, "conflict"]);

  server.clock.ms += 80 * day;
  expect((await report("1.9.6")).certificate_not_after).toBe(first.certificate_not_after);
  expect((await node.download()).status).toBe(200);
  const updated = await report("1.10.3");
  expect(Date.parse(updated.certificate_not_after)).toBeGreaterThan(Date.parse(first.certificate_not_after));
  await report("1.9.4");
  expect(await refusals()).toHaveLength(2);
});

test("in an organization with certificates of version 2, an engine that cannot read them is named", async () => {
  const node = await registerNode(server, org, "web", { overlay_version: "1.10.3" });
  await server.db.write((tx) =>
    tx.run("UPDATE organizations SET certificate_version = '2' WHERE id = $1", [org.id]),
  );
  await node.checkin({ overlay_version: "1.8.0" });
  expect(await refusals()).toMatchObject([{ after: { overlay_version: "1.8.0" } }]);
});

test("the event of a day does not keep a node silent for longer because the clock is set back", () => {
  let passed = 0;
  const notes = makeRefusalNotes({ monotonic: () => passed });
  notes.add(1);
  passed += day - 1;
  expect(notes.has(1)).toBe(true);
  passed += 1;
  expect(notes.has(1)).toBe(false);
});
