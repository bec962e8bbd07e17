import { expect, test } from "bun:test";
import { claimDue, settleDelivery } from "../../../src/server/webhooks/outbox.ts";
import { deliveries, webhooks } from "../../../src/server/store/tables/webhooks.ts";
import { makeTestServer } from "../../support/server.ts";

test("organizations take turns: one with many webhooks, or with many deliveries, delays another by one turn", async () => {
  await using server = await makeTestServer();
  const now = server.clock.ms;
  const fill = async (slug: string, network: string, [hooks, each]: [number, number]) => {
    const org = await server.organization(slug, network);
    await server.db.write(async (tx) => {
      const events = await tx.all("SELECT id FROM events WHERE org_id = $1", [org.id]);
      const eventId = Number(events[0]?.["id"]);
      for (let at = 0; at < hooks; at++) {
        const row = {
          orgId: org.id,
          url: "https://a.example/",
          events: ["*"],
          secretSealed: "",
          createdAt: 0,
        };
        const { id: webhookId } = await webhooks.insertReturning(tx, row);
        for (let of = 0; of < each; of++)
          await deliveries.insert(tx, { webhookId, eventId, nextAt: now, createdAt: now });
      }
    });
  };
  await fill("many", "10.1.0.0/16", [60, 3]);
  await fill("few", "10.2.0.0/16", [1, 2]);
  const served = new Set<number>();
  const turn = async () => {
    const claimed = await claimDue(server.db, now, new Set(), served);
    for (const each of claimed)
      await settleDelivery(
        server.db,
        each,
        { status: 200, message: null, delivered: true },
        { now, random: 0 },
      );
    return claimed.map(({ organization }) => organization);
  };
  for (let at = 0; at < 2; at++) {
    const claimed = await turn();
    expect([claimed.length, claimed.filter((each) => each === "few").length]).toEqual([32, 1]);
  }
  expect(await turn()).not.toContain("few");
});
