import { findTrueFailure } from "../../src/base/connect-failure.ts";
import { expect, test } from "bun:test";
import { chmodSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { realSystem } from "../../src/base/system.ts";
import { maxOutputBytes } from "../../src/platform/run-program.ts";
import { root } from "../support/agent.ts";
import { runSync } from "../support/debian.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { until } from "../support/until.ts";

test("runs programs by absolute path only, and searches neither PATH nor the current directory", async () => {
  using directory = temporaryDirectory();
  const program = join(directory.path, "program");
  writeFileSync(program, "#!/bin/sh\necho started\n");
  chmodSync(program, 0o755);
  const { run } = realSystem();
  expect((await run([program])).stdout).toBe("started\n");
  const cwd = directory.path;
  for (const name of ["program", "./program", "sh", ""]) {
    expect(await run([name], { cwd }).catch((error: unknown) => String(error))).toContain("absolute path");
  }
});

test("child processes get no AGENT_* variable, which may contain a token", async () => {
  process.env["AGENT_REGISTRATION_TOKEN"] = "secret";
  try {
    const { stdout } = await realSystem().run(["/bin/sh", "-c", "env"]);
    expect(stdout).toContain("PATH=");
    expect(stdout).not.toContain("AGENT_");
  } finally {
    delete process.env["AGENT_REGISTRATION_TOKEN"];
  }
});

test("reads all output of a program, and does not wait after its end", async () => {
  const script = "head -c 3000000 /dev/zero | tr '\\0' x; exit 3";
  const source = join(import.meta.dir, "../../src/base/system.ts");
  const child = Bun.spawnSync([
    process.execPath,
    "-e",
    `import { realSystem } from ${JSON.stringify(source)};
     const begin = performance.now();
     const { status, stdout } = await realSystem().run(["/bin/sh", "-c", ${JSON.stringify(script)}]);
     process.on("exit", () => console.log(status, stdout.length, performance.now() - begin < 1500));`,
  ]);
  expect(child.stdout.toString()).toBe("3 3000000 true\n");
});

test("does not wait for a background process that a program started", async () => {
  const begin = performance.now();
  const { status, stdout } = await realSystem().run(["/bin/sh", "-c", "echo done; sleep 30 & exit 0"]);
  expect([status, stdout]).toEqual([0, "done\n"]);
  expect(performance.now() - begin).toBeLessThan(20_000);
});

test("kills a program after its time limit", async () => {
  expect((await realSystem().run(["/bin/sleep", "60"], { timeoutMs: 100 })).timedOut).toBe(true);
});

test("does not call it a time limit when something else kills a program", async () => {
  const killed = await realSystem().run(["/bin/sh", "-c", "kill -KILL $$"]);
  expect(killed).toMatchObject({ status: 137, timedOut: false });
});

test("kills a program that prints more than the maximum", async () => {
  using directory = temporaryDirectory();
  const pidFile = join(directory.path, "pid");
  const { run } = realSystem();
  for (const stream of ["", " >&2"]) {
    const script = `echo $$ > ${pidFile}; exec cat /dev/zero${stream}`;
    const message = await run(["/bin/sh", "-c", script]).catch((error: unknown) => String(error));
    expect(message).toContain(`Cannot run /bin/sh: it printed more than ${maxOutputBytes} bytes`);
    const isAlive = () => existsSync(`/proc/${readFileSync(pidFile, "utf8").trim()}/status`);
    for (let tries = 0; isAlive() && tries < 200; tries++) await Bun.sleep(20);
    expect(isAlive()).toBe(false);
  }
  const size = maxOutputBytes - 10;
  expect((await run(["/bin/sh", "-c", `head -c ${size} /dev/zero`])).stdout).toHaveLength(size);
});

test("knows a terminal from a file, a pipe, /dev/null and nothing", async () => {
  using directory = temporaryDirectory();
  const program = join(directory.path, "program.ts");
  writeFileSync(
    program,
    `import { realSystem } from ${JSON.stringify(join(import.meta.dir, "../../src/base/system.ts"))};
     const { stdinIsTerminal, stdout } = realSystem();
     console.error([stdinIsTerminal, stdout.isTerminal].join());`,
  );
  for (const streams of ["</dev/null >/dev/null", "<&- >&-", `<'${program}' >'${program}.out'`, "| cat"]) {
    const words = `'${process.execPath}' '${program}' ${streams}`;
    const { stderr } = Bun.spawnSync(["/bin/sh", "-c", words], { stdin: "pipe" });
    expect(stderr.toString()).toBe("false,false\n");
  }
  let shown = "";
  const terminal = {
    data: (_: unknown, bytes: Uint8Array) => void (shown += new TextDecoder().decode(bytes)),
  };
  await Bun.spawn([process.execPath, program], { terminal }).exited;
  await until(() => shown.includes("\n"));
  expect(shown).toContain("true,true");
});

test("the id of this start is not taken for the machine's where a container has put its own over the kernel's", () => {
  const script = `
    import { realSystem } from ${JSON.stringify(join(root, "src/base/system.ts"))};
    import { machineMarks } from ${JSON.stringify(join(root, "src/node/contact/checkin.ts"))};
    const { id, isShared } = realSystem().bootTime();
    console.log(JSON.stringify({ id, isShared, mark: typeof machineMarks(realSystem()).machine }));
  `;
  using directory = temporaryDirectory();
  const own = join(directory.path, "boot_id");
  writeFileSync(own, "11111111-2222-3333-4444-555555555555\n");
  const seen = (command: string): unknown =>
    JSON.parse(
      runSync(["unshare", "--mount", "sh", "-c", `${command} exec "$0" -e "$1"`, process.execPath, script]),
    );
  expect(seen("")).toMatchObject({ isShared: true, mark: "string" });
  expect(seen(`mount --bind ${own} /proc/sys/kernel/random/boot_id &&`)).toEqual({
    id: "11111111-2222-3333-4444-555555555555",
    isShared: false,
    mark: "undefined",
  });
});

test("a refused connection through a proxy is not looked into: this machine need not reach the host", async () => {
  const refused = Object.assign(new Error("refused"), { code: "ECONNREFUSED" });
  const asked: string[] = [];
  const lookup = async (host: string) => {
    asked.push(host);
    return [];
  };
  const through = (env: Record<string, string>) =>
    findTrueFailure(refused, "https://hub.example.org/", { lookup, env });
  expect(await through({ HTTPS_PROXY: "http://127.0.0.1:9" })).toBe(refused);
  expect(asked).toEqual([]);
  expect(await through({ HTTPS_PROXY: "http://127.0.0.1:9", NO_PROXY: "example.org" })).toBe(refused);
  expect(asked).toEqual(["hub.example.org"]);
});

test("whether this machine reaches an address is not asked of a proxy", async () => {
  const script = `
    import { findTrueFailure } from "${root}/src/base/connect-failure.ts";
    const asked = [];
    const proxy = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: ({ url }) => (asked.push(url), new Response()) });
    for (const name of ["http_proxy", "https_proxy"]) process.env[name] = proxy.url.href;
    const refused = Object.assign(new Error("refused"), { code: "ECONNREFUSED" });
    const env = { ...process.env, no_proxy: "hub.example.org" };
    const lookup = async () => ["127.0.0.1"];
    const found = await findTrueFailure(refused, "https://hub.example.org:1/", { lookup, env });
    console.log(JSON.stringify([asked, found === refused]));
    await proxy.stop(true);
  `;
  const child = Bun.spawn([process.execPath, "-e", script], { env: {}, stdout: "pipe" });
  expect(await new Response(child.stdout).text()).toBe("[[],true]\n");
});
