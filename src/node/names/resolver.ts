// The sockets of a resolver: UDP and TCP on one address. The machine's own is on a loopback address, for queries of this
// machine only. Memory is bounded: a datagram is answered before the next one is read, and connections are few, short-lived
// and without queues.

import { defer } from "../../base/defer.ts";
import { decode, encode } from "dns-packet";
import { AppError } from "../../base/errors.ts";
import { systemErrorCode } from "../../base/system-errors.ts";
import { portCommand, resolverAddress } from "../../platform/names-places.ts";
import { answerQuery } from "./answer-query.ts";
import type { NameIndex } from "./name-index.ts";

const maxConnections = 32;
const idleSeconds = 5;
/** A query over TCP: two bytes of length, and at most 1024 of the query (answer-query.ts). */
const maxPending = 2 + 1024;

export type Resolver = {
  /** From now on, answers come from this index. */
  use(index: NameIndex): void;
  close(): void;
};

type Connection = Bun.Socket<{ pending: Buffer }>;

/** The resolver of this machine's own programs. Throws if another program uses the address. */
export async function startResolver(
  firstIndex: NameIndex,
  place: HostPort = resolverAddress,
): Promise<Resolver> {
  let index = firstIndex;
  // Answer only loopback addresses: with the setting route_localnet, packets from outside reach us too.
  const sockets = await openSockets((from) => (isLoopback(from) ? index : undefined), place);
  return { use: (nextIndex) => void (index = nextIndex), close: sockets.close };
}

/** `indexFor`: what an address is answered from; undefined if it gets no answer. Throws if another program uses the place. */
export async function openSockets(
  indexFor: (from: string) => NameIndex | undefined,
  { host, port }: HostPort,
): Promise<Pick<Resolver, "close">> {
  const open = new Set<Connection>();
  try {
    const datagrams = await Bun.udpSocket({
      hostname: host,
      port,
      socket: {
        data(socket, packet, fromPort, from) {
          // Nothing can be sent to port 0.
          const index = fromPort === 0 ? undefined : indexFor(from);
          if (index === undefined) return;
          const reply = answerQuery(packet, index, "udp");
          // A full buffer drops the answer, as the network may: the client asks again.
          if (reply !== undefined) socket.send(reply, fromPort, from);
        },
        error: ignore,
      },
    });
    try {
      const streams = Bun.listen<{ pending: Buffer }>({
        hostname: host,
        port,
        exclusive: true,
        socket: {
          open(socket) {
            socket.data = { pending: Buffer.alloc(0) };
            if (indexFor(socket.remoteAddress) === undefined) return socket.terminate();
            socket.timeout(idleSeconds);
            // The longest-standing connection makes room, so that idle ones cannot keep others out.
            const [oldest] = open;
            if (open.size >= maxConnections) oldest?.terminate();
            open.add(socket);
          },
          data: (socket, bytes) => readStream(socket, bytes, indexFor),
          timeout: (socket) => socket.terminate(),
          close: (socket) => void open.delete(socket),
          error: (socket) => socket.terminate(),
        },
      });
      return {
        close() {
          datagrams.close();
          streams.stop(true);
        },
      };
    } catch (error) {
      datagrams.close();
      throw error;
    }
  } catch (error) {
    throw new AppError("failed", `Cannot answer queries at ${host}:${port}: ${why(error)}`, {
      hint: `See which program uses the port: ${portCommand(port)}`,
      cause: error,
    });
  }
}

export type HostPort = { host: string; port: number };

const isLoopback = (address: string) => address.startsWith("127.");
const ignore = () => undefined;

function why(error: unknown): string {
  const code = systemErrorCode(error);
  return code === "EADDRINUSE" ? "another program uses this port" : (code ?? String(error));
}

/** Each query has its length before it (RFC 1035, 4.2.2). A client that does not read its answers loses the connection. */
function readStream(
  socket: Connection,
  bytes: Uint8Array,
  indexFor: (from: string) => NameIndex | undefined,
): void {
  let rest = Buffer.concat([socket.data.pending, bytes]);
  for (let size = sizeOf(rest); size !== undefined && rest.length >= size; size = sizeOf(rest)) {
    const index = indexFor(socket.remoteAddress);
    const reply = index === undefined ? undefined : answerQuery(rest.subarray(2, size), index, "tcp");
    rest = rest.subarray(size);
    if (reply === undefined) return socket.terminate();
    const length = Buffer.alloc(2);
    length.writeUInt16BE(reply.length);
    const message = Buffer.concat([length, reply]);
    if (socket.write(message) < message.length) return socket.terminate();
    socket.timeout(idleSeconds);
  }
  if (rest.length > maxPending || (sizeOf(rest) ?? 0) > maxPending) return socket.terminate();
  socket.data.pending = Buffer.from(rest);
}

function sizeOf(bytes: Buffer): number | undefined {
  return bytes.length < 2 ? undefined : 2 + bytes.readUInt16BE(0);
}

/** How long `askResolver` waits for an answer. */
const askMs = 2000;

/** The addresses that the resolver itself gives for a name; undefined if it does not answer. For examinations. */
export async function askResolver(
  name: string,
  { host, port }: HostPort = resolverAddress,
): Promise<string[] | undefined> {
  const { promise, resolve } = Promise.withResolvers<string[] | undefined>();
  const socket = await Bun.udpSocket({
    connect: { hostname: host, port },
    socket: { data: (_socket, packet) => resolve(addressesIn(packet)), error: () => resolve(undefined) },
  });
  const late = setTimeout(() => resolve(undefined), askMs);
  using _ = defer(() => {
    clearTimeout(late);
    socket.close();
  });
  socket.send(encode({ type: "query", id: 1, questions: [{ type: "A", name }] }));
  return await promise;
}

function addressesIn(packet: Buffer): string[] | undefined {
  try {
    return decode(packet).answers?.flatMap((each) => (each.type === "A" ? [each.data] : [])) ?? [];
  } catch {
    // Another program answers at this address.
    return undefined;
  }
}
