// Asks from outside whether an engine listens at an underlay address: an engine answers a packet of an unknown tunnel with
// "recv_error" (`listen.send_recv_error`, on by default). Needs neither certificate nor privilege, and opens no tunnel.

import { createSocket } from "node:dgram";
import { isOffline } from "../../base/connect-failure.ts";
import { systemErrorCode } from "../../base/system-errors.ts";
import { engineQuestion, isEngineAnswer } from "./engine-question.ts";

/**
 * answers: an engine is there, and UDP passes both ways; `from` is the local port. closed: the machine answers, but nothing listens.
 * no route: this machine cannot send there. silent: nothing answers.
 */
type EngineAnswer = { is: "answers"; rttMs: number; from: number } | { is: "closed" | "no route" | "silent" };

/**
 * Packets are sent for three seconds: Linux tells each address only once a second that a port is closed (icmp_ratelimit), and
 * handshakes of this machine's engine use that up as well.
 */
const sendEveryMs = 150;
const sendForMs = 3000;
/** How much longer it waits: the kernel says only after three seconds that no machine has an address of its own network. */
const lateMs = 300;

/** `forMs`: how long packets are sent. */
export function askEngine(host: string, port: number, forMs = sendForMs): Promise<EngineAnswer> {
  const { promise, resolve } = Promise.withResolvers<EngineAnswer>();
  const socket = createSocket(host.includes(":") ? "udp6" : "udp4");
  const timers: ReturnType<typeof setTimeout>[] = [];
  const state = { ended: false, connected: false };
  const end = (answer: EngineAnswer) => {
    if (state.ended) return;
    state.ended = true;
    timers.forEach(clearTimeout);
    socket.close();
    resolve(answer);
  };
  const fail = (error: Error) => {
    // Bun's error of a failed connect has no code, but connect fails only without a route.
    if (!state.connected || isOffline(error)) return end({ is: "no route" });
    end({ is: systemErrorCode(error) === "ECONNREFUSED" ? "closed" : "silent" });
  };
  let sentAt = performance.now();
  socket.once("error", fail);
  socket.on("message", (bytes) => {
    if (isEngineAnswer(bytes))
      end({ is: "answers", rttMs: performance.now() - sentAt, from: socket.address().port });
  });
  // By the event: the callback of connect would also be called after a failure.
  socket.once("connect", () => {
    state.connected = true;
    const packet = engineQuestion();
    const send = () => {
      sentAt = performance.now();
      socket.send(packet, (error) => {
        if (error !== null) fail(error);
      });
    };
    send();
    for (let atMs = sendEveryMs; atMs < forMs; atMs += sendEveryMs) timers.push(setTimeout(send, atMs));
    timers.push(setTimeout(() => end({ is: "silent" }), forMs + lateMs));
  });
  socket.connect(port, host);
  return promise;
}
