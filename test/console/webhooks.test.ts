// What the page Webhooks says about events and deliveries.

import { expect, test } from "bun:test";
import * as v from "valibot";
import { machinesIn, outcomeOf, standingOf, type Delivery } from "../../src/console/deliveries.ts";
import { exampleEvents } from "../../src/console/event-examples.ts";
import { WebhookRequest } from "../../src/server/webhooks/webhooks.ts";

test("the types of events that the dialog offers as examples exist", () => {
  expect(exampleEvents.length).toBeGreaterThan(0);
  const { success } = v.safeParse(WebhookRequest, {
    url: "https://example.org/hook",
    events: [...exampleEvents],
  });
  expect(success).toBe(true);
});

const delivery = (id: number, more: Partial<Delivery>): Delivery => ({
  id,
  event_id: id,
  event_type: "node.updated",
  event_subject: "node/7",
  attempts: 1,
  state: "waiting",
  status: null,
  message: null,
  next_attempt_at: null,
  delivered_at: null,
  created_at: "2026-11-23T10:00:00Z",
  ...more,
});

test("an attempt that was asked for has a result once the receiver answered, or could not", () => {
  expect(outcomeOf(delivery(1, { attempts: 6 }))).toBeUndefined();
  expect(outcomeOf(delivery(1, { state: "delivered", status: 204 }))).toBe(
    "Delivered: the receiver answered 204.",
  );
  const message = "The connection failed: the connection was refused (ECONNREFUSED).";
  for (const state of ["waiting", "failed"] as const)
    expect(outcomeOf(delivery(1, { state, message }))).toBe(`Not delivered. ${message}`);
});

test("the machines that deliveries are about are asked for once each", () => {
  const about = (event_subject: string) => delivery(1, { event_subject });
  expect(machinesIn([about("node/252"), about("group/node/3"), about("node/252"), about("node/9")])).toEqual([
    252, 9,
  ]);
});

test("a webhook says how many deliveries wait, why the last one failed, and when one arrived", () => {
  const arrived = delivery(1, { state: "delivered", status: 200, delivered_at: "2026-11-23T10:00:01Z" });
  const failed = delivery(2, { message: "The receiver answered 500.", status: 500 });
  const fresh = delivery(3, { attempts: 0 });
  expect(standingOf([])).toEqual({ waiting: [], failure: undefined, lastSuccess: null });
  expect(standingOf([arrived, failed, fresh])).toEqual({
    waiting: [failed],
    failure: "The receiver answered 500.",
    lastSuccess: "2026-11-23T10:00:01Z",
  });
  const later = delivery(4, { state: "delivered", delivered_at: "2026-11-23T11:00:00Z" });
  expect(standingOf([arrived, failed, later])).toMatchObject({
    failure: undefined,
    lastSuccess: later.delivered_at,
  });
});
