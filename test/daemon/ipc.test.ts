// The daemon's socket with real connections from correct, broken and hostile clients.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { connect as netConnect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connectDaemon } from "../../src/daemon/ipc/client.ts";
import type { Answer, Request } from "../../src/daemon/ipc/messages.ts";
import type { Client } from "../../src/daemon/ipc/answer.ts";
import { serveIpc, type ServerOptions } from "../../src/daemon/ipc/server.ts";
import { openLibc } from "../../src/platform/libc.ts";
import { AppError } from "../../src/errors.ts";
import { realSystem } from "../../src/system.ts";

const libc = openLibc();
const system = realSystem();
/** A group to which we can give files without being root. */
const ownGroup = process.getgid?.() ?? 0;
const quiet = { debug() {}, info() {}, warn() {}, error() {} };
let directory = "";
let path = "";
const stops: (() => unknown)[] = [];

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "ipc-"));
  path = join(directory, "run", "cmd.sock");
});

afterEach(async () => {
  for (const stop of stops.splice(0)) await stop();
  rmSync(directory, { recursive: true, force: true });
});

async function serve(options: Partial<ServerOptions> = {}) {
  const server = await serveIpc({
    address: { kind: "socket", path },
    access: { groupId: undefined },
    libc,
    system,
    log: quiet,
    handle: async ({ action }) => ({ ok: true, message: action }),
    ...options,
  });
  stops.push(server.stop);
  return server;
}

/** A client that sends raw bytes and keeps the received lines. */
async function raw() {
  const seen = { text: "", closed: false };
  const socket = await Bun.connect({
    unix: path,
    socket: {
      data: (_, bytes) => void (seen.text += bytes.toString()),
      close: () => void (seen.closed = true),
      error() {},
      drain() {},
    },
  });
  stops.push(() => socket.end());
  const answers = async (count: number): Promise<Answer[]> => {
    while (seen.text.split("\n").length <= count && !seen.closed) await Bun.sleep(1);
    return seen.text
      .split("\n")
      .slice(0, -1)
      .map((line): Answer => JSON.parse(line));
  };
  return { socket, answers, seen };
}

async function until(what: () => boolean): Promise<void> {
  for (let waited = 0; !what(); waited += 20) {
    if (waited > 30_000) throw new Error(`Timed out waiting for ${what.toString()}`);
    await Bun.sleep(20);
  }
}

async function failureOf(work: Promise<unknown>): Promise<AppError> {
  const error = await work.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (error instanceof AppError) return error;
  throw new Error(`Not an AppError: ${String(error)}`);
}

describe("lines", () => {
  test("are answered in order with their ids, whatever the chunks", async () => {
    const slowFirst = async ({ action }: Request): Promise<Answer> => {
      if (action === "slow") await Bun.sleep(20);
      return { ok: true, message: action };
    };
    await serve({ handle: slowFirst });
    const { socket, answers } = await raw();
    const text = '{"action":"slow","id":1}\n{"action":"fast","id":"b"}\n\n{"action":"third"}\n';
    for (const character of text) {
      socket.write(character);
      await Bun.sleep(0);
    }
    expect(await answers(3)).toEqual([
      { ok: true, message: "slow", id: 1 },
      { ok: true, message: "fast", id: "b" },
      { ok: true, message: "third" },
    ]);
  });

  test("that are not requests get an error each, and the connection stays open", async () => {
    await serve();
    const { socket, answers } = await raw();
    const bad = [
      "not json",
      '{"action":1,"id":7}',
      "[]",
      "null",
      '{"team":"acme"}',
      '{"action":"x","team":"../etc"}',
      '{"action":"x","team":"Acme"}',
      '{"action":"x","lines":1e9}',
      "[".repeat(60_000),
    ];
    for (const line of bad) socket.write(`${line}\n`);
    socket.write(Buffer.from([0x7b, 0xff, 0xfe, 0x0a]));
    socket.write('{"action":"still here","request_ts":"yesterday","reason":"test","unknown":1}\n');
    const got = await answers(bad.length + 2);
    expect(
      got.slice(0, -1).every(({ ok, code, message }) => !ok && code !== undefined && message !== ""),
    ).toBe(true);
    expect(got[0]).toMatchObject({ code: "bad_request", message: "The line is not JSON" });
    expect(got[1]).toMatchObject({ code: "validation_failed", id: 7 });
    expect(got.at(-2)).toMatchObject({ code: "bad_request", message: "The line is not UTF-8" });
    expect(got.at(-1)).toEqual({ ok: true, message: "still here" });
  });

  test("that are not requests are logged with uid and pid, once a minute for each fault", async () => {
    const warned: unknown[] = [];
    const minutes: (() => void)[] = [];
    await serve({
      log: { ...quiet, warn: (message, fields) => void warned.push([message, fields]) },
      system: {
        sleep: (ms) => (ms === 60_000 ? new Promise((resolve) => minutes.push(resolve)) : system.sleep(ms)),
      },
    });
    const [one, two] = [await raw(), await raw()];
    const secret = "s".repeat(43);
    for (const { socket, answers } of [one, two]) {
      socket.write(`\n \n{"action":"good"}\n${`${secret}\n`.repeat(100)}{"team":"${secret}"}\n`);
      await answers(102);
    }
    const [uid, pid] = [process.getuid?.(), process.pid];
    const notJson = { code: "bad_request", uid, pid, reason: "The line is not JSON" };
    const notValid = { code: "validation_failed", uid, pid, reason: expect.stringContaining("action") };
    expect(warned.splice(0)).toEqual([
      ["Malformed line refused", notJson],
      ["Malformed line refused", notValid],
    ]);
    for (const end of minutes.splice(0)) end();
    await until(() => warned.length === 2);
    expect(warned.splice(0)).toEqual([
      ["More malformed lines refused", { code: "bad_request", uid, refusals: 199 }],
      ["More malformed lines refused", { code: "validation_failed", uid, refusals: 1 }],
    ]);
    one.socket.write("again\n");
    await until(() => warned.length === 1);
    expect(warned).toEqual([["Malformed line refused", notJson]]);
  });

  test("longer than 64 KiB are refused once and skipped, and use no memory", async () => {
    await serve();
    const { socket, answers } = await raw();
    const longest = `{"action":"${"a".repeat(64)}","reason":"${"b".repeat(1000)}"`.padEnd(64 * 1024 - 1, " ");
    const parts = [
      `${longest}}\n`,
      "x".repeat(64 * 1024 + 1),
      "y".repeat(500_000),
      "\n",
      '{"action":"after"}\n',
    ];
    let rest = Buffer.from(parts.join(""));
    while (rest.length > 0) {
      rest = rest.subarray(Math.max(0, socket.write(rest)));
      await Bun.sleep(1);
    }
    const got = await answers(3);
    expect(got.map(({ ok, code }) => code ?? ok)).toEqual([true, "payload_too_large", true]);
    expect(got[2]?.message).toBe("after");
  });

  test("are all answered after the client ends its side, even without a last line break; then the socket closes", async () => {
    await serve({
      handle: async ({ action }) => {
        await Bun.sleep(20);
        return { ok: true, message: action };
      },
    });
    const client = netConnect({ path, allowHalfOpen: true });
    client.end('{"action":"one"}\n{"action":"two"}');
    let text = "";
    for await (const chunk of client) text += String(chunk);
    expect(text).toBe('{"ok":true,"message":"one"}\n{"ok":true,"message":"two"}\n');
  });

  test("of a failing action get the error's code; a defect reveals no internals", async () => {
    await serve({
      handle: async ({ action }) => {
        if (action === "version") return { ok: true, message: "lives" };
        if (action === "known") throw new AppError("collision", "They collide", { hint: "Stop one." });
        throw new TypeError("x is not a function");
      },
    });
    const client = await connectDaemon({ kind: "socket", path }, system, { patient: false });
    const known = await failureOf(client.request({ action: "known" }));
    expect([known.code, known.message, known.details.hint]).toEqual([
      "collision",
      "They collide",
      "Stop one.",
    ]);
    expect((await failureOf(client.request({ action: "other" }))).code).toBe("failed");
    client.close();
  });
});

describe("clients", () => {
  test("wait for a daemon that works, but not for one that hangs", async () => {
    const slept: number[] = [];
    const hurried = {
      sleep: async (ms: number, signal?: AbortSignal) => {
        slept.push(ms);
        await system.sleep(200, signal);
      },
    };
    const hangs = new Promise<never>(() => {});
    await serve({
      handle: async ({ action }) => {
        if (action === "start") await Bun.sleep(500);
        return action === "status" ? hangs : { ok: true, message: action };
      },
    });
    const client = await connectDaemon({ kind: "socket", path }, hurried, { patient: false });
    expect((await client.request({ action: "start" })).message).toBe("start");
    const failure = await failureOf(client.request({ action: "status" }));
    expect([failure.code, failure.message]).toEqual([
      "daemon_unreachable",
      "The daemon listens but does not answer",
    ]);
    expect(slept).toEqual([5000, 5000]);
  });

  const member = (uid: number) => ({ pid: uid, uid, gid: ownGroup, groups: [] });

  test("500 at once are answered; the next gets `busy`", async () => {
    let connected = 0;
    const peerOf = () => member(4_000_000 + (connected++ % 6));
    await serve({ libc: { ...libc, peerOf }, access: { groupId: ownGroup } });
    const many = await Promise.all(Array.from({ length: 500 }, () => raw()));
    for (const { socket } of many) socket.write('{"action":"hello"}\n');
    for (const { answers } of many) expect((await answers(1))[0]?.ok).toBe(true);
    const extra = await raw();
    expect((await extra.answers(1))[0]).toMatchObject({ ok: false, code: "busy" });
    for (const { socket } of many) socket.end();
  });

  test("of one user get at most 100 places", async () => {
    let next = member(4_000_000);
    const server = await serve({ libc: { ...libc, peerOf: () => next }, access: { groupId: ownGroup } });
    const idle = await Promise.all(Array.from({ length: 100 }, () => raw()));
    const extra = await raw();
    expect((await extra.answers(1))[0]).toMatchObject({
      code: "busy",
      message: "Too many clients of this user",
    });
    next = member(4_000_001);
    const other = await raw();
    other.socket.write('{"action":"hello"}\n');
    expect((await other.answers(1))[0]?.ok).toBe(true);
    // A place is free again when its client disconnects.
    idle[0]?.socket.end();
    await until(() => server.clients() === 100);
    next = member(4_000_000);
    const again = await raw();
    again.socket.write('{"action":"hello"}\n');
    expect((await again.answers(1))[0]?.ok).toBe(true);
    for (const { socket } of idle) socket.end();
  });

  test("that are refused exhaust neither the log nor the file descriptors", async () => {
    const warned: unknown[] = [];
    const minutes: (() => void)[] = [];
    await serve({
      access: { groupId: ownGroup },
      libc: { ...libc, peerOf: () => ({ pid: 9, uid: 4_000_000, gid: 88, groups: [] }) },
      log: { ...quiet, warn: (message, fields) => void warned.push([message, fields?.["refusals"]]) },
      system: {
        sleep: (ms) => (ms === 60_000 ? new Promise((resolve) => minutes.push(resolve)) : system.sleep(ms)),
      },
    });
    // They neither read nor disconnect.
    const open = () =>
      netConnect({ path, allowHalfOpen: true })
        .on("error", () => {})
        .pause();
    const descriptors = () => readdirSync("/proc/self/fd").length;
    const before = descriptors();
    const many = Array.from({ length: 200 }, open);
    const last = await raw();
    await until(() => last.seen.closed);
    // Both ends are in this process: 200 of the clients, and the 50 of the daemon that may still read the reason.
    expect(descriptors() - before).toBeLessThan(200 + 60);
    await until(() => descriptors() - before < 200 + 10);
    expect(warned).toEqual([["Client refused", undefined]]);
    minutes.shift()?.();
    await until(() => warned.length === 2);
    expect(warned[1]).toEqual(["More clients refused", 200]);
    for (const socket of many) socket.destroy();
  }, 30_000);

  test("that never read use bounded memory, and others are served", async () => {
    const large = "z".repeat(100_000);
    let handled = 0;
    await serve({
      handle: async ({ action }) => {
        if (action === "large") handled += 1;
        return { ok: true, message: action === "large" ? large : "small" };
      },
    });
    const lazy = await raw();
    lazy.socket.pause();
    for (let count = 0; count < 200; count++) lazy.socket.write('{"action":"large"}\n');
    await Bun.sleep(50);
    // The kernel's buffers, and 256 KiB of ours.
    expect(handled).toBeLessThan(20);
    const other = await connectDaemon({ kind: "socket", path }, system, { patient: false });
    expect((await other.request({ action: "x" })).message).toBe("small");
    lazy.socket.resume();
    expect(await lazy.answers(200)).toHaveLength(200);
    expect(handled).toBe(200);
    other.close();
  });

  test("that subscribe but do not read are disconnected", async () => {
    const clients: Client[] = [];
    await serve({
      handle: async (_, client) => {
        clients.push(client);
        return { ok: true, message: "subscribed" };
      },
    });
    const lazy = await raw();
    lazy.socket.write('{"action":"subscribe"}\n');
    await lazy.answers(1);
    lazy.socket.pause();
    const [client] = clients;
    for (let count = 0; count < 400 && client?.gone.aborted === false; count++) {
      client.notify({ event: "log", team: "acme", line: "l".repeat(10_000) });
      await Bun.sleep(0);
    }
    while (client?.gone.aborted === false) await Bun.sleep(5);
    expect(client?.gone.aborted).toBe(true);
  });

  test("are identified by the kernel", async () => {
    const seen: Client[] = [];
    await serve({
      handle: async (_, client) => {
        seen.push(client);
        return { ok: true, message: "" };
      },
    });
    const client = await connectDaemon({ kind: "socket", path }, system, { patient: false });
    await client.request({ action: "x" });
    expect(seen[0]?.peer).toMatchObject({ pid: process.pid, uid: process.getuid?.(), right: "root" });
    client.close();
  });

  const callers = [
    ["not in the group", { pid: 9, uid: 4_000_000, gid: 88, groups: [88, 89] }, undefined],
    ["unknown to the kernel", undefined, undefined],
    ["a member by its first group", { pid: 9, uid: 4_000_000, gid: ownGroup, groups: [] }, "member"],
    ["a member by another group", { pid: 9, uid: 4_000_000, gid: 88, groups: [88, ownGroup] }, "member"],
    ["root", { pid: 9, uid: 0, gid: 0, groups: [0] }, "root"],
  ] as const;
  for (const [caller, credentials, right] of callers) {
    test(`${caller}: ${right ?? "refused"}`, async () => {
      const found =
        credentials === undefined ? undefined : { ...credentials, groups: [...credentials.groups] };
      await serve({
        access: { groupId: ownGroup },
        libc: { ...libc, peerOf: () => found },
        handle: async (_, { peer }) => ({ ok: true, message: peer.right }),
      });
      const { socket, answers } = await raw();
      socket.write('{"action":"x"}\n');
      const [answer] = await answers(1);
      if (right === undefined) expect(answer).toMatchObject({ ok: false, code: "permission_denied" });
      else expect(answer).toEqual({ ok: true, message: right });
    });
  }
});

test("clients with half a line or unread answers are disconnected; idle clients stay", async () => {
  const server = await serve({ patienceSeconds: 1 });
  const open = () =>
    netConnect({ path, allowHalfOpen: true })
      .on("error", () => {})
      .pause();
  const [halfway, lazy, patient] = [open(), open(), open()];
  halfway.write('{"action":');
  lazy.write('{"action":"x"}\n'.repeat(60_000));
  await until(() => server.clients() === 3);
  await until(() => server.clients() === 1);
  patient.write('{"action":"x"}\n');
  let text = "";
  patient.resume().on("data", (chunk) => (text += String(chunk)));
  await until(() => text.includes('"ok":true'));
  for (const client of [halfway, lazy, patient]) client.destroy();
}, 60_000);

describe("the socket", () => {
  const mode = (of: string) => (statSync(of).mode & 0o777).toString(8);

  test("belongs to root, or to the group if there is one; its directory is closed to others", async () => {
    const first = await serve();
    expect(mode(path)).toBe("600");
    expect(mode(join(directory, "run"))).toBe("750");
    await first.stop();
    path = join(directory, "run2", "cmd.sock");
    await serve({ access: { groupId: ownGroup } });
    expect(mode(path)).toBe("660");
    expect(statSync(path).gid).toBe(ownGroup);
  });

  test("of a running daemon is kept, that of a killed daemon is replaced", async () => {
    const script = `
      import { openLibc } from ${JSON.stringify(join(import.meta.dir, "../../src/platform/libc.ts"))};
      import { serveIpc } from ${JSON.stringify(join(import.meta.dir, "../../src/daemon/ipc/server.ts"))};
      const log = { debug() {}, info() {}, warn() {}, error() {} };
      const [path = ""] = process.argv.slice(2);
      await serveIpc({ address: { kind: "socket", path }, access: { groupId: undefined }, libc: openLibc(), system: { sleep: Bun.sleep }, log,
        handle: async () => ({ ok: true, message: "first" }) });
      process.stdout.write("up");
    `;
    const file = join(directory, "daemon.ts");
    writeFileSync(file, script);
    const first = Bun.spawn([process.execPath, file, path], { stdout: "pipe", stderr: "inherit" });
    await first.stdout.getReader().read();
    expect((await failureOf(serve())).code).toBe("busy");
    first.kill("SIGKILL");
    await first.exited;
    await serve({ handle: async () => ({ ok: true, message: "second" }) });
    const client = await connectDaemon({ kind: "socket", path }, system, { patient: false });
    expect((await client.request({ action: "x" })).message).toBe("second");
    client.close();
  });

  test("never replaces a file that is not a socket, and rejects a path that is too long", async () => {
    path = join(directory, "file");
    writeFileSync(path, "precious");
    expect((await failureOf(serve())).code).toBe("bad_configuration");
    expect(await Bun.file(path).text()).toBe("precious");
    path = join(directory, "x".repeat(108));
    expect((await failureOf(serve())).code).toBe("bad_configuration");
  });
});

describe("a client without a daemon", () => {
  test("fails at once, or after a short wait", async () => {
    const address = { kind: "socket", path } as const;
    expect((await failureOf(connectDaemon(address, system, { patient: false }))).code).toBe(
      "daemon_unreachable",
    );
    const waits: number[] = [];
    const sleep = async (ms: number) => void waits.push(ms);
    expect((await failureOf(connectDaemon(address, { sleep }, { patient: true }))).exitStatus).toBe(3);
    expect(waits.reduce((sum, ms) => sum + ms, 0)).toBe(2000);
  });

  test("waits for one that is starting", async () => {
    const client = connectDaemon({ kind: "socket", path }, system, { patient: true });
    await Bun.sleep(60);
    await serve();
    expect((await (await client).request({ action: "late" })).message).toBe("late");
    (await client).close();
  });
});
