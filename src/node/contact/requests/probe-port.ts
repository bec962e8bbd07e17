// Tests whether a UDP port of this machine is reachable from outside: a check-in asks the control plane to send one
// datagram, and this listens for it. If our engine holds the port, a raw socket listens, which needs root on Linux.

import { createSocket } from "node:dgram";
import { AppError } from "../../../base/errors.ts";
import type { System } from "../../../base/system.ts";
import { openRawUdp } from "../../../platform/network/raw-udp.ts";

/** `reachable`: null if it could not be tested. */
export type ProbeResult = { port: number; reachable: boolean | null; reason?: string };

/** A datagram may be lost, and the control plane sends at most six a minute. */
const tries = 2;
const waitMs = 3000;
const lookMs = 20;
/** Maximum ports of one run. */
export const maxProbes = 3;

type Listener = { heard(nonce: string): boolean; close(): void };

/** `isHeldByEngine`: by our own. `ask` sends a check-in with the probe. */
export async function probePort(
  { port, isHeldByEngine }: { port: number; isHeldByEngine: boolean },
  ask: (probe: { port: number; nonce: string }) => Promise<unknown>,
  system: Pick<System, "sleep" | "random">,
): Promise<ProbeResult> {
  const listener = isHeldByEngine ? besideEngine(port) : await onPort(port);
  if (listener === undefined) {
    const reason = "the engine holds the port: run the command as root on Linux to test it";
    return { port, reachable: null, reason };
  }
  try {
    for (let attempt = 0; attempt < tries; attempt++) {
      const nonce = Buffer.from(system.random(18)).toString("base64url");
      await ask({ port, nonce });
      for (let waited = 0; waited < waitMs; waited += lookMs) {
        if (listener.heard(nonce)) return { port, reachable: true };
        await system.sleep(lookMs);
      }
    }
  } finally {
    listener.close();
  }
  return { port, reachable: false, reason: `no datagram from the control plane arrived at UDP ${port}` };
}

/** A nonce has 18 random bytes in base64url. */
const maxNonceLength = 24;

/** Listens on a free port, for both address families. */
async function onPort(port: number): Promise<Listener> {
  const received = new Set<string>();
  const bind = (make: () => ReturnType<typeof createSocket>, address: string) =>
    new Promise<() => void>((resolve, reject) => {
      const socket = make();
      socket.once("error", (error) => {
        socket.close();
        reject(error);
      });
      // Any machine can send to the port: keep only what can be a nonce.
      socket.on("message", (message) => {
        if (message.length <= maxNonceLength) received.add(message.toString("latin1"));
      });
      socket.bind({ port, address, exclusive: true }, () => resolve(() => socket.close()));
    });
  // A machine may lack one of the families.
  const bound = await Promise.allSettled([
    bind(() => createSocket("udp4"), "0.0.0.0"),
    bind(() => createSocket({ type: "udp6", ipv6Only: true }), "::"),
  ]);
  const closers = bound.flatMap((result) => (result.status === "fulfilled" ? [result.value] : []));
  if (closers.length === 0) throw new AppError("failed", `UDP ${port} was taken in the meantime`);
  return { heard: (nonce) => received.has(nonce), close: () => closers.forEach((close) => close()) };
}

/** After the firewall, the kernel passes a copy to raw sockets and the original to the engine. */
function besideEngine(port: number): Listener | undefined {
  const raw = openRawUdp();
  if (raw === undefined) return undefined;
  const received = new Set<string>();
  return {
    heard(nonce) {
      for (let datagram = raw.read(); datagram !== undefined; datagram = raw.read()) {
        if (datagram.port === port) received.add(Buffer.from(datagram.payload).toString("latin1"));
      }
      return received.has(nonce);
    },
    close: raw.close,
  };
}
