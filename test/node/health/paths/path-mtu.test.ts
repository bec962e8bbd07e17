import { expect, test } from "bun:test";
import type { EchoReply, OpenEcho } from "../../../../src/platform/network/echo-socket.ts";
import { largestThrough } from "../../../../src/node/health/paths/path-mtu.ts";

/** A path that passes packets up to a size, and loses the first of them if told to. */
function pathOf(most: number, losesFirst = false): OpenEcho {
  let sent = 0;
  return async (_, onReply: (reply: EchoReply) => void) => ({
    send(_to, sequence, payload) {
      sent += 1;
      if (payload.length + 28 <= most && !(losesFirst && sent === 1)) onReply({ sequence, payload });
      return true;
    },
    close() {},
  });
}

const system = { sleep: async () => undefined };
const through = (open: OpenEcho) => largestThrough({ from: "10.77.0.2", to: "10.77.0.1" }, { open, system });

test("the largest packet is found to within eight bytes, and one lost packet does not count", async () => {
  expect(await through(pathOf(1500))).toEqual({ bytes: 1300, isFull: true });
  expect(await through(pathOf(1500, true))).toEqual({ bytes: 1300, isFull: true });
  const small = await through(pathOf(1200));
  if (typeof small === "string") throw new Error(small);
  expect(small.isFull).toBe(false);
  expect(small.bytes).toBeWithin(1192, 1201);
});

test("a peer without answers and a process without permission are told apart", async () => {
  expect(await through(pathOf(0))).toBe("silent");
  expect(await through(async () => "denied")).toBe("denied");
  expect(await through(async () => "absent")).toBe("absent");
});
