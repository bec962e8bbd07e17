// The engine as a program: log lines as versions 1.6.1 and 1.11.0 write them, and the proof of a reload.

import { afterEach, beforeEach, expect, spyOn, test } from "bun:test";
import { rejection } from "../../pki/thrown.ts";
import { appendFileSync, chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as v from "valibot";
import { AppError } from "../../../src/base/errors.ts";
import { fileLog, lastLines } from "../../../src/node/engine/engine-log.ts";
import { controlEngine, waitUntilReady } from "../../../src/node/engine/control-engine.ts";
import { engineVersion, refuseEngineVersion, testConfig } from "../../../src/node/engine/engine.ts";
import {
  describe as describeLine,
  isFlood,
  isReady,
  lastComplaint,
  parseLogLine,
  reloadEvidence,
} from "../../../src/node/engine/log-lines.ts";
import {
  identifyProcess,
  isAlive,
  signalProcess,
  type ProcessIdentity,
} from "../../../src/platform/process-identity.ts";
import { realSystem } from "../../../src/base/system.ts";

const system = realSystem();
let directory = "";
const children: Bun.Subprocess[] = [];

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "engine-"));
});

afterEach(async () => {
  for (const child of children.splice(0)) {
    child.kill("SIGKILL");
    await child.exited;
  }
  rmSync(directory, { recursive: true, force: true });
});

/** A fake engine: a shell script that runs `onHangUp` on SIGHUP; its output goes to the log. */
async function startStandIn(onHangUp: string): Promise<{ process: ProcessIdentity; log: string }> {
  const log = join(directory, "engine.log");
  const script = join(directory, "engine");
  // Reloads are sequential, as in the engine.
  const lines = [
    "#!/bin/bash",
    `log=${log}`,
    "n=0 asked=0 taken=0",
    onHangUp,
    "trap 'asked=$((asked + 1))' HUP",
    "echo up >> $log",
    "while :; do if [ $taken -lt $asked ]; then taken=$((taken + 1)); reload; else sleep 0.02; fi; done",
  ];
  writeFileSync(script, `${lines.join("\n")}\n`);
  chmodSync(script, 0o755);
  const child = Bun.spawn([script], { stdout: "ignore", stderr: "inherit" });
  children.push(child);
  while (lastLines(log, 1)[0] !== "up") await Bun.sleep(5);
  const identity = identifyProcess(child.pid);
  if (identity === undefined) throw new Error("The stand-in engine has not started");
  return { process: identity, log };
}

function control(
  engine: { process: ProcessIdentity; log: string },
  change: Partial<Parameters<typeof controlEngine>[0]> = {},
) {
  return controlEngine(
    {
      process: () => engine.process,
      log: fileLog(engine.log),
      controlSocket: undefined,
      restart: async () => {},
      ...change,
    },
    system,
  );
}

/** Code and message of the AppError that rejects the work. */
async function failureOf(work: Promise<unknown>): Promise<string> {
  const error = await work.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  return error instanceof AppError ? `${error.code}: ${error.message}` : `not an AppError: ${String(error)}`;
}

const begun = '{"level":"info","msg":"Caught HUP, reloading config","time":"2026-11-21T01:38:46Z"}';
const applied =
  '{"cert":{},"level":"info","msg":"Client cert refreshed from disk","time":"2026-11-21T01:38:46Z"}';
const refused =
  '{"error":"firewall.inbound rule #0; proto was not understood","level":"error","msg":"Error while creating firewall during reload","time":"2026-11-21T01:38:48Z"}';
const peerNoise =
  '{"time":"2026-11-21T01:38:54Z","level":"ERROR","msg":"Failed to process handshake packet","from":"10.0.0.1:4242","error":"verify cert: certificate is in the block list"}';

test("parseLogLine() reads both loggers in JSON and in text", () => {
  const lines = [
    '{"build":"1.6.1","interface":"etest0","level":"info","msg":"Nebula interface is active","network":"10.77.200.1/24","time":"2026-11-21T01:38:45Z"}',
    '{"time":"2026-11-21T01:38:52.890591108Z","level":"INFO","msg":"Nebula interface is active","interface":"etest0","build":"1.11.0"}',
    'time="2026-11-21T01:40:01Z" level=info msg="Nebula interface is active" build=1.6.1 interface=etest0',
    'time=2026-11-21T01:40:01.556Z level=INFO msg="Nebula interface is active" interface=etest0 build=1.11.0',
  ].map(parseLogLine);
  for (const line of lines) {
    expect(line).toMatchObject({ level: "info", msg: "Nebula interface is active" });
    expect(line?.fields["interface"]).toBe("etest0");
    expect(line !== undefined && isReady(line)).toBe(true);
  }
  expect(lines.map((line) => line?.time?.slice(0, 16))).toEqual([
    "2026-11-21T01:38",
    "2026-11-21T01:38",
    "2026-11-21T01:40",
    "2026-11-21T01:40",
  ]);
});

test("parseLogLine() parses every level and returns undefined for other text", () => {
  const level = (text: string) => parseLogLine(`{"level":"${text}","msg":"m"}`)?.level;
  expect(["warning", "WARN", "ERROR", "panic", "fatal", "DEBUG-4", "DEBUG", "INFO"].map(level)).toEqual([
    "warn",
    "warn",
    "error",
    "fatal",
    "fatal",
    "trace",
    "debug",
    "info",
  ]);
  for (const text of ["", "Goodbye", '{"level":"info"', "{}", "[1]", "null", '{"msg":1}']) {
    expect(parseLogLine(text)).toBeUndefined();
  }
});

test("lastComplaint() finds the last error, or the panic of the engine's runtime", () => {
  const error = 'time="2026-11-28T00:00:00Z" level=error msg="Failed to open the device" error=busy';
  const info = 'level=info msg="panic: no more"';
  expect(lastComplaint([error, info, ""])).toBe(error);
  expect(lastComplaint([error, "panic: runtime error: index out of range", "goroutine 1 [running]:"])).toBe(
    "panic: runtime error: index out of range",
  );
  expect(lastComplaint([info])).toBeUndefined();
});

test("reloadEvidence() distinguishes begin, success and failure, and ignores errors about peers", () => {
  const evidence = (text: string) => {
    const line = parseLogLine(text);
    return line === undefined ? "unread" : reloadEvidence(line);
  };
  expect(evidence(begun)).toBe("begun");
  expect(evidence(applied)).toBe("applied");
  expect(evidence('{"level":"INFO","msg":"Client certificate(s) refreshed from disk"}')).toBe("applied");
  expect(evidence(refused)).toBe("failed");
  for (const msg of [
    "Could not refresh client cert",
    "Could not load client cert",
    "Could not refresh trusted CA certificates",
    "Failed to load ca from config",
    "IP in new cert was different from old",
    "Networks in new cert was different from old",
    "Error occurred while reloading config",
    "failed to reload lighthouse",
    "Failed to reconfigure the sshd",
  ]) {
    expect(evidence(JSON.stringify({ level: "error", msg }))).toBe("failed");
  }
  expect(evidence(peerNoise)).toBeUndefined();
  expect(evidence('{"level":"info","msg":"Trusted CA certificates refreshed"}')).toBeUndefined();
});

test("reload() resolves when the fence shows that the reload is complete", async () => {
  const engine = await startStandIn(
    `reload() { echo '${begun}' >> $log; echo '${peerNoise}' >> $log; echo '${applied}' >> $log; }`,
  );
  await control(engine).reload();
  const lines = lastLines(engine.log, 100);
  expect(lines.filter((line) => line === begun)).toHaveLength(2);
  await control(engine).reload();
  expect(isAlive(engine.process)).toBe(true);
});

test("reload() rejects with the engine's error, also for one after the certificates were loaded", async () => {
  const engine = await startStandIn(
    `reload() { echo '${begun}' >> $log; echo '${applied}' >> $log; if [ $n = 0 ]; then echo '${refused}' >> $log; fi; n=1; }`,
  );
  const failure = await failureOf(control(engine).reload());
  expect(failure).toStartWith("engine_failed: ");
  expect(failure).toContain("proto was not understood");
});

test("reload() does not reject because junk pushed its evidence out of the log", async () => {
  // The journal drops what comes above its limit.
  let looks = 0;
  const instant = { sleep: async () => void looks++, platform: "linux" } as const;
  const engine = await startStandIn("reload() { :; }");
  const junk = Array.from({ length: 300 }, () => peerNoise);
  const flooded = (lines: readonly string[]) =>
    controlEngine(
      {
        process: () => (isAlive(engine.process) ? engine.process : undefined),
        log: () => ({ read: () => [] }),
        controlSocket: undefined,
        restart: async () => undefined,
        isFlooded: async () => isFlood(lines),
      },
      instant,
    );
  expect(await failureOf(flooded([begun, applied, ...junk.slice(0, 99)]).reload())).toContain(
    "shows no reload",
  );
  const whole = looks;
  looks = 0;
  await flooded(junk).reload();
  // Others wait for the lock meanwhile.
  expect(looks).toBeLessThan(whole / 4);
  const tail = { read: () => [] };
  await waitUntilReady(tail, () => true, { silent: false, isFlooded: async () => isFlood(junk) }, instant);
  expect(await failureOf(waitUntilReady(tail, () => true, { silent: false }, instant))).toContain("in time");
});

test("reload() rejects when the engine ends during it or has ended before", async () => {
  const engine = await startStandIn("reload() { exit 129; }");
  expect(await failureOf(control(engine).reload())).toContain("ended while it reloaded");
  while (isAlive(engine.process)) await Bun.sleep(5);
  expect(await failureOf(control(engine).reload())).toContain("ended");
  expect(await failureOf(control(engine).alive(10))).toContain("ended");
});

test("waitUntilReady() resolves at the ready line, and rejects with the reason of an earlier end", async () => {
  const log = join(directory, "ready.log");
  const tail = fileLog(log)();
  setTimeout(() => appendFileSync(log, '{"level":"INFO","msg":"Nebula interface is active"}\n'), 20);
  await waitUntilReady(tail, () => true, { silent: false }, system);
  appendFileSync(
    log,
    '{"level":"error","msg":"Failed to get a tun/tap device","error":"device or resource busy"}\n',
  );
  const failure = await waitUntilReady(tail, () => false, { silent: false }, system).catch((error: unknown) =>
    String(error),
  );
  expect(failure).toContain("device or resource busy");
  // The doctor knows no reason either.
  const silent = waitUntilReady(fileLog(log)(), () => false, { silent: false }, system);
  expect(await rejection(silent)).toMatchObject({
    details: { hint: "Its last lines may show why: `agent logs`." },
  });
});

test("fileLog() returns complete new lines once, also after a truncation", () => {
  const path = join(directory, "a.log");
  writeFileSync(path, "old\n");
  const tail = fileLog(path)();
  expect(tail.read()).toEqual([]);
  appendFileSync(path, "one\nhal");
  expect(tail.read()).toEqual(["one"]);
  appendFileSync(path, "f\n");
  expect(tail.read()).toEqual(["half"]);
  writeFileSync(path, "new\n");
  expect(tail.read()).toEqual(["new"]);
  expect(lastLines(path, 5)).toEqual(["new"]);
  expect(lastLines(join(directory, "none"), 5)).toEqual([]);
  const many = Array.from({ length: 20_000 }, (_, at) => `line ${at} of a log that is read from its end`);
  writeFileSync(path, `${many.join("\n")}\n`);
  for (const count of [1, 100, 10_000, 30_000]) expect(lastLines(path, count)).toEqual(many.slice(-count));
});

test("process identity does not match a later process with the same number", async () => {
  const child = Bun.spawn(["/bin/sleep", "60"]);
  children.push(child);
  const identity = identifyProcess(child.pid);
  if (identity === undefined) throw new Error("No identity");
  expect(isAlive(identity)).toBe(true);
  expect(signalProcess({ ...identity, started: `${identity.started}1` }, "SIGKILL")).toBe(false);
  expect(isAlive(identity)).toBe(true);
  // A refusal by the system: the process is still there.
  using kill = spyOn(process, "kill").mockImplementation(() => {
    throw Object.assign(new Error("kill() failed: EPERM"), { code: "EPERM" });
  });
  expect(() => signalProcess(identity, "SIGTERM")).toThrow("permission denied");
  kill.mockRestore();
  expect(signalProcess(identity, "SIGTERM")).toBe(true);
  await child.exited;
  expect(isAlive(identity)).toBe(false);
  expect(identifyProcess(-1)).toBeUndefined();
});

test("engineVersion() reads the version, and names a missing or foreign program", async () => {
  const binary = join(directory, "nebula");
  writeFileSync(binary, "#!/bin/sh\necho 'Version: 1.10.3'\n", { mode: 0o755 });
  expect(await engineVersion(binary, system)).toBe("1.10.3");
  expect(await failureOf(engineVersion(join(directory, "none"), system))).toContain("engine_missing");
  expect(await failureOf(engineVersion("/bin/true", system))).toContain("engine_failed");
});

test("engineVersion() tells an engine that does not run here from a missing one", async () => {
  const binary = join(directory, "nebula");
  const run = () => engineVersion(binary, system).catch((error: unknown) => error);
  // The beginning of a program for arm64.
  writeFileSync(binary, Buffer.from("7f454c460201010000000000000000000200b700", "hex"), { mode: 0o644 });
  expect(await run()).toMatchObject({
    code: "engine_failed",
    message: `Cannot run ${binary}: not executable`,
  });
  chmodSync(binary, 0o755);
  const notForThisMachine = {
    code: "engine_failed",
    message: `The overlay engine ${binary} is not built for this system and processor`,
  };
  expect(await run()).toMatchObject(notForThisMachine);
  // Its loader is missing, as on a system with another C library.
  writeFileSync(binary, "#!/nowhere/loader\n");
  expect(await run()).toMatchObject(notForThisMachine);
  rmSync(binary);
  expect(await run()).toMatchObject({ code: "engine_missing" });
});

test("refuseEngineVersion() refuses what is too old or has a known hole", () => {
  for (const version of ["1.5.2", "1.6.0", "1.9.4", "1.9.5", "1.9.6"]) {
    expect(() => refuseEngineVersion(version)).toThrow(AppError);
  }
  for (const version of ["1.6.1", "1.9.3", "1.9.7", "1.10.3", "1.11.1"]) refuseEngineVersion(version);
});

test("testConfig() reports the engine's error and nothing of its first line of output", async () => {
  const binary = join(directory, "nebula");
  const key =
    "-----BEGIN NEBULA X25519 PRIVATE KEY-----\\\\nc2VjcmV0\\\\n-----END NEBULA X25519 PRIVATE KEY-----";
  const script = (last: string) =>
    writeFileSync(
      binary,
      `#!/bin/sh\necho '{"level":"info","msg":"pki: key: ${key}"}'\necho '${last}'\nexit 1\n`,
      { mode: 0o755 },
    );
  script(refused);
  const reason = await failureOf(testConfig(binary, "/x/config.yml", system));
  expect(reason).toContain("Error while creating firewall during reload: firewall.inbound rule #0");
  script("no reason");
  const nothing = await failureOf(testConfig(binary, "/x/config.yml", system));
  expect(nothing).toContain("gives no reason");
  expect(`${reason}${nothing}`).not.toContain("c2VjcmV0");
  expect(describeLine({ time: undefined, level: "error", msg: "m", fields: {} })).toBe("m");
});

/** A control socket that answers every request with this result. */
function serveControl(reason: string, ok = true): { path: string; asked: string[] } & Disposable {
  const path = join(directory, "ctl.sock");
  const asked: string[] = [];
  const answer = { version: 1, result: { ok, reason }, ...(ok ? {} : { error: reason }) };
  const server = Bun.listen({
    unix: path,
    socket: {
      data(socket, bytes) {
        asked.push(v.parse(Asked, JSON.parse(bytes.toString())).command);
        socket.end(`${JSON.stringify(answer)}\n`);
      },
    },
  });
  return { path, asked, [Symbol.dispose]: () => server.stop(true) };
}
const Asked = v.object({ command: v.string() });

test("reload() uses the control socket and sends no signal", async () => {
  const engine = await startStandIn("reload() { echo signal >> $log; }");
  using socket = serveControl("Config reload complete");
  let restarts = 0;
  const restart = async () => void restarts++;
  await control(engine, { controlSocket: socket.path, restart }).reload();
  expect(socket.asked).toEqual(["reload"]);
  expect(restarts).toBe(0);
  expect(lastLines(engine.log, 9)).toEqual(["up"]);
});

test("reload() restarts the engine for keys that apply at its start, except those that may wait", async () => {
  const engine = await startStandIn("reload() { :; }");
  let restarts = 0;
  const restart = async () => void restarts++;
  const sentence = "Config reload was completed but requires a restart to fully apply";
  for (const [keys, expected] of [
    ["", 0],
    [", keys [timers.connection_alive_interval]", 0],
    [", keys [timers.connection_alive_interval listen.port]", 0],
    [", keys [timers.connection_alive_interval listen.host]", 1],
  ] as const) {
    using socket = serveControl(`${sentence}${keys}`);
    restarts = 0;
    await control(engine, { controlSocket: socket.path, restart }).reload();
    expect(restarts).toBe(expected);
  }
});

test("reload() rejects with the engine's reason if the control socket refuses it", async () => {
  const engine = await startStandIn("reload() { echo signal >> $log; }");
  using socket = serveControl("Config reload completed with errors, review the logs", false);
  const failure = await failureOf(control(engine, { controlSocket: socket.path }).reload());
  expect(failure).toBe(
    'engine_failed: The overlay engine refuses "reload": Config reload completed with errors, review the logs',
  );
  expect(lastLines(engine.log, 9)).toEqual(["up"]);
});

test("reload() sends the signals if nothing listens on the control socket", async () => {
  const engine = await startStandIn(`reload() { echo '${begun}' >> $log; echo '${applied}' >> $log; }`);
  await control(engine, { controlSocket: join(directory, "ctl.sock") }).reload();
  expect(lastLines(engine.log, 9).filter((line) => line === begun)).not.toHaveLength(0);
});

test("on Windows reload() uses the control socket, and restarts an engine without one", async () => {
  const engine = await startStandIn("reload() { echo signal >> $log; }");
  let restarts = 0;
  const made = (path: string) =>
    controlEngine(
      {
        process: () => engine.process,
        log: fileLog(engine.log),
        controlSocket: path,
        restart: async () => void restarts++,
      },
      { ...system, platform: "win32" },
    );
  using socket = serveControl("Config reload complete");
  await made(socket.path).reload();
  expect(restarts).toBe(0);
  await made(join(directory, "none")).reload();
  expect(restarts).toBe(1);
});
