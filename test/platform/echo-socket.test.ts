import { expect, test } from "bun:test";
import { openEchoSocket, type EchoReply } from "../../src/platform/echo-socket.ts";
import { asRoot } from "../support/engines.ts";

asRoot("an echo socket", () => {
  for (const address of ["127.0.0.1", "::1"]) {
    test(`gets the answer of ${address}, with sequence number and payload`, async () => {
      const reply = Promise.withResolvers<EchoReply>();
      const socket = await openEchoSocket(address, reply.resolve);
      if (typeof socket === "string") throw new Error(socket);
      const keepAlive = setInterval(() => {}, 1000);
      expect(socket.send(address, 0xabcd, new Uint8Array([1, 2, 3, 4]))).toBe(true);
      const { sequence, payload } = await reply.promise;
      expect([sequence, ...payload]).toEqual([0xabcd, 1, 2, 3, 4]);
      clearInterval(keepAlive);
      socket.close();
      expect(socket.send(address, 1, new Uint8Array())).toBe(false);
    });
  }

  test("does not open from an address that this machine does not have", async () => {
    expect(await openEchoSocket("192.0.2.7", () => {})).toBe("absent");
  });

  test("does not send to an address of the other family", async () => {
    const socket = await openEchoSocket("127.0.0.1", () => {});
    if (typeof socket === "string") throw new Error(socket);
    expect(socket.send("::1", 1, new Uint8Array())).toBe(false);
    socket.close();
  });
});
