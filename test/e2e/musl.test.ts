// The executable for Linux with musl, in a tree as a bare Alpine has it: the installer chooses it, a control plane runs
// there, and a node carries traffic.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { copyFileSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { build, hostTarget } from "../../build.ts";
import { buildAgent, runAgent, startControlPlane, type ControlPlane } from "../support/agent.ts";
import { bridgePort } from "../support/bridge.ts";
import { placesBelow, registerDesktop, startDaemon, untilStatus } from "../support/daemon.ts";
import { overlayTree } from "../support/debian-tree.ts";
import { enginePrograms, installMissing, runSync } from "../support/debian.ts";
import { asRoot, engineNamed } from "../support/engines.ts";
import { muslPrograms, muslTree } from "../support/musl-tree.ts";
import { makeLan, startPing, type Lan } from "../support/namespaces.ts";
import { makeOrganization, registerNode, startEngine, type Organization } from "../support/overlay.ts";
import { makeRelease, releaseKey } from "../support/releases.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const target = "bun-linux-x64-musl";

asRoot("linux with musl", () => {
  const stack = new DisposableStack();
  const directory = stack.use(temporaryDirectory()).path;
  const at = (...names: string[]) => join(directory, ...names);
  let root: string;
  let lan: Lan;
  let plane: ControlPlane;
  let acme: Organization;
  const inTree = (argv: readonly string[]) => ["chroot", root, ...argv];
  /** Replaces this machine's executable. */
  const inside = ([, ...args]: readonly string[]) => inTree(["/usr/local/bin/agent", ...args]);

  beforeAll(async () => {
    const missing = installMissing([...muslPrograms, ...enginePrograms]);
    if (missing !== undefined) throw new Error(missing);
    buildAgent();
    await build(target, at("agent"), { version: "0.2.0", releaseKeys: [releaseKey.text], sourceMaps: false });
    const executables = { [target]: readFileSync(at("agent")), [hostTarget()]: Buffer.from("#!/bin/sh\n") };
    await makeRelease(at("release"), { version: "0.2.0", executables }, releaseKey);
    root = stack.use(overlayTree(muslTree())).root;
    for (const shared of ["/dev", "/proc", "/sys", directory]) {
      mkdirSync(join(root, shared), { recursive: true });
      runSync(["mount", "--bind", shared, join(root, shared)]);
      stack.defer(() => void runSync(["umount", "--lazy", join(root, shared)]));
    }
    // Without a library, so that it runs with any C library.
    copyFileSync(engineNamed("1.12").nebula, join(root, "usr/bin/nebula"));
    lan = stack.use(makeLan(["lighthouse", "alpine"]));
  }, 300_000);
  afterAll(async () => {
    await plane?.stop();
    stack.dispose();
  });

  test("the installer chooses the executable for musl, and verifies it", async () => {
    runSync(inTree(["/bin/sh", at("release/install"), "--no-service"]));
    expect(runSync(inside(["agent", "version", "--no-check"]))).toStartWith(`agent 0.2.0 (${target}`);
  });

  test("a control plane runs there", async () => {
    plane = await startControlPlane(at("plane"), [], 0, inside);
    acme = await makeOrganization(plane);
    const { status, stdout } = await runAgent(["admin", "org", "list", "--data-dir", at("plane")], {
      inside,
    });
    expect([status, stdout]).toEqual([0, expect.stringContaining("acme")]);
  });

  test("a node there registers, its daemon starts the engine, and packets pass", async () => {
    const { nebula } = engineNamed("1.12");
    const token = await acme.makeToken(["--uses", "2", "--lighthouse"]);
    const there = [
      "--is-lighthouse",
      "--public-ip",
      lan.host("lighthouse").address,
      "--overlay-binary",
      nebula,
    ];
    const lighthouse = await registerNode(acme, at("lighthouse"), "lighthouse", token, there);
    stack.use(await startEngine(lan.host("lighthouse"), nebula, lighthouse.directory));

    const places = placesBelow(at("alpine"), "/usr/bin/nebula");
    await registerDesktop(acme, places, token, "alpine", [], inside);
    const host = lan.host("alpine");
    stack.use(await bridgePort(host, directory, Number(new URL(plane.url).port)));
    const daemon = await startDaemon({ inside: (argv) => host.inside(inside(argv)) }, places);
    stack.defer(() => daemon.signal("SIGTERM"));
    await untilStatus(places, "acme", ({ state }) => state === "running");
    const ping = startPing(host, lighthouse.ip_address);
    stack.defer(() => void ping.stop());
    await ping.reply(20_000);
    const shown = await runAgent(["status", ...places.flags], { inside });
    expect([shown.status, shown.stdout]).toEqual([0, expect.stringContaining("acme")]);
    // The kernel's credentials of a client, by the C library.
    const stopped = await runAgent(["stop", "acme", ...places.flags], { inside });
    expect([stopped.status, stopped.stderr]).toEqual([0, ""]);
    daemon.signal("SIGTERM");
    expect(await daemon.exited).toBe(0);
  }, 120_000);
});
