import { expect, test } from "bun:test";
import { join } from "node:path";
import { openEchoSocket, type EchoReply } from "../../../src/platform/network/echo-socket.ts";
import { asRoot } from "../../support/engines.ts";

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

  for (const [kind, groups] of [
    ["ping", "0 0"],
    ["raw", "1 0"],
  ])
    test(`gets no answer to another ${kind} socket with the same sequence number`, async () => {
      const script = `
        const { openEchoSocket } = await import(${JSON.stringify(join(import.meta.dir, "../../../src/platform/network/echo-socket.ts"))});
        const got = [[], []];
        const sockets = await Promise.all(got.map((each) => openEchoSocket("127.0.0.1", ({ sequence }) => each.push(sequence))));
        sockets[0].send("127.0.0.1", 7, new Uint8Array(8));
        while (got[0].length === 0) await Bun.sleep(5);
        sockets[1].send("127.0.0.1", 8, new Uint8Array(8));
        while (got[1].length === 0) await Bun.sleep(5);
        console.log(JSON.stringify(got));
        process.exit();`;
      const lines = `ip link set lo up && echo ${groups} >/proc/sys/net/ipv4/ping_group_range && exec "$@"`;
      const argv = ["unshare", "--net", "sh", "-ec", lines, "sh", process.execPath, "-e", script];
      const child = Bun.spawn(argv, { stdout: "pipe", timeout: 20_000 });
      expect(JSON.parse(await new Response(child.stdout).text())).toEqual([[7], [8]]);
    });

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
