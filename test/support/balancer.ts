// A plain TCP balancer: passes each connection to the next server that accepts it.

import type { Socket, TCPSocketListener } from "bun";

type Half = { other: Socket<Half> | undefined; waiting: Buffer[] };

export type Balancer = Disposable & { url: string };

/** Calls `upstreams` for each connection, so that servers may change. */
export function startBalancer(upstreams: () => readonly string[]): Balancer {
  let next = 0;
  const listener: TCPSocketListener<Half> = Bun.listen<Half>({
    hostname: "127.0.0.1",
    port: 0,
    data: { other: undefined, waiting: [] },
    socket: {
      ...relay,
      open(client) {
        client.data = { other: undefined, waiting: [] };
        void connect(client, upstreams(), next++);
      },
    },
  });
  return {
    url: `http://127.0.0.1:${listener.port}`,
    [Symbol.dispose]: () => listener.stop(true),
  };
}

const relay = {
  data(from: Socket<Half>, chunk: Buffer) {
    const { other } = from.data;
    // Buffer data until the server is connected and while it is blocked.
    if (other === undefined) from.data.waiting.push(Buffer.from(chunk));
    else send(other, from.data, Buffer.from(chunk));
  },
  drain(to: Socket<Half>) {
    const from = to.data.other;
    if (from !== undefined) sendWaiting(to, from.data);
  },
  close(from: Socket<Half>) {
    from.data.other?.end();
  },
  error(from: Socket<Half>) {
    from.terminate();
  },
};

function send(to: Socket<Half>, half: Half, chunk: Buffer): void {
  half.waiting.push(chunk);
  if (half.waiting.length === 1) sendWaiting(to, half);
}

function sendWaiting(to: Socket<Half>, half: Half): void {
  for (let chunk = half.waiting[0]; chunk !== undefined; chunk = half.waiting[0]) {
    const written = to.write(chunk);
    if (written < 0) return;
    if (written < chunk.length) {
      half.waiting[0] = chunk.subarray(written);
      return;
    }
    half.waiting.shift();
  }
}

async function connect(client: Socket<Half>, upstreams: readonly string[], first: number): Promise<void> {
  for (let tries = 0; tries < upstreams.length; tries++) {
    const upstream = new URL(upstreams[(first + tries) % upstreams.length] ?? "");
    try {
      const server = await Bun.connect<Half>({
        hostname: upstream.hostname,
        port: Number(upstream.port),
        data: { other: client, waiting: [] },
        socket: relay,
      });
      client.data.other = server;
      sendWaiting(server, client.data);
      return;
    } catch {
      // The server does not listen: try the next one.
      continue;
    }
  }
  client.terminate();
}
