// The order of peers in `agent peers`.

import { expect, test } from "bun:test";
import { orderPeers, type PeerReport } from "../../../src/node/health/shown-peer.ts";

const peer = (name: string, address: string, more: Partial<PeerReport> = {}): PeerReport => ({
  name,
  address,
  path: "direct",
  probe: "answers",
  ...more,
});

test("peers of one name have the order of their addresses, however they are listed", () => {
  const sorted = [
    peer("web", "10.77.0.9", { probe: "broken" }),
    peer("hub", "10.77.0.1", { lighthouse: true }),
    peer("db", "10.77.0.4"),
    peer("db", "fd00::4"),
    peer("db", "fd00::5"),
  ];
  expect(orderPeers(sorted.toReversed())).toEqual(sorted);
  expect(orderPeers(sorted)).toEqual(sorted);
});
