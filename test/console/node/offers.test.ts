// The line for a new router names all that the node offers, because `--advertise` replaces it.

import { expect, test } from "bun:test";
import type { Route } from "../../../src/api/paths/routes.ts";
import { offersWith } from "../../../src/console/node/offers.ts";

type Router = Route["routers"][number];
const router = (node_name: string, more: Partial<Router> = {}): Router => ({
  node: 1,
  node_name,
  online: true,
  approved: true,
  offered: true,
  metric: 100,
  maintenance: false,
  behind: null,
  masquerade: false,
  watch: null,
  state: null,
  why: null,
  ...more,
});
const routes: Route[] = [
  {
    network: "10.201.7.0/24",
    routers: [
      router("gateway", { behind: "192.168.7.0/24", watch: "192.168.7.1", masquerade: true }),
      router("other"),
    ],
  },
  { network: "192.168.8.0/24", routers: [router("gateway", { approved: false })] },
  { network: "192.168.9.0/24", routers: [router("gateway", { offered: false, masquerade: null })] },
];

test("the line has offered networks as they are; approved ones without an offer, and new ones, masquerade", () => {
  const kept = ["10.201.7.0/24=192.168.7.0/24@192.168.7.1+masquerade", "192.168.8.0/24"];
  const added = "192.168.9.0/24+masquerade";
  expect(offersWith(["192.168.9.0/24"], "gateway", routes)).toEqual([...kept, added]);
  expect(offersWith(["192.168.8.0/24"], "gateway", routes)).toEqual([...kept, added]);
  expect(offersWith(["192.168.9.0/24"], "new", routes)).toEqual([added]);
});
