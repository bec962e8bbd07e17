import { expect, test } from "bun:test";
import { exitCommand } from "../../../src/node/exit/set-exit.ts";

test("the command of a hint keeps the organization and all flags of the choice", () => {
  expect(exitCommand("acme", { use: "gate1", strict: true, lan: false })).toBe(
    "agent exit use gate1 --strict --no-lan --org-slug acme",
  );
  expect(exitCommand("acme", { use: "auto", strict: false, lan: true })).toBe(
    "agent exit use auto --org-slug acme",
  );
  expect(exitCommand("acme", "off")).toBe("agent exit use off --org-slug acme");
});
