// Lets a host of a test network reach a loopback port of this process under the same address, through a Unix socket,
// which both sides can see. Run as a program, this file is the part inside the host.

import { join } from "node:path";
import type { Host } from "./namespaces.ts";

type Half = { other: Bun.Socket<Half> | undefined; waiting: Buffer[] };

/** Listens, and joins each connection to a new one of `connect`. */
function pairUp(
  listen: (socket: Bun.SocketHandler<Half>) => { stop(force?: boolean): void },
  connect: (socket: Bun.SocketHandler<Half>, data: Half) => Promise<unknown>,
): { stop(force?: boolean): void } {
  const forward = (half: Half, bytes: Buffer) => {
    half.waiting.push(bytes);
    flush(half);
  };
  const flush = ({ other, waiting }: Half) => {
    if (other === undefined) return;
    for (let first = waiting[0]; first !== undefined; first = waiting[0]) {
      const written = Math.max(0, other.write(first));
      if (written < first.length) {
        waiting[0] = first.subarray(written);
        return;
      }
      waiting.shift();
    }
  };
  const ends = {
    data: (socket: Bun.Socket<Half>, bytes: Buffer) => forward(socket.data, Buffer.from(bytes)),
    drain: (socket: Bun.Socket<Half>) => {
      if (socket.data.other !== undefined) flush(socket.data.other.data);
    },
    close: (socket: Bun.Socket<Half>) => void socket.data.other?.end(),
    error: (socket: Bun.Socket<Half>) => void socket.data.other?.end(),
  };
  return listen({
    ...ends,
    open(socket) {
      const half: Half = { other: undefined, waiting: [] };
      socket.data = half;
      const open = (other: Bun.Socket<Half>) => {
        half.other = other;
        flush(half);
      };
      connect({ ...ends, open }, { other: socket, waiting: [] }).catch(() => socket.end());
    },
  });
}

const [, program = "", path = "", port = ""] = process.argv;
if (import.meta.main && program === import.meta.path) {
  pairUp(
    (socket) => Bun.listen<Half>({ hostname: "127.0.0.1", port: Number(port), socket }),
    (socket, data) => Bun.connect<Half>({ unix: path, socket, data }),
  );
  process.stdout.write("up");
}

/** From now on 127.0.0.1:port inside the host leads to this process. */
export async function bridgePort(host: Host, directory: string, port: number): Promise<Disposable> {
  const path = join(directory, `bridge-${port}.sock`);
  const outer = pairUp(
    (socket) => Bun.listen<Half>({ unix: path, socket }),
    (socket, data) => Bun.connect<Half>({ hostname: "127.0.0.1", port, socket, data }),
  );
  const inner = Bun.spawn(host.inside([process.execPath, import.meta.path, path, String(port)]), {
    stdout: "pipe",
    stderr: "inherit",
  });
  await inner.stdout.getReader().read();
  return {
    [Symbol.dispose]: () => {
      inner.kill();
      outer.stop(true);
    },
  };
}
