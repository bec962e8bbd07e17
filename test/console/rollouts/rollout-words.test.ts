// What the page says about the rings of a rollout.

import { expect, test } from "bun:test";
import { ringWords } from "../../../src/console/rollouts/rollout-words.ts";

const counts = (waiting: number, updating: number, passed: number, left_out = 0) => ({
  waiting,
  updating,
  passed,
  left_out,
});

test("a ring says what its nodes do, and whether it comes later", () => {
  const running = { state: "running", ring: 2 } as const;
  expect(ringWords(counts(0, 0, 4), 1, running)).toBe("all updated");
  expect(ringWords(counts(2, 3, 0, 1), 2, running)).toBe("3 updating, 2 waiting, 1 left out");
  expect(ringWords(counts(9, 0, 0), 3, running)).toBe("comes later");
});

test("after an abort, nodes go back, and no ring comes later", () => {
  const back = { state: "returning", ring: 2 } as const;
  expect(ringWords(counts(2, 1, 0), 2, back)).toBe("1 going back");
  expect(ringWords(counts(9, 0, 0), 3, back)).toBe("not updated");
  // A node that is away goes back when it returns: also after the end.
  expect(ringWords(counts(0, 1, 0), 2, { ...back, state: "stopped" })).toBe("1 going back");
});
