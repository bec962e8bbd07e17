// Sends one small UDP datagram to the address of a check-in: it shows the node whether its port can be reached. At most 32
// bytes and 6 per minute, so that the server cannot be used to flood others.

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
      // Empty after a disconnect.
      if (address === "") return;
      const [node, place] = [`node ${nodeId}`, `address ${address}`];
      // Beyond the limit nothing is sent; the check-in is still answered.
      if (byNode.counted(node) >= perMinute || byAddress.counted(place) >= perMinute) return;
      byNode.count(node);
      byAddress.count(place);
      // Without a route the node receives nothing, which is the right result; the check-in is still answered.
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
