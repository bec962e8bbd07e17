// Real packets between hosts of a test. `bun traffic.ts serve PORT…` is an echo server for TCP and UDP on each port.
// `bun traffic.ts reach tcp|udp ADDRESS PORT` exits with 0 after an echo, with 1 after two seconds without one.

import { createSocket } from "node:dgram";
import { createConnection, createServer } from "node:net";
import { join } from "node:path";
import type { Host } from "./namespaces.ts";

export type Protocol = "tcp" | "udp";

/** Runs the echo server in the host until the network is removed. Resolves when all ports are open. */
export async function startEcho(host: Host, ports: readonly number[]): Promise<void> {
  const argv = [process.execPath, join(import.meta.dir, "traffic.ts"), "serve", ...ports.map(String)];
  const child = Bun.spawn(host.inside(argv), { stdin: "ignore", stdout: "pipe", stderr: "inherit" });
  const { value } = await child.stdout.getReader().read();
  if (value === undefined) throw new Error(`The echo in ${host.name} ended with ${await child.exited}`);
}

/** Tries once. */
export async function reaches(
  host: Host,
  protocol: Protocol,
  address: string,
  port: number,
): Promise<boolean> {
  const argv = [process.execPath, join(import.meta.dir, "traffic.ts"), "reach", protocol, address, `${port}`];
  return (await Bun.spawn(host.inside(argv), { stdio: ["ignore", "ignore", "inherit"] }).exited) === 0;
}

function serve(ports: readonly number[]): void {
  let open = 0;
  const isOpen = () => {
    if (++open === 2 * ports.length) process.stdout.write("open\n");
  };
  for (const port of ports) {
    createServer((socket) => socket.on("error", () => socket.destroy()).pipe(socket)).listen(
      port,
      "0.0.0.0",
      isOpen,
    );
    const socket = createSocket("udp4");
    socket.on("message", (message, { address, port }) => socket.send(message, port, address));
    socket.bind(port, "0.0.0.0", isOpen);
  }
}

function reach(protocol: string, address: string, port: number): void {
  setTimeout(() => process.exit(1), 2000);
  if (protocol === "tcp") {
    const socket = createConnection(port, address, () => socket.write("hello"));
    socket.on("data", () => process.exit(0)).on("error", () => process.exit(1));
    return;
  }
  const socket = createSocket("udp4");
  socket.on("message", () => process.exit(0));
  // A datagram may be lost while the tunnel is set up.
  setInterval(() => socket.send("hello", port, address), 200);
}

if (import.meta.main) {
  const [mode, ...words] = process.argv.slice(2);
  if (mode === "serve") serve(words.map(Number));
  else reach(words[0] ?? "", words[1] ?? "", Number(words[2]));
}
