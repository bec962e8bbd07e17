// SIGHUP hands a running control plane over to a new process, as an update does: no request fails meanwhile, and nothing is
// lost if the new process does not start. In a network namespace of its own, whose kernel passes waiting connections on.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { copyFileSync, openSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { buildAgent, runAgent } from "../support/agent.ts";
import { startFlood } from "../support/request-flood.ts";
import { makeLan, type Lan } from "../support/namespaces.ts";
import { temporaryDirectory } from "../support/temporary.ts";

describe.skipIf(process.getuid?.() !== 0)("a handover", () => {
  const directory = temporaryDirectory();
  const program = join(directory.path, "agent");
  const log = join(directory.path, "log");
  const said = () => readFileSync(log, "utf8");
  let lan: Lan;
  let url = "";
  let main = 0;

  const until = async (holds: () => boolean) => {
    for (let tries = 0; !holds(); tries++) {
      if (tries > 300) throw new Error(`It did not come true:\n${said()}`);
      await Bun.sleep(50);
    }
  };
  /** Asks the main process to hand over. The process id of its successor. */
  const handOver = async () => {
    const before = said().split("has taken over").length;
    process.kill(main, "SIGHUP");
    await until(() => said().split("has taken over").length > before);
    const former = main;
    main = Number(/process (\d+) has taken over(?![\s\S]*has taken over)/.exec(said())?.[1]);
    await until(() => !isAlive(former));
  };
  const isAlive = (pid: number) => {
    try {
      return !readFileSync(`/proc/${pid}/stat`, "latin1").includes(") Z ");
    } catch {
      return false;
    }
  };

  beforeAll(async () => {
    copyFileSync(buildAgent(), program);
    lan = makeLan(["plane"]);
    const host = lan.host("plane");
    host.run(["/bin/sh", "-c", "echo 1 >/proc/sys/net/ipv4/tcp_migrate_req"]);
    writeFileSync(log, "");
    const flags = [
      "--listen",
      `${host.address}:8443`,
      "--tls",
      "auto",
      "--data-dir",
      join(directory.path, "data"),
    ];
    url = `https://${host.address}:8443`;
    const child = host.spawn(
      [program, "serve", "--public-url", url, "--metrics-listen", "127.0.0.1:9100", ...flags],
      {
        stdout: openSync(log, "a"),
        env: { PATH: process.env["PATH"] ?? "", NOTIFY_SOCKET: "@overlay-agent-test-without-listener" },
      },
    );
    main = child.pid;
    await until(() => said().includes("listens at"));
  }, 60_000);

  afterAll(() => {
    if (main > 0 && isAlive(main)) process.kill(main, "SIGKILL");
    lan[Symbol.dispose]();
    directory[Symbol.dispose]();
  });

  test("fails no request, three times in a row", async () => {
    const flood = startFlood(lan.host("plane"), `${url}/readyz`);
    await Bun.sleep(300);
    for (let turn = 0; turn < 3; turn++) await handOver();
    const { sent, failures } = await flood.stop();
    process.stdout.write(
      `three handovers under load: ${failures.length} of ${sent} requests failed (bar 0)\n`,
    );
    expect(sent).toBeGreaterThan(100);
    expect(failures).toEqual([]);
  }, 120_000);

  test("leaves one process, which holds the data directory", async () => {
    const flags = ["--listen", "127.0.0.1:8999", "--data-dir", join(directory.path, "data")];
    await until(() => said().includes("has taken over"));
    const { status, stderr } = await runAgent(["serve", ...flags], { inside: lan.host("plane").inside });
    expect([status, stderr]).toEqual([1, expect.stringContaining("Another server uses")]);
  }, 30_000);

  test("to a program that does not start changes nothing", async () => {
    const before = main;
    writeFileSync(`${program}.broken`, "#!/bin/sh\nexit 1\n", { mode: 0o755 });
    renameSync(program, `${program}.good`);
    renameSync(`${program}.broken`, program);
    process.kill(main, "SIGHUP");
    await until(() => said().includes("the new process did not start"));
    expect(isAlive(before)).toBe(true);
    renameSync(`${program}.good`, program);
    await handOver();
    expect(main).not.toBe(before);
  }, 60_000);

  test("SIGTERM still ends the last process cleanly", async () => {
    process.kill(main, "SIGTERM");
    await until(() => !isAlive(main));
    expect(said()).toContain("stopping");
  }, 30_000);
});
