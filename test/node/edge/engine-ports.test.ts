// The UDP ports of the engine, by which a TCP way tells its packets from those of other programs.

import { expect, test } from "bun:test";
import { watchEnginePorts } from "../../../src/node/edge/tcp-fallback.ts";

test("a service manager that does not answer leaves the ports unknown, and does not end the process", async () => {
  const unhandled: unknown[] = [];
  const onUnhandled = (error: unknown) => void unhandled.push(error);
  process.on("unhandledRejection", onUnhandled);
  let asked = 0;
  const portsNow = watchEnginePorts({
    process: async () => {
      asked += 1;
      throw new Error("Cannot run /usr/bin/systemctl: too many open files");
    },
  });
  expect(portsNow()).toEqual([]);
  await Bun.sleep(1);
  process.off("unhandledRejection", onUnhandled);
  expect(unhandled).toEqual([]);
  expect(asked).toBe(2);
});
