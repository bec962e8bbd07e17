// What ends with a lighthouse, a relay or a router.

import { expect, test } from "bun:test";
import { lossWith, type Roles } from "../../../src/console/nodes/role-loss.ts";

const node = (id: number, name: string, more: Partial<Roles> = {}): Roles => ({
  id,
  name,
  state: "active",
  online: true,
  is_lighthouse: false,
  is_relay: false,
  subnets: [],
  ...more,
});

test("a revocation says what the network loses with it, and what stays", () => {
  const [first, second] = [
    node(1, "lh-1", { is_lighthouse: true }),
    node(2, "lh-2", { is_lighthouse: true }),
  ];
  const router = node(3, "gw", { is_relay: true, subnets: ["192.168.20.0/24"] });
  const all = [first, second, router, node(4, "web-1")];
  expect(lossWith([node(4, "web-1")], all)).toEqual([]);
  expect(lossWith([first], all)).toEqual(["lh-1 is a lighthouse. Other lighthouses that are online: lh-2."]);
  expect(lossWith([first, second], all)[0]).toStartWith(
    "lh-1, lh-2 are lighthouses, and no other lighthouse is online:",
  );
  // One that is away is none.
  expect(lossWith([first], [first, { ...second, online: false }])[0]).toContain(
    "no other lighthouse is online",
  );
  expect(lossWith([router], all)).toEqual([
    expect.stringMatching(/^gw is a relay, and no other relay is online: /),
    "Networks behind gw are not reached any more: 192.168.20.0/24.",
  ]);
});
