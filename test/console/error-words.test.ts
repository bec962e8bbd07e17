// Sentences of the control plane in the words of the console.

import { expect, test } from "bun:test";
import { commandsIn, inPageWords, unturned } from "../../src/console/error-words.ts";

test("a node of the control plane is a machine on the pages; names and sides of rules stay", () => {
  for (const [sentence, words] of [
    ["There is no such node.", "There is no such machine."],
    ["A node name is one DNS label.", "A machine name is one DNS label."],
    [
      "Another node has this key; an ephemeral node, the nodes.",
      "Another machine has this key; an ephemeral machine, the machines.",
    ],
    [
      "Expected any, group:NAME, node:NAME or the node:db-1",
      "Expected any, group:NAME, node:NAME or the node:db-1",
    ],
    ["There is no group node.", "There is no group node."],
    ["The node node is revoked.", "The machine node is revoked."],
    ["node-1 and web-node stay", "node-1 and web-node stay"],
  ] as const)
    expect(inPageWords(sentence)).toBe(words);
});

test("what stands between two backticks is a command; a single backtick is a text", () => {
  expect(commandsIn("Run `agent admin org list` again: `a`b")).toEqual([
    "Run ",
    "agent admin org list",
    " again: ",
    "a",
    "b",
  ]);
  expect(commandsIn("The name ` is refused.")).toEqual(["The name ` is refused."]);
});

test("a name turns nothing around in a text without markup", () => {
  expect(unturned("\u202egnihton\u2069\u2066 is revoked.")).toBe("gnihton is revoked.");
  expect(unturned("é ع 🙂")).toBe("é ع 🙂");
});
