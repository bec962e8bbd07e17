// What is probed while an update is watched.

import { expect, test } from "bun:test";
import { addressesOf, judge, probesOf, type Round } from "../../../src/node/update/echo-peers.ts";

const networks = ["10.77.0.0/16", "fd77:77::/64"];

test("a peer is probed by its address in each network of the organization", () => {
  expect(addressesOf("10.77.0.3", networks)).toEqual(["10.77.0.3", "fd77:77::3"]);
  expect(addressesOf("fd77:77::102", networks)).toEqual(["fd77:77::102", "10.77.1.2"]);
  // One network; an address outside of them, such as a sealed one; and one that only the wide network has.
  expect(addressesOf("10.77.0.3", networks.slice(0, 1))).toEqual(["10.77.0.3"]);
  expect(addressesOf("fd00::9", networks)).toEqual(["fd00::9"]);
  expect(addressesOf("fd77:77::1:2", networks)).toEqual(["fd77:77::1:2"]);
});

test("an engine that carries no IPv6 any more is worse, although IPv4 passes", () => {
  const before = ["10.77.0.1", "10.77.0.2"].flatMap((peer) =>
    probesOf(addressesOf(peer, networks), 1300).map(({ key }) => key),
  );
  const rounds = (keys: readonly string[]): Round[] =>
    Array.from({ length: 4 }, (_, at) => ({ at, answered: new Set(keys) }));
  expect(judge(before, rounds(before))).toBeUndefined();
  expect(judge(before, rounds(before.filter((key) => key.startsWith("4"))))).toEqual({
    probe: "small packets of IPv6 to fd77:77::1, fd77:77::2",
    reason: "2 of 2 peers that answered before do not answer small packets of IPv6",
  });
});
