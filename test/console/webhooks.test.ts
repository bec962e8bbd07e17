// What the page Webhooks says about events and deliveries.

import { expect, test } from "bun:test";
import * as v from "valibot";
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
