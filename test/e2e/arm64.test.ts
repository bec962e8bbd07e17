// The executable for Linux on arm64, run by an emulator with Debian's own C library of that processor: all three faces of
// it. Whoever has such a machine gets what was tried.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, mkdirSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { build } from "../../build.ts";
import { cleanEnvironment } from "../support/agent.ts";
import { asRoot } from "../support/engines.ts";
import { installMissing } from "../support/debian.ts";
import { unpackPackage } from "../support/packages.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const libraries = join(import.meta.dir, "../../.cache/arm64");
const password = "correct horse battery";

asRoot("linux on arm64", () => {
  const directory = temporaryDirectory();
  const place = (name: string) => join(directory.path, name);
  const command = ["qemu-aarch64", "-L", libraries, place("agent")];
  const data = ["--data-dir", place("data")];
  const node = ["--config-root", place("etc"), "--state-db-path", place("state.db")];
  const socket = ["--socket-path", place("agent.sock")];
  let plane: Bun.Subprocess<"ignore", "pipe", "ignore">;
  let url = "";

  /** Of a command that succeeds: what it printed. */
  const run = async (args: readonly string[], input = ""): Promise<string> => {
    const child = Bun.spawn([...command, ...args], {
      env: cleanEnvironment(),
      stdin: new Blob([input]),
      stdout: "pipe",
      stderr: "pipe",
    });
    const [stdout, stderr, status] = await Promise.all([
      new Response(child.stdout).text(),
      new Response(child.stderr).text(),
      child.exited,
    ]);
    if (status !== 0) throw new Error(`agent ${args.join(" ")}: exit ${status}\n${stdout}${stderr}`);
    return stdout;
  };

  beforeAll(async () => {
    const missing = installMissing(["/usr/bin/qemu-aarch64"]);
    if (missing !== undefined) throw new Error(missing);
    if (!existsSync(libraries)) unpackPackage("libc6", libraries, { architecture: "arm64" });
    await build("bun-linux-arm64", place("agent"));
  }, 120_000);
  afterAll(async () => {
    plane?.kill("SIGKILL");
    await plane?.exited;
    directory[Symbol.dispose]();
  });

  test("says its version, and for which machine it is", async () => {
    expect(await run(["version", "--no-check"])).toStartWith("agent 0.1.0 (bun-linux-arm64");
    expect(await run(["--help"])).toContain("register");
  }, 60_000);

  test("is a control plane", async () => {
    plane = Bun.spawn([...command, "serve", "--json", "--listen", "127.0.0.1:0", ...data], {
      env: cleanEnvironment(),
      stdin: "ignore",
      stdout: "pipe",
      stderr: "ignore",
    });
    let line = "";
    for await (const chunk of plane.stdout) {
      line += new TextDecoder().decode(chunk);
      if (line.includes("\n")) break;
    }
    url = String(JSON.parse(line).url);
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
    const user = ["user", "create", "owner@example.org", "--password-file", "-"];
    await run(["admin", ...user, ...data], password);
    const org = ["org", "create", "acme", "--network", "10.77.0.0/16", "--owner", "owner@example.org"];
    await run(["admin", ...org, ...data]);
  }, 60_000);

  test("is a node: registered, checked in, its files its own", async () => {
    const { token } = JSON.parse(await run(["admin", "token", "create", "acme", "--json", ...data]));
    mkdirSync(place("etc"));
    const target = ["--api-base", url, "--org-slug", "acme", "--node-name", "arm"];
    const how = ["--registration-token-file", "-", "--mode", "desktop", "--no-start"];
    await run(["register", ...target, ...how, ...node, ...socket], token);
    const files = place("etc/acme");
    expect(readdirSync(files)).toContain("host.crt");
    expect(statSync(join(files, "host.key")).mode & 0o777).toBe(0o600);
    await run(["checkin", "--org-slug", "acme", ...node]);
    const nodes = JSON.parse(await run(["admin", "node", "list", "acme", "--json", ...data]));
    expect(JSON.stringify(nodes)).toContain('"name":"arm"');
  }, 60_000);

  test("is a daemon, which answers over its socket and ends when it is told to", async () => {
    const flags = ["--ipc-mode", "socket", "--autostart=false", ...node, ...socket];
    const daemon = Bun.spawn([...command, ...flags], {
      env: cleanEnvironment(),
      stdin: "ignore",
      stdout: "ignore",
      stderr: "ignore",
    });
    try {
      while (!existsSync(place("agent.sock"))) await Bun.sleep(50);
      const child = Bun.spawn([...command, "status", "--json", ...node, ...socket], {
        env: cleanEnvironment(),
        stdout: "pipe",
      });
      const status = JSON.parse(await new Response(child.stdout).text());
      expect(status).toMatchObject({
        daemon: { running: true },
        teams: [{ team: "acme", state: "stopped" }],
      });
      daemon.kill("SIGTERM");
      expect(await daemon.exited).toBe(0);
    } finally {
      daemon.kill("SIGKILL");
    }
  }, 60_000);

  test("the control plane ends in order", async () => {
    plane.kill("SIGTERM");
    expect(await plane.exited).toBe(0);
  }, 60_000);
});
