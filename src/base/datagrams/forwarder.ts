// The server's side of TCP fallback, of a control plane's listener and of an agent's: passes datagrams between WebSockets and
// engines of this machine, and to nothing else. It exposes what the engine's UDP port exposes: the engine's handshake decides
// who may talk. So it asks for no credentials, and has bounds of its own.

import { networkOf, unmapped } from "../ip.ts";
import { DatagramBatch, datagramsIn, longestMessage, sendOrLose } from "./frames.ts";
import { ownAddress } from "./own-address.ts";

/** The path that nodes ask for, with the UDP port of the engine that they mean. */
export const forwarderPath = "/tcp/";
export const forwarderRoute = `${forwarderPath}:port`;

/** An engine of this machine. `host`: the address that it is bound to; unset: all. */
export type EnginePlace = { host?: string };

export type ForwarderOptions = {
  /** The engine at a UDP port, if it may be reached by TCP. */
  engineAt(port: number): EnginePlace | undefined;
  /** Both directions together; more is dropped. Unset: as much as passes. */
  bytesPerS?: number;
  monotonic(): number;
  /** Tests need small ones. */
  limits?: Partial<typeof usualLimits>;
};

const usualLimits = {
  connections: 1000,
  /** Of one IPv4 address, or one IPv6 /64: for 200 nodes behind one NAT with two lighthouses. */
  ofAddress: 500,
  /** A client whose handshake no engine answers is no node. */
  proveWithinMs: 10_000,
  /** Bytes above the rate within that time. Flows inside a tunnel send less where packets are lost; what does not, ends. */
  excess: 2_097_152,
};
/** What waits for a slow client; more is dropped, as a full UDP queue drops it. */
const mostWaiting = 65_536;
const idleS = 60;
const burstS = 0.25;
/** The part of the rate for connections that no engine answered yet: a handshake is small. */
const strangersPart = 0.1;

export type ForwarderConnection = {
  /** Of the client, see `networkOf`. */
  readonly network: string;
  /** Of the engine. */
  readonly port: number;
  readonly openedAt: number;
  readonly batch: DatagramBatch;
  socket: Bun.udp.ConnectedSocket<"buffer"> | undefined;
  client: Bun.ServerWebSocket<ForwarderConnection> | undefined;
  /** The engine answered it. */
  isProven: boolean;
  /** Bytes that it sent above the rate, in this window of time. */
  dropped: number;
};

export type Forwarder = {
  /** The answer to a request for `forwarderRoute`; undefined: the connection is open. */
  accept(request: Request, server: Upgrades, address: string): Promise<Response | undefined>;
  websocket: Bun.WebSocketHandler<ForwarderConnection>;
  connections(): number;
  close(): void;
};
type Upgrades = Pick<Bun.Server<ForwarderConnection>, "upgrade">;

export function makeForwarder({ engineAt, bytesPerS, monotonic, limits }: ForwarderOptions): Forwarder {
  const { connections, ofAddress, proveWithinMs, excess } = { ...usualLimits, ...limits };
  const open = new Set<ForwarderConnection>();
  const buckets: Buckets = {
    nodes: makeBucket(bytesPerS, monotonic),
    strangers: makeBucket(bytesPerS === undefined ? undefined : bytesPerS * strangersPart, monotonic),
  };
  const end = (connection: ForwarderConnection, code: number) => {
    if (!open.delete(connection)) return;
    connection.socket?.close();
    connection.client?.close(code);
  };
  const endUnproven = () => {
    const now = monotonic();
    for (const each of open) if (!each.isProven && now - each.openedAt > proveWithinMs) end(each, 1008);
  };
  /** Only the clock does this: a client that connects again and again must not reset what others, or it, sent above the rate. */
  const beginWindow = () => {
    endUnproven();
    for (const each of open) each.dropped = 0;
  };
  const makeRoom = (port: number): boolean => {
    endUnproven();
    if (open.size < connections) return true;
    const leaving = nextToLeave(open, port);
    if (leaving !== undefined) end(leaving, 1013);
    return leaving !== undefined;
  };
  const hasShare = (network: string) =>
    [...open].filter((each) => each.network === network).length < ofAddress;
  let windows: ReturnType<typeof setInterval> | undefined;
  let isClosed = false;

  return {
    async accept(request, server, address) {
      const port = portIn(request.url);
      const engine = port === undefined ? undefined : engineAt(port);
      if (port === undefined || engine === undefined) return new Response(null, { status: 404 });
      if (request.headers.get("upgrade")?.toLowerCase() !== "websocket")
        return new Response(null, { status: 426, headers: { Upgrade: "websocket" } });
      const network = networkOf(unmapped(address));
      if (isClosed || !hasShare(network) || !makeRoom(port)) return busy();
      const connection = newConnection({ network, port, openedAt: monotonic() });
      // Before the socket is there: it counts from now on.
      open.add(connection);
      connection.socket = await openSocket(engine, connection, buckets).catch(() => undefined);
      if (
        connection.socket !== undefined &&
        open.has(connection) &&
        server.upgrade(request, { data: connection })
      ) {
        windows ??= setInterval(beginWindow, proveWithinMs).unref();
        return undefined;
      }
      connection.socket?.close();
      end(connection, 1011);
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
        if (typeof message === "string") return end(connection, 1003);
        const datagrams = affordable(connection, datagramsIn(message), buckets);
        if (connection.dropped > excess) return end(connection, 1008);
        if (datagrams.length > 0 && open.has(connection))
          sendOrLose(() => connection.socket?.sendMany(datagrams));
      },
      close: ({ data: connection }) => end(connection, 1000),
    },
    connections: () => open.size,
    close() {
      isClosed = true;
      clearInterval(windows);
      // They connect again to the next process.
      for (const each of open) end(each, 1012);
    },
  };
}

/**
 * Who makes room for a connection to the engine at this port: first one that no engine answered yet. Nodes keep their places,
 * unless their engine has more of them than that one: engines are of different organizations.
 */
function nextToLeave(open: ReadonlySet<ForwarderConnection>, port: number): ForwarderConnection | undefined {
  const stranger = [...open].find(({ isProven }) => !isProven);
  if (stranger !== undefined) return stranger;
  const byEngine = Map.groupBy(open, (each) => each.port);
  const [most = []] = [...byEngine.values()].sort((a, b) => b.length - a.length);
  return most.length > (byEngine.get(port)?.length ?? 0) + 1 ? most.at(-1) : undefined;
}

const busy = () => new Response(null, { status: 503, headers: { "Retry-After": "10" } });

/** See makeBucket. */
type Buckets = Record<"nodes" | "strangers", (bytes: number) => boolean>;

const take = ({ isProven }: ForwarderConnection, bytes: number, buckets: Buckets) =>
  buckets[isProven ? "nodes" : "strangers"](bytes);

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

/** Undefined if this machine has no address that the engine may see. */
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
        // recv_error (type 2) answers any packet, so it proves nothing.
        if (bytes.length >= 16 && ((bytes[0] ?? 0) & 0x0f) !== 2) connection.isProven = true;
        if (take(connection, bytes.length, buckets)) connection.batch.add(bytes);
      },
      // The engine does not listen at this moment.
      error: () => undefined,
    },
  });
}

function portIn(url: string): number | undefined {
  const [, digits] = /\/tcp\/([1-9]\d{0,4})\/?$/.exec(new URL(url).pathname) ?? [];
  return digits === undefined ? undefined : Number(digits);
}

/** Takes so many bytes of what may pass now; false if there are not so many. */
function makeBucket(bytesPerS: number | undefined, monotonic: () => number): (bytes: number) => boolean {
  if (bytesPerS === undefined) return () => true;
  const most = bytesPerS * burstS;
  let [left, at] = [most, monotonic()];
  return (bytes) => {
    const now = monotonic();
    left = Math.min(most, left + ((now - at) / 1000) * bytesPerS);
    at = now;
    if (left < bytes) return false;
    left -= bytes;
    return true;
  };
}
