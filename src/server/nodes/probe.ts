// One small UDP datagram to the address that a check-in came from: a node learns from it whether its port can be reached.
// At most 32 bytes and 6 a minute, so that nobody is flooded by way of us.

import { makeThrottle } from "../http/throttle.ts";

const perMinute = 6;

export type Probes = {
  send(nodeId: number, address: string, probe: { port: number; nonce: string }): Promise<void>;
};

export function makeProbes(now: () => number): Probes {
  const byNode = makeThrottle(now, perMinute);
  const byAddress = makeThrottle(now, perMinute);
  return {
    async send(nodeId, address, { port, nonce }) {
      // Who asked has hung up.
      if (address === "") return;
      const [node, place] = [`node ${nodeId}`, `address ${address}`];
      // Beyond the limit nothing is sent, and the check-in is answered all the same.
      if (byNode.counted(node) >= perMinute || byAddress.counted(place) >= perMinute) return;
      byNode.count(node);
      byAddress.count(place);
      // Where no way leads there, the node hears nothing, which is the truth, and its check-in is answered all the same.
      await datagram(address, port, nonce).catch(() => undefined);
    },
  };
}

async function datagram(address: string, port: number, text: string): Promise<void> {
  const socket = await Bun.udpSocket({ hostname: address.includes(":") ? "::" : "0.0.0.0" });
  try {
    socket.send(text, port, address);
  } finally {
    socket.close();
  }
}
