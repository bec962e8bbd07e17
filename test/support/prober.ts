// Asks which of many destinations a host reaches, in one process that stays in the host's namespace: a process for each
// question would take longer than the packets. `import.meta.main`: that process.

import { join } from "node:path";
import { createSocket } from "node:dgram";
import { createConnection } from "node:net";
import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import * as v from "valibot";
import type { Host } from "./namespaces.ts";

const Question = v.object({
  protocol: v.picklist(["tcp", "udp", "icmp"]),
  address: v.string(),
  port: v.number(),
});
export type Question = v.InferOutput<typeof Question>;

export type Prober = Disposable & {
  /** Which answered within the time, in the order of the questions. */
  ask(questions: readonly Question[]): Promise<boolean[]>;
};

/** How long an answer may take. It is longer than a handshake through a lighthouse takes on a busy machine. */
const answerMs = 800;

export function startProber(host: Host): Prober {
  const argv = [process.execPath, join(import.meta.dir, "prober.ts")];
  const child = Bun.spawn(host.inside(argv), { stdin: "pipe", stdout: "pipe", stderr: "inherit" });
  const lines = createInterface({ input: Readable.from(child.stdout) })[Symbol.asyncIterator]();
  return {
    async ask(questions) {
      void child.stdin.write(`${JSON.stringify(questions)}\n`);
      await child.stdin.flush();
      return v.parse(v.array(v.boolean()), JSON.parse(String((await lines.next()).value)));
    },
    [Symbol.dispose]: () => child.kill(),
  };
}

function tcp({ address, port }: Question): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const socket = createConnection(port, address, () => socket.write("hello"));
  socket.on("data", () => resolve(true)).on("error", () => resolve(false));
  return within(promise, () => socket.destroy());
}

function udp({ address, port }: Question): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const socket = createSocket("udp4");
  socket.on("message", () => resolve(true)).on("error", () => undefined);
  const send = () => socket.send("hello", port, address, () => undefined);
  send();
  const timer = setInterval(send, 150);
  return within(promise, () => {
    clearInterval(timer);
    socket.close();
  });
}

async function icmp({ address }: Question): Promise<boolean> {
  const argv = ["ping", "-n", "-q", "-c", "4", "-i", "0.2", "-w", "1", address];
  const child = Bun.spawn(argv, { stdio: ["ignore", "pipe", "ignore"] });
  return !/ 0 received/.test(await new Response(child.stdout).text());
}

async function within(answered: Promise<boolean>, end: () => void): Promise<boolean> {
  const isReached = await Promise.race([answered, Bun.sleep(answerMs).then(() => false)]);
  end();
  return isReached;
}

if (import.meta.main) {
  const ways = { tcp, udp, icmp };
  for await (const line of createInterface({ input: process.stdin })) {
    const questions = v.parse(v.array(Question), JSON.parse(line));
    const answers = await Promise.all(questions.map((each) => ways[each.protocol](each)));
    process.stdout.write(`${JSON.stringify(answers)}\n`);
  }
}
