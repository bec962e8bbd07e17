// A router that answers pings, but not those with the mark of a network, does not reach that network.

import { expect, test } from "bun:test";
import { unreachedRoutes } from "../../../src/node/routing/ask-routers.ts";
import { probeMark } from "../../../src/node/routing/route-probe.ts";
import type { OpenEcho } from "../../../src/platform/network/echo-socket.ts";

const [reached, gone, silent, later] = ["192.168.7.0/24", "192.168.8.0/24", "192.168.9.0/24", "10.9.0.0/16"];
const routes = [
  { network: reached, router: "10.77.0.5" },
  { network: gone, router: "10.77.0.5" },
  { network: silent, router: "10.77.0.6" },
  { network: later, router: "10.77.0.7" },
];

test("of several routes, only the one is named whose router answers and does not reach it", async () => {
  let now = 0;
  const open: OpenEcho = async (from, onReply) => ({
    send(to, sequence, payload) {
      expect(from).toBe("10.77.0.2");
      const isDropped = Buffer.from(payload).toString("hex").startsWith(probeMark(gone));
      // Its first packets are lost.
      const isLost = to === "10.77.0.6" || (to === "10.77.0.7" && now < 1000);
      if (!isDropped && !isLost) onReply({ sequence, payload });
      return true;
    },
    close() {},
  });
  const system = { monotonic: () => now, sleep: async (ms: number) => void (now += ms) };
  expect(await unreachedRoutes(routes, ["10.77.0.2", "fd00::2"], { open, system })).toEqual([
    { network: gone, router: "10.77.0.5" },
  ]);
  expect(now).toBeLessThan(3000);
});

test("where no ping can be sent, nothing is said", async () => {
  const system = { monotonic: () => 0, sleep: async () => undefined };
  expect(await unreachedRoutes(routes, ["10.77.0.2"], { open: async () => "denied", system })).toEqual([]);
});
