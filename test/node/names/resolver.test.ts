// The resolver's sockets: both transports, limits of connections, and an address that another program uses.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { decode, encode, streamEncode, type Packet } from "dns-packet";
import { createSocket } from "node:dgram";
import { connect, type Socket } from "node:net";
import { messageOf } from "../../../src/base/errors.ts";
import { openNames, packNames } from "../../../src/node/names/packed-names.ts";
import { startResolver, type Resolver } from "../../../src/node/names/resolver.ts";
import { indexNames } from "../../../src/node/names/name-index.ts";

const host = "127.0.0.9";
let port = 0;
let resolver: Resolver;
const name = "beta.acme.internal";
const indexWith = (address: string) =>
  indexNames(
    openNames(packNames([{ names: [name], addresses: [address], slug: "acme", node: "beta", kind: "node" }])),
    [{ domains: ["acme.internal"] }],
  );
const question: Packet = { type: "query", id: 5, questions: [{ type: "A", name }] };
const answerIn = (bytes: Buffer) => decode(bytes).answers?.map((each) => ("data" in each ? each.data : ""));

function overUdp(packets: readonly Buffer[]): Promise<Buffer> {
  const socket = createSocket("udp4");
  const { promise, resolve } = Promise.withResolvers<Buffer>();
  socket.on("message", resolve);
  for (const each of packets) socket.send(each, port, host);
  return promise.finally(() => socket.close());
}

/** Everything that the resolver sends until it closes the connection, or until `bytes` have arrived. */
async function overTcp(message: Buffer, bytes: number): Promise<Buffer> {
  const socket = connect(port, host);
  const parts: Buffer[] = [];
  const { promise, resolve } = Promise.withResolvers<void>();
  socket.on("error", () => resolve());
  socket.on("close", () => resolve());
  socket.on("data", (part: Buffer) => {
    parts.push(part);
    if (Buffer.concat(parts).length >= bytes) resolve();
  });
  socket.write(message);
  await promise;
  socket.destroy();
  return Buffer.concat(parts);
}

describe.skipIf(process.platform !== "linux")("the resolver", () => {
  beforeEach(async () => {
    port = 20_000 + Math.floor(Math.random() * 10_000);
    resolver = await startResolver(indexWith("10.77.0.2"), { host, port });
  });
  afterEach(() => resolver.close());

  test("answers over UDP, also after packets that it drops, and from a new index at once", async () => {
    const query = encode(question);
    expect(answerIn(await overUdp([Buffer.from("no packet"), Buffer.alloc(60_000), query]))).toEqual([]);
    expect(answerIn(await overUdp([query]))).toEqual(["10.77.0.2"]);
    resolver.use(indexWith("10.77.0.3"));
    expect(answerIn(await overUdp([query]))).toEqual(["10.77.0.3"]);
  });

  test("answers several queries of one TCP connection, in any pieces", async () => {
    const one = streamEncode(question);
    const reply = await overTcp(Buffer.concat([one, one, one]), 1);
    const size = 2 + reply.readUInt16BE(0);
    expect(answerIn(reply.subarray(2, size))).toEqual(["10.77.0.2"]);
    expect((await overTcp(Buffer.concat([one, one, one]), 3 * size)).length).toBe(3 * size);
    const socket = connect(port, host);
    const first = new Promise<Buffer>((resolve) => socket.once("data", resolve));
    for (const byte of one) {
      socket.write(Buffer.from([byte]));
      await Bun.sleep(1);
    }
    expect(answerIn((await first).subarray(2))).toEqual(["10.77.0.2"]);
    socket.destroy();
  });

  test("ends a TCP connection with a packet that is none, or is too long", async () => {
    const answer = Number.MAX_SAFE_INTEGER;
    expect(await overTcp(Buffer.from([0, 3, 1, 2, 3]), answer)).toHaveLength(0);
    expect(await overTcp(Buffer.concat([Buffer.from([255, 255]), Buffer.alloc(5000)]), answer)).toHaveLength(
      0,
    );
  });

  test("keeps few TCP connections, and a new one is always answered", async () => {
    const idle: Socket[] = [];
    const ended = new Set<Socket>();
    for (let count = 0; count < 100; count++) {
      const socket = connect(port, host);
      socket.on("error", () => undefined);
      socket.on("close", () => ended.add(socket));
      idle.push(socket);
    }
    const reply = await overTcp(streamEncode(question), 1);
    expect(answerIn(reply.subarray(2))).toEqual(["10.77.0.2"]);
    while (ended.size < 68) await Bun.sleep(5);
    for (const each of idle) each.destroy();
  });

  test("says which address another program uses", async () => {
    const refusal = () => startResolver(indexWith("10.77.0.9"), { host, port }).catch(messageOf);
    expect(await refusal()).toContain(`${host}:${port}: another program uses this port`);
    resolver.close();
    const taken = Bun.listen({ hostname: host, port, socket: { data() {} } });
    expect(await refusal()).toContain("another program");
    taken.stop(true);
    resolver = await startResolver(indexWith("10.77.0.2"), { host, port });
  });
});
