// `agent overlay update` with a running overlay: it restarts once with the new engine. An engine that passes all tests
// but fails when it runs is replaced by the previous one, and the tunnel works.

import { expect, test } from "bun:test";
import { copyFileSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { buildAgent, startControlPlane } from "../support/agent.ts";
import { bridgePort } from "../support/bridge.ts";
import {
  command,
  placesBelow,
  registerDesktop,
  startDaemon,
  statusOf,
  untilStatus,
} from "../support/daemon.ts";
import { inCi } from "../support/debian.ts";
import { asRoot, engines, missing } from "../support/engines.ts";
import { makeLan, startPing } from "../support/namespaces.ts";
import { makeOrganization, registerNode, startEngine } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();
const [older, newer] = engines;
if (inCi && missing !== undefined) throw new Error(missing);

asRoot("overlay update", () => {
  test.skipIf(older === undefined || newer === undefined)(
    "starts the new engine, or restores the previous one",
    async () => {
      if (older === undefined || newer === undefined) return;
      using directory = temporaryDirectory();
      using stack = new DisposableStack();
      const lan = stack.use(makeLan(["lighthouse", "desk"]));
      const host = lan.host("desk");
      await using plane = await startControlPlane(join(directory.path, "server"));
      const acme = await makeOrganization(plane);
      const token = await acme.makeToken(["--uses", "2", "--lighthouse"]);
      const there = ["--is-lighthouse", "--public-ip", lan.host("lighthouse").address];
      const lighthouse = await registerNode(
        acme,
        join(directory.path, "lighthouse"),
        "lighthouse",
        token,
        there,
      );
      const overlay = join(directory.path, "overlay");
      copyFileSync(older.nebula, overlay);
      const places = placesBelow(join(directory.path, "desk"), overlay);
      await registerDesktop(acme, places, token, "desk");
      stack.use(await startEngine(lan.host("lighthouse"), newer.nebula, lighthouse.directory));
      stack.use(await bridgePort(host, directory.path, Number(new URL(plane.url).port)));
      const daemon = await startDaemon(host, places);
      stack.defer(() => daemon.signal("SIGTERM"));
      const first = await untilStatus(places, "acme", ({ state }) => state === "running");
      const ping = startPing(host, lighthouse.ip_address);
      stack.defer(() => void ping.stop());
      await ping.reply(20_000);

      const update = async (...flags: string[]) => {
        const { status, stdout, stderr } = await command(places, ["overlay", "update", ...flags, "--json"]);
        return { status, json: JSON.parse(stdout) as unknown, stderr };
      };
      const running = (version: string) => {
        const log = readFileSync(join(places.stateDb, "../logs/acme.log"), "utf8");
        return log
          .split("\n")
          .findLast((line) => line.includes("Nebula interface is active"))
          ?.includes(version);
      };
      expect(running(older.version)).toBe(true);
      expect(await update("--file", newer.nebula)).toMatchObject({
        status: 0,
        json: { from: older.version, to: newer.version, changed: true },
      });
      const second = await untilStatus(places, "acme", ({ state }) => state === "running");
      expect(second.pid).not.toBe(first.pid ?? 0);
      expect(running(newer.version)).toBe(true);
      await ping.reply(20_000);
      // Without a newer engine there is no restart.
      expect(await update("--file", newer.nebula)).toMatchObject({ status: 0, json: { changed: false } });
      expect((await statusOf(places, "acme")).pid).toBe(second.pid ?? 0);

      const bad = join(directory.path, "bad");
      const words = `[ "$1" = -version ] && echo Version: 99.0.0 && exit 0\n[ "$1" = -test ] && exit 0`;
      writeFileSync(bad, `#!/bin/sh\n${words}\nexit 1\n`, { mode: 0o755 });
      expect(await update("--file", bad)).toMatchObject({
        status: 1,
        json: {
          error: {
            code: "engine_failed",
            message: expect.stringContaining("acme does not run with 99.0.0"),
            hint: "The previous engine is restored and running.",
          },
        },
      });
      expect(readFileSync(overlay).equals(readFileSync(newer.nebula))).toBe(true);
      await untilStatus(places, "acme", ({ state }) => state === "running", 30_000);
      expect(running(newer.version)).toBe(true);
      await ping.reply(20_000);
      rmSync(bad);

      expect(await update("--file", older.nebula, "--version", older.version)).toMatchObject({ status: 0 });
      await untilStatus(places, "acme", ({ state }) => state === "running", 30_000);
      expect(running(older.version)).toBe(true);
      await ping.reply(20_000);
    },
    120_000,
  );
});
