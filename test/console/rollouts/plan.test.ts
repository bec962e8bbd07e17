// What the form that begins a rollout says about it.

import { expect, test } from "bun:test";
import { mtuOf, olderThan, planOf, runningWords, withMtu } from "../../../src/console/rollouts/plan.ts";

const node = (agent: string | null, overlay: string | null) => ({
  agent_version: agent,
  overlay_version: overlay,
});
const nodes = [node("0.2.0", "1.9.7"), node("0.1.0", "1.10.1"), node("0.2.0", "1.10.1"), node(null, null)];

test("the versions that nodes run are counted, the highest first by number", () => {
  expect(runningWords(nodes, "overlay_version")).toBe("1.10.1 on 2 nodes, 1.9.7 on 1 node");
  expect(runningWords([], "agent_version")).toBe("");
});

test("the MTU is set and removed within the other settings", () => {
  const others = { punchy: { punch: true } };
  const [small, tun] = [{ ...others, tun: { mtu: 1280 } }, { tx_queue: 500 }];
  expect(["", "1280"]).toEqual([mtuOf(others), mtuOf(small)]);
  expect(withMtu(others, "1280")).toEqual(small);
  expect(withMtu(small, "")).toEqual(others);
  expect(withMtu({ tun: { ...tun, mtu: 1400 } }, "")).toEqual({ tun });
});

test("only nodes with a lower version are concerned", () => {
  const count = (agent: string, engine: string) => olderThan(nodes, { agent, engine }).length;
  expect([count("0.2.0", ""), count("", "1.10.1"), count("0.2.0", "1.10.1"), count("", "1.9")]).toEqual([
    1, 1, 2, 0,
  ]);
});

test("the plan has the rings in their order, each with its size, hours and watch", () => {
  const plan = planOf({ count: 300, watchMinutes: 30, hours: ["22-5"], isSettings: false });
  expect(plan.map((each) => /^Ring \d: \d+ nodes?/.exec(each)?.[0])).toEqual([
    "Ring 1: 1 node",
    "Ring 2: 14 nodes",
    "Ring 3: 60 nodes",
    "Ring 4: 225 nodes",
    undefined,
  ]);
  expect(plan[0]).toBe("Ring 1: 1 node at 22-5, each node's own time, watched for 30 minutes.");
  expect(plan[3]).toContain("lighthouses, relays, routers and exits at the end");
  expect(plan[4]).toContain("its ring goes back");
});

test("without a node there is no ring", () => {
  const plan = planOf({ count: 0, watchMinutes: 1, hours: [], isSettings: false });
  expect(plan.filter((each) => each.startsWith("Ring"))).toEqual([]);
});

test("settings that fail go back on all nodes", () => {
  const plan = planOf({ count: 1, watchMinutes: 1, hours: [], isSettings: true });
  expect(plan).toHaveLength(2);
  expect(plan[1]).toContain("all nodes go back");
});
