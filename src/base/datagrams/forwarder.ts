// The server's side of TCP fallback, in a control plane's listener and in an agent's: passes datagrams between WebSockets and
// engines of this machine, and to nothing else. It asks for no credentials: like the engine's UDP port, it is open to all, and
// the engine's handshake decides which node may talk. It limits connections and bytes, because it cannot limit users.

import { messageOf } from "../errors.ts";
import { networkOf, unmapped } from "../ip.ts";
import type { Log } from "../log.ts";
import { DatagramBatch, datagramsIn, longestMessage, sendOrLose } from "./frames.ts";
import { ownAddress } from "./own-address.ts";

/** The path that nodes ask for; the UDP port of the engine that they mean follows it. */
export const forwarderPath = "/tcp/";
export const forwarderRoute = `${forwarderPath}:port`;

/** An engine of this machine. `host`: the address that it is bound to; unset: all. */
export type EnginePlace = { host?: string };

export type ForwarderOptions = {
  /** The engine at a UDP port, if it may be reached by TCP. */
  engineAt(port: number): EnginePlace | undefined;
  /** The rate of both directions together; what is above it is dropped. Unset: no limit. */
  bytesPerS?: number;
  monotonic(): number;
  /** Told once why no socket to an engine can be opened, until one can again. */
  log?: Pick<Log, "warn">;
  /** Tests need small ones. */
  limits?: Partial<typeof usualLimits>;
};

const usualLimits = {
  connections: 1000,
  /** Connections from one IPv4 address, or one IPv6 /64: enough for 200 nodes behind one NAT with two lighthouses. */
  ofNetwork: 500,
  /** A connection ends if its engine has not answered in this time: its client is no node. */
  proveWithinMs: 10_000,
  /**
   * A connection ends if it sends more bytes than this above the rate within `proveWithinMs`. Flows inside a tunnel send less when
   * packets are lost, so they stay below.
   */
  excess: 2_097_152,
};
/** Close codes of WebSockets (RFC 6455, section 7.4.1). After `restart` and `busy`, clients connect again. */
const closeCodes = { normal: 1000, notBinary: 1003, policy: 1008, failed: 1011, restart: 1012, busy: 1013 };
/** Bytes that wait for a slow client; more is dropped, as a full UDP queue drops it. */
const mostWaiting = 65_536;
const idleS = 60;
/** The bucket holds what the rate gives in this time. */
const burstS = 0.25;
/** The share of the rate for all connections that no engine has answered yet (strangers): a handshake is small. */
const strangersShare = 0.1;

export type ForwarderConnection = {
  /** The client's, see `networkOf`. */
  readonly network: string;
  /** The engine's UDP port. */
  readonly port: number;
  /** ms, monotonic. */
  readonly openedAt: number;
  /** What waits to be sent to the client. */
  readonly batch: DatagramBatch;
  /** To the engine. */
  socket: Bun.udp.ConnectedSocket<"buffer"> | undefined;
  client: Bun.ServerWebSocket<ForwarderConnection> | undefined;
  /** The engine answered it. */
  isProven: boolean;
  /** Bytes that the client sent above the rate since `beginWindow`. */
  dropped: number;
};

export type Forwarder = {
  /** The answer to a request for `forwarderRoute`; undefined: the connection is open. `address`: the client's. */
  accept(request: Request, server: Upgrades, address: string): Promise<Response | undefined>;
  websocket: Bun.WebSocketHandler<ForwarderConnection>;
  connections(): number;
  close(): void;
};
type Upgrades = Pick<Bun.Server<ForwarderConnection>, "upgrade">;

export function makeForwarder(options: ForwarderOptions): Forwarder {
  const { engineAt, bytesPerS, monotonic, limits, log } = options;
  const allLimits = { ...usualLimits, ...limits };
  const open = new Connections(allLimits, monotonic);
  const buckets: Buckets = {
    nodes: makeBucket(bytesPerS, monotonic),
    strangers: makeBucket(bytesPerS === undefined ? undefined : bytesPerS * strangersShare, monotonic),
  };
  let windowTimer: ReturnType<typeof setInterval> | undefined;
  let isClosed = false;
  let isFailing = false;
  const noteFailure = (port: number, error: unknown) => {
    if (isFailing) return;
    isFailing = true;
    log?.warn("No node can be passed on by TCP: the engine of this machine cannot be asked", {
      port,
      reason: error === undefined ? "no interface but loopback has an address" : messageOf(error),
    });
  };

  return {
    async accept(request, server, address) {
      const port = portIn(request.url);
      const engine = port === undefined ? undefined : engineAt(port);
      if (port === undefined || engine === undefined) return new Response(null, { status: 404 });
      if (request.headers.get("upgrade")?.toLowerCase() !== "websocket")
        return new Response(null, { status: 426, headers: { Upgrade: "websocket" } });
      const network = networkOf(unmapped(address));
      if (isClosed || !open.hasShare(network) || !open.makeRoom(port)) return busy();
      const connection = newConnection({ network, port, openedAt: monotonic() });
      // Counted before its socket is open, so that parallel requests cannot exceed the limits.
      open.add(connection);
      try {
        connection.socket = await openSocket(engine, connection, buckets);
        if (connection.socket === undefined) noteFailure(port, undefined);
        else isFailing = false;
      } catch (error) {
        noteFailure(port, error);
      }
      if (
        connection.socket !== undefined &&
        open.has(connection) &&
        server.upgrade(request, { data: connection })
      ) {
        windowTimer ??= setInterval(() => open.beginWindow(), allLimits.proveWithinMs).unref();
        return undefined;
      }
      connection.socket?.close();
      open.end(connection, closeCodes.failed);
      return busy();
    },
    websocket: {
      maxPayloadLength: longestMessage,
      backpressureLimit: 4 * mostWaiting,
      idleTimeout: idleS,
      perMessageDeflate: false,
      open(client) {
        client.data.client = client;
      },
      message({ data: connection }, message) {
        if (typeof message === "string") return open.end(connection, closeCodes.notBinary);
        const datagrams = affordable(connection, datagramsIn(message), buckets);
        if (connection.dropped > allLimits.excess) return open.end(connection, closeCodes.policy);
        if (datagrams.length > 0 && open.has(connection))
          sendOrLose(() => connection.socket?.sendMany(datagrams));
      },
      close: ({ data: connection }) => open.end(connection, closeCodes.normal),
    },
    connections: () => open.size,
    close() {
      isClosed = true;
      clearInterval(windowTimer);
      // The clients connect to the next process.
      open.endAll(closeCodes.restart);
    },
  };
}

/** The open connections, within their limits. */
class Connections {
  readonly #open = new Set<ForwarderConnection>();
  readonly #limits: typeof usualLimits;
  readonly #monotonic: () => number;

  constructor(limits: typeof usualLimits, monotonic: () => number) {
    this.#limits = limits;
    this.#monotonic = monotonic;
  }

  get size(): number {
    return this.#open.size;
  }

  has(connection: ForwarderConnection): boolean {
    return this.#open.has(connection);
  }

  add(connection: ForwarderConnection): void {
    this.#open.add(connection);
  }

  end(connection: ForwarderConnection, code: number): void {
    if (!this.#open.delete(connection)) return;
    connection.socket?.close();
    connection.client?.close(code);
  }

  endAll(code: number): void {
    for (const each of this.#open) this.end(each, code);
  }

  /** Whether a client in this network may have a further connection. */
  hasShare(network: string): boolean {
    return [...this.#open].filter((each) => each.network === network).length < this.#limits.ofNetwork;
  }

  /** Whether there is room for a further connection to the engine at this port. If need be, ends another one for it. */
  makeRoom(port: number): boolean {
    this.#endUnproven();
    if (this.#open.size < this.#limits.connections) return true;
    const leaving = nextToLeave(this.#open, port);
    if (leaving !== undefined) this.end(leaving, closeCodes.busy);
    return leaving !== undefined;
  }

  /** Called by the clock alone, not by new connections: a client that connects again and again must not reset any count. */
  beginWindow(): void {
    this.#endUnproven();
    for (const each of this.#open) each.dropped = 0;
  }

  #endUnproven(): void {
    const now = this.#monotonic();
    for (const each of this.#open)
      if (!each.isProven && now - each.openedAt > this.#limits.proveWithinMs)
        this.end(each, closeCodes.policy);
  }
}

/**
 * The connection that makes room for a new one to the engine at this port: one that no engine has answered yet. Without such, one
 * of the engine with the most connections, if it has more than this engine will have: engines are of different organizations.
 */
function nextToLeave(open: ReadonlySet<ForwarderConnection>, port: number): ForwarderConnection | undefined {
  const stranger = [...open].find(({ isProven }) => !isProven);
  if (stranger !== undefined) return stranger;
  const byEngine = Map.groupBy(open, (each) => each.port);
  const [most = []] = [...byEngine.values()].sort((a, b) => b.length - a.length);
  return most.length > (byEngine.get(port)?.length ?? 0) + 1 ? most.at(-1) : undefined;
}

const busy = () => new Response(null, { status: 503, headers: { "Retry-After": "10" } });

/** The buckets (see makeBucket) of connections that an engine has answered, and of the others. */
type Buckets = Record<"nodes" | "strangers", (bytes: number) => boolean>;

const take = ({ isProven }: ForwarderConnection, bytes: number, buckets: Buckets) =>
  buckets[isProven ? "nodes" : "strangers"](bytes);

/** The datagrams that the rate lets pass. Counts the bytes of the others. */
function affordable(
  connection: ForwarderConnection,
  datagrams: readonly Uint8Array[],
  buckets: Buckets,
): Uint8Array[] {
  return datagrams.filter(({ length }) => {
    if (take(connection, length, buckets)) return true;
    connection.dropped += length;
    return false;
  });
}

function newConnection(
  about: Pick<ForwarderConnection, "network" | "port" | "openedAt">,
): ForwarderConnection {
  const connection: ForwarderConnection = {
    ...about,
    batch: new DatagramBatch((message) => {
      const { client } = connection;
      if (client === undefined || client.getBufferedAmount() > mostWaiting) return;
      client.sendBinary(message);
    }),
    socket: undefined,
    client: undefined,
    isProven: false,
    dropped: 0,
  };
  return connection;
}

/** A socket to the engine. Undefined if this machine has no address from which the engine may be asked: see ownAddress. */
async function openSocket(
  { host }: EnginePlace,
  connection: ForwarderConnection,
  buckets: Buckets,
): Promise<Bun.udp.ConnectedSocket<"buffer"> | undefined> {
  const source = host ?? (await ownAddress());
  if (source === undefined) return undefined;
  return Bun.udpSocket({
    hostname: source,
    connect: { hostname: source, port: connection.port },
    socket: {
      data(_, bytes) {
        // A packet of the engine begins with a header of 16 bytes. recv_error (type 2) answers any packet, so it proves nothing.
        if (bytes.length >= 16 && ((bytes[0] ?? 0) & 0x0f) !== 2) connection.isProven = true;
        if (take(connection, bytes.length, buckets)) connection.batch.add(bytes);
      },
      // ICMP says that the engine does not listen. It may listen again.
      error: () => undefined,
    },
  });
}

function portIn(url: string): number | undefined {
  const [, digits] = /\/tcp\/([1-9]\d{0,4})\/?$/.exec(new URL(url).pathname) ?? [];
  return digits === undefined ? undefined : Number(digits);
}

/** A token bucket: the result takes bytes from what may pass now. It returns false, and takes none, if fewer may pass. */
function makeBucket(bytesPerS: number | undefined, monotonic: () => number): (bytes: number) => boolean {
  if (bytesPerS === undefined) return () => true;
  const capacity = bytesPerS * burstS;
  let available = capacity;
  let filledAt = monotonic();
  return (bytes) => {
    const now = monotonic();
    available = Math.min(capacity, available + ((now - filledAt) / 1000) * bytesPerS);
    filledAt = now;
    if (available < bytes) return false;
    available -= bytes;
    return true;
  };
}
