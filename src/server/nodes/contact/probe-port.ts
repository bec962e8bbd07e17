// Shows a node whether its port is reachable: one UDP datagram of at most 32 bytes to the address of its check-in, at most
// 6 a minute, so that the server cannot be used to flood others.

import { defer } from "../../../base/defer.ts";
import { makeThrottle } from "../../http/throttle.ts";

const perMinute = 6;
const rules = { windows: [{ times: perMinute, withinMs: 60_000 }], reason: "Too many probes." } as const;

export type Probes = {
  /** Sends the nonce to the port at the address. Never throws. */
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
  using _ = defer(() => socket.close());
  socket.send(text, port, address);
}
