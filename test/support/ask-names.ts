// `bun test/support/ask-names.ts SERVER udp|tcp NAME…`: asks a name server at port 53 for the address of each name. Prints
// a list with the answers, such as "NOERROR 10.77.0.2"; "silence" without one.

import { decode, encode, streamEncode } from "dns-packet";
import { connect } from "node:net";

const waitMs = 3000;

function shown(packet: Buffer): string {
  const { answers = [], rcode } = { rcode: "", ...decode(packet) };
  return [rcode, ...answers.map((each) => (each.type === "A" ? each.data : ""))].join(" ");
}

async function ask(hostname: string, transport: string | undefined, name: string): Promise<string> {
  const query = { type: "query" as const, id: 23, questions: [{ type: "A" as const, name }] };
  const { promise, resolve } = Promise.withResolvers<string>();
  const late = setTimeout(resolve, waitMs, "silence");
  const end = () => resolve("silence");
  if (transport === "tcp") {
    const socket = connect(53, hostname).on("error", end).on("close", end);
    socket.on("data", (bytes: Buffer) => resolve(shown(bytes.subarray(2))));
    socket.write(streamEncode(query));
  } else {
    const data = (_socket: unknown, packet: Buffer) => resolve(shown(packet));
    const socket = await Bun.udpSocket({
      connect: { hostname, port: 53 },
      socket: { data, error: () => undefined },
    });
    socket.send(encode(query));
  }
  return promise.finally(() => clearTimeout(late));
}

const [hostname = "", transport, ...names] = process.argv.slice(2);
const answers: string[] = [];
for (const name of names) answers.push(await ask(hostname, transport, name));
process.stdout.write(JSON.stringify(answers));
process.exit(0);
