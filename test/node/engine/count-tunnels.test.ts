// The URL of an engine's metrics, and the number of peers in them.

import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { countTunnels, metricsUrl } from "../../../src/node/engine/count-tunnels.ts";
import { realSystem } from "../../../src/base/system.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const system = realSystem();

const configurations: [string, string | undefined][] = [
  ["stats: {type: prometheus, listen: '127.0.0.1:9100', path: /metrics}", "http://127.0.0.1:9100/metrics"],
  ["stats: {type: prometheus, listen: ':9100', path: /m}", "http://127.0.0.1:9100/m"],
  ["stats: {type: prometheus, listen: '[::]:9100', path: /m}", "http://127.0.0.1:9100/m"],
  ["stats: {type: prometheus, listen: '[::1]:9100', path: /m}", "http://[::1]:9100/m"],
  ["stats: {type: graphite, host: '127.0.0.1:9100'}", undefined],
  ["stats: {type: prometheus, listen: 'user@elsewhere/x:1', path: /m}", undefined],
  ["tun: {dev: x}", undefined],
  ["tun: [", undefined],
];
for (const [text, url] of configurations) {
  test(`${text}: ${url ?? "no metrics"}`, () => {
    using directory = temporaryDirectory();
    writeFileSync(join(directory.path, "config.yml"), text);
    expect(metricsUrl(directory.path)).toBe(url);
  });
}

test("the count is found under any prefix; without a valid answer it is undefined", async () => {
  const texts: Record<string, string> = {
    "/plain": "# TYPE hostmap_main_hosts gauge\nhostmap_pending_hosts 9\nhostmap_main_hosts 3\n",
    "/named": "acme_nebula_hostmap_main_hosts 12\n",
    "/other": "<html>hello</html>",
  };
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch({ url }) {
      const text = texts[new URL(url).pathname];
      if (text === undefined) await Bun.sleep(3000);
      return new Response(text);
    },
  });
  const at = (path: string) => countTunnels(`http://127.0.0.1:${server.port}${path}`, system);
  expect(await Promise.all(["/plain", "/named", "/other", "/hangs"].map(at))).toEqual([
    3,
    12,
    undefined,
    undefined,
  ]);
  await server.stop(true);
  expect(await at("/plain")).toBeUndefined();
});
