import { expect, test } from "bun:test";
import { createSocket } from "node:dgram";
import { askEngine } from "../../../src/node/engine/ask-engine.ts";

async function listen(answer: (packet: Buffer) => Buffer | undefined) {
  const socket = createSocket("udp4");
  socket.on("message", (packet, { port, address }) => {
    const reply = answer(packet);
    if (reply !== undefined) socket.send(reply, port, address);
  });
  await new Promise<void>((resolve) => socket.bind(0, "127.0.0.1", resolve));
  return { port: socket.address().port, [Symbol.dispose]: () => void socket.close() };
}

test("an engine's answer to a packet of an unknown tunnel counts, other datagrams do not", async () => {
  using engine = await listen((packet) => Buffer.concat([Buffer.from([0x12]), packet.subarray(1)]));
  expect(await askEngine("127.0.0.1", engine.port)).toMatchObject({ is: "answers" });
  using other = await listen(() => Buffer.from("hello"));
  expect(await askEngine("127.0.0.1", other.port)).toEqual({ is: "silent" });
});

test("a port where nothing listens is closed", async () => {
  let port = 0;
  {
    using gone = await listen(() => undefined);
    ({ port } = gone);
  }
  expect(await askEngine("127.0.0.1", port)).toEqual({ is: "closed" });
});
