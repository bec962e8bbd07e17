// Clients of the daemon's socket: how many are served, how slow they may be, and as whom the kernel knows them.

import { describe, expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import { connect as netConnect } from "node:net";
import type { Client } from "../../../src/daemon/ipc/answer-line.ts";
import { connectDaemon } from "../../../src/daemon/ipc/client.ts";
import { failureOf, libc, ownGroup, quiet, system, useIpc } from "../../support/ipc.ts";
import { until } from "../../support/until.ts";

const { place, serve, raw } = useIpc();

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
    const client = await connectDaemon({ kind: "socket", path: place.path }, hurried, { patient: false });
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
      netConnect({ path: place.path, allowHalfOpen: true })
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
  }, 120_000);

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
    const other = await connectDaemon({ kind: "socket", path: place.path }, system, { patient: false });
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
    const client = await connectDaemon({ kind: "socket", path: place.path }, system, { patient: false });
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
    netConnect({ path: place.path, allowHalfOpen: true })
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
}, 120_000);
