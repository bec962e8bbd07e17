// In server mode systemd starts each engine alone, so the commands refuse an organization beside a running one whose network
// overlaps. The engine and the control plane are real.

import { expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { startEnrolled } from "../../src/cli/join/registration.ts";
import type { Context } from "../../src/cli/command.ts";
import { findEngineProcess } from "../../src/node/engine/engine-process.ts";
import type { Organization } from "../../src/node/files/organizations.ts";
import { isStopped, markStopped, unmarkStopped } from "../../src/node/files/stopped-by-user.ts";
import { engine, hasEngine, makeNodeWorld, type NodeWorld } from "../support/node.ts";
import { rejection } from "../pki/thrown.ts";
import { until } from "../support/until.ts";

async function registerBeta(world: NodeWorld): Promise<Organization> {
  const { server, api } = world;
  await server.join(await server.organization("beta", "10.77.0.0/16"), "owner@company.example", "owner");
  const made = await api("POST", "/api/org/beta/registration_tokens/", {});
  const { token } = v.parse(v.object({ token: v.string() }), made);
  return world.register({ slug: "beta", name: "beta", credential: { registrationToken: token } });
}

/** The engine of an organization, without a tun device. Its files say afterwards what they said before. */
async function runEngine({ directory }: Organization) {
  const path = join(directory, "config.yml");
  const log = join(directory, "engine.log");
  const config = readFileSync(path, "utf8");
  writeFileSync(path, config.replace("tun:\n", "tun:\n  disabled: true\n"));
  const child = Bun.spawn([engine, "-config", path], { stdout: Bun.file(log), stderr: "ignore" });
  await until(() => readFileSync(log, "utf8").includes("interface is active"));
  expect(findEngineProcess(path)).toBeDefined();
  writeFileSync(path, config);
  return {
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await child.exited;
    },
  };
}

test.if(hasEngine)(
  "an organization in server mode does not start beside one with the same network",
  async () => {
    await using world = await makeNodeWorld();
    const acme = await world.register();
    const beta = await registerBeta(world);
    markStopped(beta.directory);
    const why = "beta cannot run beside acme: their networks 10.77.0.0/16 and 10.77.0.0/16 overlap";
    {
      await using _ = await runEngine(acme);
      for (const words of [
        ["start", "beta"],
        ["restart", "beta"],
        ["start", "beta", "--dry-run"],
        ["up", "beta"],
      ]) {
        const { status, stderr } = await world.agent(words);
        expect([words, status]).toEqual([words, 1]);
        expect(stderr).toContain(why);
        expect(stderr).toContain("`agent stop acme --config-root ");
      }
      // Refused before the desired state changes: neither a reboot nor a restore starts it.
      expect(isStopped(beta.directory)).toBe(true);
      expect((await world.agent(["stop", "beta"])).stderr).not.toContain("cannot run beside");
      expect((await world.agent(["start", "acme", "--dry-run"])).stderr).not.toContain("cannot run beside");
    }
    expect((await world.agent(["start", "beta"])).stderr).not.toContain("cannot run beside");
  },
);

test.if(hasEngine)("a registration beside such an organization stays valid, and is not started", async () => {
  await using world = await makeNodeWorld();
  const acme = await world.register();
  const beta = await registerBeta(world);
  await using _ = await runEngine(acme);
  const settings = {
    ...world.settings,
    overlayBinary: engine,
    stateDb: "",
    socketPath: "",
    pipeName: "",
    autostart: false,
  };
  const system = { ...world.system, isRoot: false };
  const context = { settings, system, log: world.log } as unknown as Context;
  const start = (slug: string) => startEnrolled({ slug, mode: "server" }, context);
  const error = await rejection(start("beta"));
  expect(error.message).toStartWith(
    "Registered with beta, but the overlay does not run yet: beta cannot run beside",
  );
  expect(error.code).toBe("collision");
  expect(isStopped(beta.directory)).toBe(true);
  // One that runs already is not stopped by a second registration.
  unmarkStopped(beta.directory);
  {
    await using _ = await runEngine(beta);
    for (const { slug, directory } of [acme, beta]) {
      await start(slug);
      expect([slug, isStopped(directory)]).toEqual([slug, false]);
    }
  }
});
