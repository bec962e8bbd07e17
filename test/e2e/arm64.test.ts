// The executable for Linux on arm64, in an emulator with Debian's C library for that processor: node, daemon and control
// plane.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { build } from "../../build.ts";
import packageJson from "../../package.json" with { type: "json" };
import { makePackages } from "../../packaging/packages.ts";
import { runAgent, startControlPlane, type ControlPlane } from "../support/agent.ts";
import { placesBelow, startDaemon } from "../support/daemon.ts";
import { cacheDirectory } from "../support/cache.ts";
import { asRoot } from "../support/engines.ts";
import { installMissing, runSync } from "../support/debian.ts";
import { unpackPackage } from "../support/packages.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const libraries = join(cacheDirectory, "arm64");
const password = "correct horse battery";
/** Each command takes seconds in the emulator, and several times as long beside other tests. */
const limitMs = 300_000;

asRoot("linux on arm64", () => {
  const directory = temporaryDirectory();
  const program = join(directory.path, "agent");
  const places = placesBelow(join(directory.path, "node"), "/usr/bin/nebula");
  const data = join(directory.path, "data");
  /** Replaces this machine's executable. In the emulator, Bun's later compilers cost more than they save. */
  const inside = ([, ...args]: readonly string[]) => [
    "env",
    "BUN_JSC_useDFGJIT=0",
    "qemu-aarch64",
    "-L",
    libraries,
    program,
    ...args,
  ];
  let plane: ControlPlane;

  /** Standard output of a command that must succeed. */
  const run = async (args: readonly string[], input = ""): Promise<string> => {
    const { status, stdout, stderr } = await runAgent(args, { input, inside });
    if (status !== 0) throw new Error(`agent ${args.join(" ")}: exit ${status}\n${stdout}${stderr}`);
    return stdout;
  };
  const admin = (args: readonly string[], input = "") => run(["admin", ...args, "--data-dir", data], input);

  beforeAll(async () => {
    const missing = installMissing(["/usr/bin/qemu-aarch64", "/usr/bin/rpm"]);
    if (missing !== undefined) throw new Error(missing);
    if (!existsSync(libraries)) unpackPackage("libc6", libraries, { architecture: "arm64" });
    await build("bun-linux-arm64", program);
  }, limitMs);
  afterAll(async () => {
    await plane?.stop();
    directory[Symbol.dispose]();
  });

  test(
    "prints its version and platform",
    async () => {
      expect(await run(["version", "--no-check"])).toStartWith(
        `agent ${packageJson.version} (bun-linux-arm64`,
      );
      expect(await run(["--help"])).toContain("register");
    },
    limitMs,
  );

  test(
    "runs a control plane",
    async () => {
      plane = await startControlPlane(data, [], 0, inside);
      expect((await fetch(`${plane.url}/healthz`)).status).toBe(200);
      await admin(["user", "create", "owner@example.org", "--password-file", "-"], password);
      await admin(["org", "create", "acme", "--network", "10.77.0.0/16", "--owner", "owner@example.org"]);
    },
    limitMs,
  );

  test(
    "registers and checks in a node, with private files",
    async () => {
      const { token } = JSON.parse(await admin(["token", "create", "acme", "--json"]));
      const target = ["--api-base", plane.url, "--org-slug", "acme", "--node-name", "arm"];
      const how = ["--registration-token-file", "-", "--mode", "desktop", "--no-start"];
      await run(["register", ...target, ...how, ...places.flags], token);
      const files = join(places.configRoot, "acme");
      expect(readdirSync(files)).toContain("host.crt");
      expect(statSync(join(files, "host.key")).mode & 0o777).toBe(0o600);
      await run(["checkin", "--org-slug", "acme", ...places.flags]);
      const nodes = JSON.parse(await admin(["node", "list", "acme", "--json"]));
      expect(JSON.stringify(nodes)).toContain('"name":"arm"');
    },
    limitMs,
  );

  test(
    "runs a daemon, which answers over its socket and stops on request",
    async () => {
      const daemon = await startDaemon({ inside }, places, ["--autostart=false"]);
      try {
        // Exit status 3: the daemon runs, but no organization.
        const { stdout } = await runAgent(["status", "--json", ...places.flags], { inside });
        expect(JSON.parse(stdout)).toMatchObject({
          daemon: { running: true },
          teams: [{ team: "acme", state: "stopped" }],
        });
        daemon.signal("SIGTERM");
        expect(await daemon.exited).toBe(0);
      } finally {
        daemon.signal("SIGKILL");
      }
    },
    limitMs,
  );

  test(
    "packages name the processor, and hold the executable that runs there",
    async () => {
      const packages = join(directory.path, "packages");
      const edition = { version: "0.1.0", timeS: 1_790_000_000, fast: true };
      const [deb = "", rpm = ""] = await makePackages(packages, program, "bun-linux-arm64", edition);
      expect(runSync(["dpkg-deb", "--field", join(packages, deb), "Architecture"]).trim()).toBe("arm64");
      expect(runSync(["rpm", "-qp", "--qf", "%{ARCH}", join(packages, rpm)]).trim()).toBe("aarch64");
      const root = join(directory.path, "root");
      runSync(["dpkg-deb", "-x", join(packages, deb), root]);
      expect(readFileSync(join(root, "usr/bin/agent")).equals(readFileSync(program))).toBe(true);
      expect(existsSync(join(root, "usr/lib/systemd/system/overlay-agent-control.service"))).toBe(true);
    },
    limitMs,
  );

  test(
    "the control plane stops cleanly",
    async () => {
      expect(await plane.stop()).toBe(0);
    },
    limitMs,
  );
});
