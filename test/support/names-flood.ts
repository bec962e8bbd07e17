// `bun test/support/names-flood.ts HOST PORT PACKETS`: sends queries, most of them damaged, and connections with garbage.
// Prints how many answers came.

import { encode } from "dns-packet";
import { connect } from "node:net";
import { makeRandom } from "./random.ts";

const together = 50;
const pauseEvery = 1000;

async function flood(hostname: string, port: number, packets: number): Promise<void> {
  const next = makeRandom(23);
  const random = (below: number) => Math.floor(next() * below);
  const question = (type: "A" | "PTR", name: string) =>
    encode({ type: "query", id: random(65_536), questions: [{ type, name }] });
  const seeds = [
    question("A", "beta.acme.internal"),
    question("PTR", "2.0.77.10.in-addr.arpa"),
    Buffer.alloc(9000),
  ];
  let answers = 0;
  let bytes = 0;
  const socket = await Bun.udpSocket({
    connect: { hostname, port },
    socket: { data: () => void answers++, error: () => undefined },
  });
  for (let sent = 0; sent < packets; sent += together) {
    const batch = Array.from({ length: together }, (_, at) => {
      const packet = Buffer.from(seeds[(sent + at) % seeds.length] ?? []);
      // Each fourth one stays whole: where nothing at all may be answered, this would be.
      if (at % 4 > 0)
        for (let changes = random(6); changes > 0; changes--) packet[random(packet.length)] = random(256);
      return packet.subarray(0, at % 8 === 1 ? random(packet.length) : packet.length);
    });
    socket.sendMany(batch);
    if (sent % pauseEvery > 0) continue;
    const stream = connect(port, hostname);
    stream.on("error", () => undefined);
    stream.on("data", (part: Buffer) => void (bytes += part.length));
    stream.end(
      Buffer.concat([Buffer.from([0, 36]), seeds[0] ?? Buffer.alloc(0), Buffer.from([255, 255, 1])]),
    );
    await Bun.sleep(1);
  }
  await Bun.sleep(500);
  process.stdout.write(JSON.stringify({ answers, bytes }));
  process.exit(0);
}

const [hostname = "", port = "", packets = ""] = process.argv.slice(2);
await flood(hostname, Number(port), Number(packets));
