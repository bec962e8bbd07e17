// Which routers config.yml gets for networks behind several nodes, and for hosts whose flows stay with a former router.

import { expect, test } from "bun:test";
import { withRouteChoice } from "../../../../src/node/files/config/route-choice.ts";

const routers = ["10.77.0.2", "10.77.0.3"];
const sent = (...networks: readonly (readonly [string, readonly string[]])[]) => ({
  tun: {
    unsafe_routes: networks.flatMap(([route, through]) => through.map((via) => ({ route, via, metric: 1 }))),
  },
});
const kept = { "10.9.0.7/32": "10.77.0.2" };

test("in networks that overlap, a kept host gets one route", () => {
  const config = sent(["10.0.0.0/8", routers], ["10.9.0.0/16", routers]);
  expect(withRouteChoice(config, { via: {}, kept })["tun"]).toEqual({
    unsafe_routes: [
      { route: "10.0.0.0/8", via: "10.77.0.3" },
      { route: "10.9.0.0/16", via: "10.77.0.3" },
      { route: "10.9.0.7/32", via: "10.77.0.2" },
    ],
  });
});

test("a kept host of a wider network does not leave the only router of the narrower one", () => {
  const config = sent(["10.0.0.0/8", routers], ["10.9.0.0/16", ["10.77.0.4"]]);
  expect(withRouteChoice(config, { via: {}, kept })["tun"]).toEqual({
    unsafe_routes: [
      { route: "10.0.0.0/8", via: "10.77.0.3" },
      { route: "10.9.0.0/16", via: "10.77.0.4", metric: 1 },
    ],
  });
});
