// A TCP relay to a Unix socket that can fall silent, as a host does that loses its power: connections stay open, and
// nothing comes back on them.

import { join } from "node:path";
import type { Socket } from "bun";

type Half = { other: Socket<Half> | undefined; waiting: Buffer[] };

export type SilentRelay = Disposable & {
  port: number;
  /** New connections are silent, too. */
  fallSilent(): void;
  /** The host is back: new connections work, the old ones stay silent. */
  comeBack(): void;
};

export function startSilentRelay(directory: string): SilentRelay {
  const dead = new WeakSet<Socket<Half>>();
  const alive = new Set<Socket<Half>>();
  let isSilent = false;
  const pass = (from: Socket<Half>, chunk: Buffer) => {
    if (dead.has(from)) return;
    const { other } = from.data;
    if (other === undefined) from.data.waiting.push(Buffer.from(chunk));
    else other.write(chunk);
  };
  const close = (from: Socket<Half>) => {
    alive.delete(from);
    if (!dead.has(from)) from.data.other?.end();
  };
  const listener = Bun.listen<Half>({
    hostname: "127.0.0.1",
    port: 0,
    socket: {
      async open(client) {
        client.data = { other: undefined, waiting: [] };
        if (isSilent) return void dead.add(client);
        alive.add(client);
        const server = await Bun.connect<Half>({
          unix: join(directory, ".s.PGSQL.5432"),
          data: { other: client, waiting: [] },
          socket: { data: pass, close, open: (each) => void alive.add(each) },
        });
        client.data.other = server;
        for (const chunk of client.data.waiting.splice(0)) server.write(chunk);
      },
      data: pass,
      close,
    },
  });
  return {
    port: listener.port,
    fallSilent() {
      isSilent = true;
      for (const each of alive) dead.add(each);
    },
    comeBack: () => void (isSilent = false),
    [Symbol.dispose]: () => listener.stop(true),
  };
}
