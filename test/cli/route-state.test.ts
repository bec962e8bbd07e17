// What `agent admin route list` says of a router.

import { expect, test } from "bun:test";
import { stateOf } from "../../src/cli/admin/nodes/route.ts";

const router = {
  node: 1,
  node_name: "gate",
  online: true,
  approved: true,
  offered: true,
  metric: 100,
  maintenance: false,
  behind: null,
  masquerade: false,
  watch: null,
  state: "ready",
  why: null,
};

test("a router that root does not offer is not said to be set up", () => {
  expect(stateOf(router)).toBe("ready");
  expect(stateOf({ ...router, offered: false, state: null })).toBe(
    "not offered by its root: unknown whether it forwards",
  );
  expect(stateOf({ ...router, offered: false, state: null, online: false })).toBe("away");
});
