// The labels of nodes: a label must lead back to each node that has it, because aliases are checked that way.

import { expect, test } from "bun:test";
import { hostLabels, maxLabel, nodesWithLabel } from "../../src/protocol/host-labels.ts";

test("each label of a node leads back to its name, also if the name is too long for a prefix", () => {
  const longest = `1${"a".repeat(maxLabel - 1)}`;
  for (const name of ["web", "n-10", "10", longest.slice(2), longest.slice(1), longest.slice(0, -1), longest])
    for (const label of hostLabels(name)) {
      expect(label.length).toBeLessThanOrEqual(maxLabel);
      expect(nodesWithLabel(label)).toContain(name);
    }
  expect(hostLabels(longest)).toEqual([longest]);
  expect(hostLabels(longest.slice(0, maxLabel - 2))).toHaveLength(2);
});
