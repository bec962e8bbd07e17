import { expect, test } from "bun:test";
import { makeHeldPolls, maxPollsPerNode } from "../../../src/server/config/held-polls.ts";

/** Sleeps end only when they are aborted. */
const timeless = {
  sleep: (_ms: number, signal?: AbortSignal) =>
    new Promise<void>((_, reject) => signal?.addEventListener("abort", () => reject(new Error("aborted")))),
};

test("a change wakes every poll of its organization and no other", async () => {
  const changes = makeHeldPolls(timeless);
  const [a, b, c] = [changes.open(1, 1), changes.open(1, 2), changes.open(2, 3)];
  const woken: string[] = [];
  const all = [a.wait(1000).then(() => woken.push("a")), b.wait(1000).then(() => woken.push("b"))];
  void c.wait(1000).then(() => woken.push("c"));
  changes.wakeOrganization(1);
  await Promise.all(all);
  expect(woken.toSorted()).toEqual(["a", "b"]);
});

test("a change of one node wakes only that node", async () => {
  const changes = makeHeldPolls(timeless);
  const [a, b] = [changes.open(1, 1), changes.open(1, 2)];
  let other = false;
  void b.wait(1000).then(() => (other = true));
  const own = a.wait(1000);
  changes.wakeNode(1, 1);
  expect(await own).toBe(true);
  expect(other).toBe(false);
});

test("a change between opening and waiting is not missed", async () => {
  const changes = makeHeldPolls(timeless);
  const poll = changes.open(1, 1);
  changes.wakeOrganization(1);
  expect(await poll.wait(1000)).toBe(true);
});

test("without a change a poll ends after its time", async () => {
  const changes = makeHeldPolls({ sleep: () => Promise.resolve() });
  expect(await changes.open(1, 1).wait(1000)).toBe(false);
  expect(await changes.open(1, 1).wait(0)).toBe(false);
});

test("beyond the limit a node's oldest poll is answered, polls of other nodes continue", async () => {
  const changes = makeHeldPolls(timeless);
  const foreign = changes.open(1, 2);
  const polls = Array.from({ length: maxPollsPerNode }, () => changes.open(1, 1));
  const waits = polls.map((poll) => poll.wait(1000));
  let ended = 0;
  for (const wait of [...waits.slice(1), foreign.wait(1000)]) void wait.then(() => ended++);
  changes.open(1, 1);
  expect(await waits[0]).toBe(false);
  expect(ended).toBe(0);
});

test("a closed poll no longer waits, and a stop answers all polls", async () => {
  const changes = makeHeldPolls(timeless);
  const first = changes.open(1, 1);
  expect(changes.isHeld(1, 1)).toBe(true);
  first.close();
  expect(changes.isHeld(1, 1)).toBe(false);
  expect(await first.wait(1000)).toBe(false);
  const second = changes.open(1, 1).wait(1000);
  changes.close();
  expect(await second).toBe(false);
  expect(await changes.open(1, 1).wait(1000)).toBe(false);
});
