// Sends one small UDP datagram to the address of a check-in: it shows the node whether its port can be reached. At most 32
// bytes and 6 per minute, so that the server cannot be used to flood others.

import { makeThrottle } from "../http/throttle.ts";

const perMinute = 6;
const rules = { limits: [{ times: perMinute, withinMs: 60_000 }], reason: "Too many probes." } as const;

export type Probes = {
  send(nodeId: number, address: string, probe: { port: number; nonce: string }): Promise<void>;
};

/** `now`: a monotonic clock. */
export function makeProbes(now: () => number): Probes {
  const sent = makeThrottle(now, { node: rules, address: rules });
  return {
    async send(nodeId, address, { port, nonce }) {
      // Empty after a disconnect.
      if (address === "") return;
      const node = String(nodeId);
      // Beyond the limit nothing is sent; the check-in is still answered.
      if (sent.counted("node", node) >= perMinute || sent.counted("address", address) >= perMinute) return;
      sent.count("node", node);
      sent.count("address", address);
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
