// One lighthouse or relay by TCP: a UDP port on loopback for this machine's engine, and a WebSocket to a forwarder that passes
// the datagrams on to the engine there. Other machines cannot reach the port, and other programs of this one are not heard.

import { given } from "../../base/given.ts";
import { DatagramBatch, datagramsIn, longestMessage, sendOrLose } from "../../base/datagrams/frames.ts";
import { engineQuestion, isEngineAnswer } from "../engine/engine-question.ts";

type TcpWayOptions = {
  url: string;
  /** An HTTP proxy. */
  proxy: string | undefined;
  /** 0: any free one. */
  port: number;
  /** The UDP ports of this machine's engine; empty: unknown. */
  enginePorts(): readonly number[];
  /** Looks at a datagram of the engine before it is sent. False: it is not sent. */
  passes(datagram: Uint8Array): boolean;
};

export type TcpWay = {
  /** On loopback. */
  readonly port: number;
  /** The port of the engine; undefined before it sent something. */
  readonly enginePort: number | undefined;
  /** When the engine last sent something, by performance.now(); undefined: never. */
  readonly usedAt: number | undefined;
  /** Sends a datagram by TCP. */
  send(datagram: Uint8Array): void;
  /** Whether the hub's engine answers within the time. One question at a time. */
  ask(withinMs: number): Promise<boolean>;
  close(): void;
};

const loopback = "127.0.0.1";
/** Loaded where a way is opened: it is megabytes. */
const boundedWebSocket = () => (require("ws") as typeof import("ws")).WebSocket;
/** Pauses between attempts to connect are doubled from the first to the longest. */
const firstPauseMs = 500;
const longestPauseMs = 10_000;
const openWithinMs = 8000;
/** Bytes that wait to be sent. More are dropped, as a full UDP queue drops them. */
const mostWaiting = 1_048_576;
const askEveryMs = 300;
/** How often the engine's ports are read at most. */
const portsMs = 1000;

export async function openTcpWay({ url, proxy, port, enginePorts, passes }: TcpWayOptions): Promise<TcpWay> {
  const engine = new EnginePort(enginePorts);
  let usedAt: number | undefined;
  /** Set while `ask` waits. */
  let answered: (() => void) | undefined;
  const socket = await Bun.udpSocket({
    hostname: loopback,
    port,
    socket: {
      data(_, bytes, from) {
        if (!engine.isFrom(from)) return;
        usedAt = performance.now();
        if (passes(bytes)) batch.add(bytes);
      },
      // A lost datagram is no fault: the engine sends again.
      error: () => undefined,
    },
  });
  const client = keepClient(url, proxy, (datagrams) => {
    for (const each of datagrams) if (isEngineAnswer(each)) answered?.();
    const to = engine.port;
    if (to !== undefined && !socket.closed)
      sendOrLose(() => socket.sendMany(datagrams.flatMap((each) => [each, to, loopback])));
  });
  const batch = new DatagramBatch((message) => client.send(message));
  return {
    port: socket.port,
    get enginePort() {
      return engine.port;
    },
    get usedAt() {
      return usedAt;
    },
    send: (datagram) => batch.add(datagram),
    ask(withinMs) {
      const { promise, resolve } = Promise.withResolvers<boolean>();
      answered = () => resolve(true);
      const asking = setInterval(() => batch.add(engineQuestion()), askEveryMs);
      const end = setTimeout(() => resolve(false), withinMs);
      return promise.finally(() => {
        answered = undefined;
        clearInterval(asking);
        clearTimeout(end);
      });
    },
    close() {
      socket.close();
      client.close();
    },
  };
}

/** Learns the engine's port from its first datagram: other programs of this machine can send to our socket, too. */
class EnginePort {
  /** Undefined before the engine sent something. */
  port: number | undefined;
  readonly #enginePorts: TcpWayOptions["enginePorts"];
  /** When the engine's ports were read, by performance.now(). */
  #readAt = Number.NEGATIVE_INFINITY;

  constructor(enginePorts: TcpWayOptions["enginePorts"]) {
    this.#enginePorts = enginePorts;
  }

  /** Whether a datagram from this port is the engine's. It has another port after a restart. */
  isFrom(port: number): boolean {
    if (port === this.port) return true;
    const now = performance.now();
    if (now - this.#readAt < portsMs) return false;
    this.#readAt = now;
    const ports = this.#enginePorts();
    if (ports.length > 0 && !ports.includes(port)) return false;
    this.port = port;
    return true;
  }
}

type Client = { send(message: Uint8Array<ArrayBuffer>): void; close(): void };

/** Keeps a connection, and makes it again whenever it ends. `take` gets the datagrams of each message. */
function keepClient(url: string, proxy: string | undefined, take: (datagrams: Uint8Array[]) => void): Client {
  let client: WebSocket | undefined;
  let isClosed = false;
  let pauseMs = firstPauseMs;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const connect = () => {
    const current = (client = openClient(url, proxy));
    const openTimeout = setTimeout(() => current.close(), openWithinMs);
    current.addEventListener("open", () => {
      clearTimeout(openTimeout);
      pauseMs = firstPauseMs;
    });
    current.addEventListener("message", ({ data }) => {
      if (data instanceof ArrayBuffer) take(datagramsIn(new Uint8Array(data)));
    });
    const reconnect = () => {
      clearTimeout(openTimeout);
      if (client !== current || isClosed) return;
      client = undefined;
      timer = setTimeout(connect, pauseMs);
      pauseMs = Math.min(longestPauseMs, pauseMs * 2);
    };
    current.addEventListener("error", reconnect);
    current.addEventListener("close", reconnect);
  };
  connect();
  return {
    send(message) {
      if (client?.readyState === WebSocket.OPEN && client.bufferedAmount < mostWaiting) client.send(message);
    },
    close() {
      isClosed = true;
      clearTimeout(timer);
      client?.close();
    },
  };
}

/**
 * The certificate is not checked: TLS only carries the datagrams through firewalls and proxies, also through those that read TLS. The
 * engines encrypt them and prove who they are, and nothing else of this node is sent here.
 */
function openClient(url: string, proxy: string | undefined): WebSocket {
  const client = new (boundedWebSocket())(url, {
    // An impostor of the server could send a message that fills the memory, also in parts.
    maxPayload: longestMessage,
    tls: { rejectUnauthorized: false },
    // Encrypted packets do not get smaller, and an impostor could send a small message that unpacks to a large one.
    perMessageDeflate: false,
    ...given({ proxy }),
  });
  client.binaryType = "arraybuffer";
  return client;
}
