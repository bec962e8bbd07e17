// Open flows between hosts of a test, and a machine that takes over the flow of another one. Run as a program:
// `listen PORT` prints each line that arrives by TCP or UDP; `open ADDRESS PORT LOCAL` opens a flow of each protocol and
// prints the sequence numbers of the TCP flow; `take ADDRESS PORT OWN LOCAL SEQUENCES` continues both from another host.

import { dlopen, FFIType, ptr } from "bun:ffi";
import { createSocket } from "node:dgram";
import { createServer } from "node:net";
import { join } from "node:path";
import * as v from "valibot";
import type { Host } from "./namespaces.ts";

const { i32, u32, u64, i64 } = FFIType;
const openLibc = () =>
  dlopen("libc.so.6", {
    socket: { args: [i32, i32, i32], returns: i32 },
    bind: { args: [i32, FFIType.ptr, u32], returns: i32 },
    connect: { args: [i32, FFIType.ptr, u32], returns: i32 },
    send: { args: [i32, FFIType.ptr, u64, i32], returns: i64 },
    recv: { args: [i32, FFIType.ptr, u64, i32], returns: i64 },
    setsockopt: { args: [i32, i32, i32, FFIType.ptr, u32], returns: i32 },
    getsockopt: { args: [i32, i32, i32, FFIType.ptr, FFIType.ptr], returns: i32 },
  }).symbols;

/** tcp(7) and linux/tcp.h: a socket in repair mode tells and takes its state, and sends nothing for connect and close. */
const tcp = { level: 6, repair: 19, queue: 20, sequence: 21 } as const;
const queues = { receive: 1, send: 2 } as const;
const Sequences = v.object({ receive: v.number(), send: v.number() });

/** Calls of the C library for one TCP socket between `local` and `remote`. */
function makeSocket(local: [string, number]) {
  const c = openLibc();
  const fd = c.socket(2, 1, 0);
  const done = (what: string, result: number | bigint) => {
    if (Number(result) < 0) throw new Error(`${what} failed`);
  };
  const set = (option: number, value: number) =>
    done(`setsockopt ${option}`, c.setsockopt(fd, tcp.level, option, ptr(new Uint32Array([value])), 4));
  const get = (option: number) => {
    const value = new Uint32Array(1);
    done(`getsockopt ${option}`, c.getsockopt(fd, tcp.level, option, ptr(value), ptr(new Uint32Array([4]))));
    return value[0] ?? 0;
  };
  const join = (call: "bind" | "connect", [address, port]: [string, number]) =>
    done(call, c[call](fd, ptr(socketAddress(address, port)), 16));
  const choose = (queue: number) => set(tcp.queue, queue);
  return {
    set,
    connect(remote: [string, number]) {
      join("bind", local);
      join("connect", remote);
    },
    send: (text: string) => done("send", c.send(fd, ptr(Buffer.from(text)), text.length, 0)),
    receive: () => done("recv", c.recv(fd, ptr(Buffer.alloc(100)), 100, 0)),
    read: (queue: number) => (choose(queue), get(tcp.sequence)),
    write: (queue: number, value: number) => (choose(queue), set(tcp.sequence, value)),
  };
}

/** struct sockaddr_in. */
function socketAddress(address: string, port: number): Uint8Array {
  const bytes = new Uint8Array(16);
  bytes.set([2, 0, port >> 8, port & 0xff, ...address.split(".").map(Number)]);
  return bytes;
}

/** Prints every message that arrives, and answers it. */
function listen(port: number): void {
  let ready = 0;
  const isOpen = () => {
    if (++ready === 2) process.stdout.write("open\n");
  };
  createServer((socket) => {
    socket.on("error", () => socket.destroy());
    socket.on("data", (data) => {
      process.stdout.write(`tcp ${data.toString()}\n`);
      socket.write(data);
    });
  }).listen(port, "0.0.0.0", isOpen);
  const socket = createSocket("udp4");
  socket.on("message", (data, from) => {
    process.stdout.write(`udp ${data.toString()}\n`);
    socket.send(data, from.port, from.address);
  });
  socket.bind(port, "0.0.0.0", isOpen);
}

async function sendDatagrams(text: string, local: number, address: string, port: number): Promise<void> {
  const socket = createSocket("udp4");
  await new Promise<void>((resolve) => socket.bind(local, "0.0.0.0", resolve));
  socket.send(text, port, address);
  await Bun.sleep(500);
  socket.close();
}

async function open(address: string, port: number, local: number): Promise<void> {
  const socket = makeSocket(["0.0.0.0", local]);
  socket.connect([address, port]);
  socket.send("hello");
  socket.receive();
  await sendDatagrams("hello", local, address, port);
  // Ending in repair mode leaves the other end open, like a machine that loses its power.
  socket.set(tcp.repair, 1);
  const sequences = { receive: socket.read(queues.receive), send: socket.read(queues.send) };
  process.stdout.write(`${JSON.stringify(sequences)}\n`);
}

async function take(address: string, port: number, own: string, local: number, text: string): Promise<void> {
  const sequences = v.parse(Sequences, JSON.parse(text));
  const socket = makeSocket([own, local]);
  socket.set(tcp.repair, 1);
  socket.write(queues.send, sequences.send);
  socket.write(queues.receive, sequences.receive);
  socket.connect([address, port]);
  socket.set(tcp.repair, 0);
  socket.send("stolen");
  await sendDatagrams("stolen", local, address, port);
  // TCP sends again what was lost while the tunnel was made.
  await Bun.sleep(3000);
}

export const flow = { port: 5432, local: 40_000 } as const;

const argv = (host: Host, words: readonly (string | number)[]) =>
  host.inside([process.execPath, join(import.meta.dir, "flow.ts"), ...words.map(String)]);

/** The lines that arrived in the host so far, for example "tcp hello". */
export async function startListener(host: Host): Promise<() => string[]> {
  const child = Bun.spawn(argv(host, ["listen", flow.port]), { stdout: "pipe", stderr: "inherit" });
  let text = "";
  const opened = Promise.withResolvers<void>();
  void (async () => {
    for await (const chunk of child.stdout) {
      text += new TextDecoder().decode(chunk);
      opened.resolve();
    }
  })();
  await opened.promise;
  return () => text.split("\n").slice(1, -1);
}

/** Opens a TCP and a UDP flow to the listener. Returns what another host needs to continue them. */
export async function openFlows(host: Host, to: string): Promise<string> {
  const child = Bun.spawn(argv(host, ["open", to, flow.port, flow.local]), {
    stdout: "pipe",
    stderr: "inherit",
  });
  return (await new Response(child.stdout).text()).trim();
}

/** Sends "stolen" in the flows of another host that had the address `own`. */
export async function takeFlows(host: Host, to: string, own: string, sequences: string): Promise<void> {
  const words = ["take", to, flow.port, own, flow.local, sequences];
  const status = await Bun.spawn(argv(host, words), { stdio: ["ignore", "ignore", "inherit"] }).exited;
  if (status !== 0) throw new Error(`Taking the flows over ended with ${status}`);
}

if (import.meta.main) {
  const [mode, ...words] = process.argv.slice(2);
  const [first = "", second, third = "", fourth, fifth = ""] = words;
  if (mode === "listen") listen(Number(first));
  else if (mode === "open") await open(first, Number(second), Number(third));
  else await take(first, Number(second), third, Number(fourth), fifth);
}
