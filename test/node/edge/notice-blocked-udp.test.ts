// Whether UDP is blocked: a node asks by UDP only while the health of its peers does not tell. Real sockets; time passes as fast as
// they answer.

import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { sendOrLose } from "../../../src/base/datagrams/frames.ts";
import { makeLog } from "../../../src/base/log.ts";
import { realSystem } from "../../../src/base/system.ts";
import { isEngineAnswer } from "../../../src/node/engine/engine-question.ts";
import type { EdgeContext } from "../../../src/node/edge/part.ts";
import { noticeBlockedUdp } from "../../../src/node/edge/notice-blocked-udp.ts";
import type { NodeConfig } from "../../../src/protocol/organization-files.ts";
import { temporaryDirectory } from "../../support/temporary.ts";
import { until } from "../../support/until.ts";

/** Two lighthouses that answer, and a node that knows them. `asked`: how many questions each got. */
async function makeScene(heardAt: (now: number) => number | undefined) {
  const stack = new AsyncDisposableStack();
  const { path: directory } = stack.use(temporaryDirectory());
  const asked = [0, 0];
  const ports = await Promise.all(
    asked.map(async (_, at) => {
      const socket = await Bun.udpSocket({
        hostname: "127.0.0.1",
        socket: {
          data(own, datagram, port, address) {
            asked[at] = (asked[at] ?? 0) + 1;
            const answer = Uint8Array.from(datagram);
            answer[0] = 0x12;
            expect(isEngineAnswer(answer)).toBe(true);
            sendOrLose(() => own.send(answer, port, address));
          },
        },
      });
      stack.defer(() => socket.close());
      return socket.port;
    }),
  );
  const hubs = ports.map((port, at) => [`10.77.0.${at + 1}`, port] as const);
  writeFileSync(
    join(directory, "config.yml"),
    JSON.stringify({
      static_host_map: Object.fromEntries(hubs.map(([ip, port]) => [ip, [`127.0.0.1:${port}`]])),
    }),
  );
  const tcp = Object.fromEntries(hubs.map(([ip, port]) => [ip, { at: "127.0.0.1:9", port }]));
  const config: NodeConfig = {
    schema: 1,
    node_id: 3,
    name: "a",
    org_slug: "acme",
    ip_address: "10.77.0.3",
    network: "10.77.0.0/16",
    mode: "desktop",
    is_lighthouse: false,
    is_relay: false,
    config_version: 1,
    registered_at: "2026-11-01T00:00:00Z",
    tcp,
  };
  const scene = { now: 0, heardAt };
  const context: EdgeContext = {
    slug: "acme",
    directory,
    open: () => ({ slug: "acme", directory, config }),
    control: {
      process: async () => undefined,
      reload: async () => undefined,
      restart: async () => undefined,
    },
    command: "test",
    log: makeLog({ verbose: false, write: () => undefined, now: () => 0, stamped: false }),
    heardAt: () => scene.heardAt(scene.now),
    system: {
      ...realSystem(),
      monotonic: () => scene.now,
      async sleep(ms) {
        scene.now += ms;
        await Bun.sleep(1);
      },
    },
  };
  const end = new AbortController();
  const running = noticeBlockedUdp(context, end.signal);
  stack.defer(async () => {
    end.abort(new Error("The test is over"));
    await running;
  });
  return { scene, asked, stack };
}

test("while health hears a lighthouse, nothing is asked; when it hears none, all are", async () => {
  // Probed every 8 seconds, and answered at once.
  const { scene, asked, stack } = await makeScene((now) => now - (now % 8000));
  await using _ = stack;
  await until(() => scene.now > 600_000);
  expect(asked).toEqual([0, 0]);
  const last = scene.now;
  scene.heardAt = () => last;
  await until(() => asked.every((each) => each > 0));
});

test("where health hears none, the lighthouse that answered last is asked, ten times a minute", async () => {
  const { scene, asked, stack } = await makeScene(() => undefined);
  await using _ = stack;
  await until(() => scene.now > 61_000, { ms: 20_000 });
  const [first = 0, second = 0] = asked.toSorted((a, b) => a - b);
  expect(first).toBe(1);
  expect(second).toBeLessThanOrEqual(scene.now / 6000 + 2);
});
