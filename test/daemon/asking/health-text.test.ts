// What `agent status` says of the health of an organization.

import { expect, test } from "bun:test";
import { healthNotes } from "../../../src/daemon/asking/health-text.ts";
import type { OrganizationState } from "../../../src/daemon/ipc/messages.ts";

const now = Date.UTC(2026, 10, 22);
const team = (health: object) =>
  ({
    team: "acme",
    state: "running",
    certificate_not_after: "2027-02-20T00:00:00Z",
    health: { engine_version: "1.6.1", broken: [], lighthouses: { answering: 0, of: 1 }, ...health },
  }) as unknown as OrganizationState;

test("before the first probe, no lighthouse is said to be silent", () => {
  const notes = healthNotes(team({ verdict: "not_probed", reason: "The first probes are under way" }), now);
  expect(notes).toEqual(["engine 1.6.1; works 90 more days without the control plane"]);
});

test("a lighthouse asks no other, and a node may have none to ask", () => {
  const none = { verdict: "running", lighthouses: { answering: 0, of: 0 } };
  const [own] = healthNotes(team({ ...none, is_lighthouse: true }), now);
  expect(own).toContain("it is a lighthouse, and asks no other");
  expect(healthNotes(team(none), now)[0]).toContain("no lighthouse to ask");
});

test("a silent lighthouse is named after probes", () => {
  const [line] = healthNotes(team({ verdict: "degraded", reason: "The lighthouse does not answer" }), now);
  expect(line).toContain("the lighthouse does not answer");
});
