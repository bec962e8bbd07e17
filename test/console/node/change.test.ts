// What the dialog that edits a node sends, while others change the same node.

import { expect, test } from "bun:test";
import { changesOf, changedKeys, rebased, typedOf } from "../../../src/console/node/change.ts";

const before = {
  name: "shop",
  groups: ["web", "us"],
  subnets: ["192.168.7.0/24"],
  public_ip: null,
  is_lighthouse: false,
  is_relay: false,
};

test("only what the person changed is sent", () => {
  const typed = typedOf(before);
  expect(changesOf(before, typed)).toEqual({});
  expect(changesOf(before, { ...typed, groups: "web,us ,", subnets: "192.168.7.0/24 " })).toEqual({});
  expect(changesOf(before, { ...typed, name: "store", public_ip: " 192.0.2.1 " })).toEqual({
    name: "store",
    public_ip: "192.0.2.1",
  });
  const exit = { ...before, exit_groups: ["staff"] };
  expect(changesOf(exit, { ...typedOf(exit), exit_groups: "any, staff" })).toEqual({
    exit_groups: ["any", "staff"],
  });
  const reached = { ...before, public_ip: "192.0.2.1", is_name_server: true };
  expect(changesOf(reached, typed)).toEqual({ public_ip: null, is_name_server: false });
});

test("what others change meanwhile stays, and what the person did to a list is done to the newest one", () => {
  const now = { ...before, groups: ["us", "canary"], subnets: [], is_relay: true };
  expect(changedKeys(before, now)).toEqual(["groups", "subnets", "is_relay"]);
  const renamed = rebased({ ...typedOf(before), name: "store" }, before, now);
  expect(changesOf(now, renamed)).toEqual({ name: "store" });
  // The person takes `us` away and adds `eu`; others took `web` away.
  const regrouped = rebased({ ...typedOf(before), groups: "web, eu" }, before, now);
  expect(changesOf(now, regrouped)).toEqual({ groups: ["canary", "eu"] });
  // Both did the same.
  const same = rebased({ ...typedOf(before), groups: "us, canary", subnets: "" }, before, now);
  expect(changesOf(now, same)).toEqual({});
  // Both changed one text: the person sees the other's, and decides.
  const mine = rebased({ ...typedOf(before), name: "store" }, before, { ...before, name: "boutique" });
  expect(mine.name).toBe("store");
});
