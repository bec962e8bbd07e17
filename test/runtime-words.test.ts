// Failures of the network through the command line and the daemon: what a user reads never holds the runtime's own words,
// which advise programmers. Real servers, each broken in its own way.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { join } from "node:path";
import { connectDaemon } from "../src/daemon/ipc/client.ts";
import type { Serving } from "../src/server/serve.ts";
import { realSystem } from "../src/base/system.ts";
import { serveHere } from "./support/in-process.ts";
import { makeNodeWorld, type NodeWorld } from "./support/node.ts";
import { temporaryDirectory } from "./support/temporary.ts";

const runtimeWords =
  /fetch\b|typo|able to access|verbose|second argument|\bE[A-Z]{4,}\b|ERR_|_HTTP_|FailedTo|ConnectionRe|\bBun\b|undefined|\[object/;

/** Kind of failure → URL and the reason that the user reads. */
const kinds: Record<string, { url: string; reason: RegExp }> = {
  refused: { url: "http://127.0.0.1:1", reason: /the connection was refused/ },
  "name not found": {
    url: "https://nowhere.invalid",
    // The last one: a name server may take longer than the few seconds that `version` waits.
    reason: /host name was not found|no name server|could not be opened|does not answer in time/,
  },
};
const closers: (() => unknown)[] = [];
let tls: Serving;
let world: NodeWorld;
let place: string;

async function listen(answer: (socket: Socket) => void, greeting = false): Promise<number> {
  const listener = createServer((socket) => {
    socket.on("error", () => {});
    if (greeting) answer(socket);
    else socket.once("data", () => answer(socket));
  });
  closers.push(() => listener.close());
  await new Promise<void>((resolve) => void listener.listen(0, "127.0.0.1", resolve));
  const address = listener.address();
  return typeof address === "object" ? (address?.port ?? 0) : 0;
}

beforeAll(async () => {
  // Serving makes it strict, also for other test files of this process.
  const umask = process.umask();
  closers.push(() => void process.umask(umask));
  const directory = temporaryDirectory();
  place = directory.path;
  closers.push(() => directory[Symbol.dispose]());
  tls = await serveHere(join(place, "data"), { tls: "auto" });
  closers.push(() => tls.stop());
  const { port } = new URL(tls.url);
  const at = async (answer: (socket: Socket) => void, scheme = "http") =>
    `${scheme}://127.0.0.1:${await listen(answer)}`;
  const head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
  const closed = /the connection was closed before the answer was complete/;
  Object.assign(kinds, {
    "unknown authority": {
      url: `https://127.0.0.1:${port}`,
      reason: /its certificate comes from an unknown authority/,
    },
    "plain HTTP to a TLS port": { url: `http://127.0.0.1:${port}`, reason: closed },
    "TLS to a port with plain HTTP": {
      url: await at((socket) => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n"), "https"),
      reason: /the TLS handshake failed/,
    },
    reset: { url: await at((socket) => socket.resetAndDestroy()), reason: closed },
    "cut off": {
      url: await at((socket) => socket.end(`${head}Content-Length: 99\r\n\r\n{`)),
      reason: closed,
    },
    "not HTTP": {
      url: await at((socket) => socket.end("garbage garbage\r\n\r\n")),
      reason: /the answer is not valid HTTP/,
    },
    "too large": {
      url: await at((socket) =>
        socket.end(`${head}Content-Length: ${200 * 1024 * 1024}\r\n\r\n${" ".repeat(33 * 1024 * 1024)}`),
      ),
      reason: /is larger than \d+ (MiB|bytes)/,
    },
    "redirect loop": {
      url: await at((socket) => socket.end("HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n")),
      reason: /too many redirects|not an answer of a control plane/,
    },
    "broken compression": {
      url: await at((socket) => socket.end(`${head}Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope`)),
      reason: /not compressed as it says/,
    },
  });
  world = await registered();
  // Retries follow at once.
  const { sleep } = realSystem();
  world.system.sleep = (ms, signal) => sleep(ms < 3000 ? Math.min(ms, 20) : ms, signal);
}, 120_000);
afterAll(async () => {
  for (const close of closers.reverse()) await close();
});

/** A registered machine with a real network. */
async function registered(): Promise<NodeWorld> {
  const made = await makeNodeWorld();
  closers.push(() => made[Symbol.asyncDispose]());
  await made.register({ mode: "desktop" });
  Object.assign(made.system, { fetch: realSystem().fetch, now: Date.now });
  return made;
}

/** The registered organization asks this address. */
function lead(api_base: string, world: NodeWorld): void {
  const path = join(world.root, "acme", "credentials.json");
  writeFileSync(path, JSON.stringify({ ...JSON.parse(readFileSync(path, "utf8")), api_base }));
}

const names = [
  "refused",
  "name not found",
  "unknown authority",
  "plain HTTP to a TLS port",
  "TLS to a port with plain HTTP",
  "reset",
  "cut off",
  "not HTTP",
  "too large",
  "redirect loop",
  "broken compression",
];
const kindOf = (name: string) => kinds[name] ?? { url: "", reason: /^$/ };

test("every kind of failure is in the table", () => {
  expect(Object.keys(kinds).sort()).toEqual(names.toSorted());
});

describe("command line", () => {
  const stateDb = () => ["--state-db-path", join(place, "state/state.db")];
  const commands: Record<string, (url: string) => string[]> = {
    register: (url) => [
      "register",
      "--api-base",
      url,
      "--org-slug",
      "other",
      "--no-start",
      "--registration-token",
      "t".repeat(43),
    ],
    checkin: () => ["checkin"],
    "check-auth": () => ["check-auth"],
    "sync-config": () => ["sync-config"],
    "sync-config --dry-run": () => ["sync-config", "--dry-run"],
    unregister: () => ["unregister", "--org-slug", "acme", "--access-token", "t"],
    version: (url) => ["version", "--release-url", url, ...stateDb()],
    "self-update --check": (url) => ["self-update", "--check", "--release-url", url, ...stateDb()],
    "overlay install": (url) => [
      "overlay",
      "install",
      "--source",
      "release",
      "--version",
      "1.11.1",
      "--sha256",
      "0".repeat(64),
      "--release-url",
      url,
      ...stateDb(),
    ],
    doctor: () => ["doctor"],
  };
  for (const name of names) {
    for (const [command, words] of Object.entries(commands)) {
      test(`${command}: ${name}`, async () => {
        const { url, reason } = kindOf(name);
        lead(url, world);
        for (const json of [[], ["--json"]]) {
          const { stdout, stderr } = await world.agent([...words(url), "--verbose", ...json]);
          const said = (stdout + stderr).replaceAll(/--verbose/g, "");
          expect(said).not.toMatch(runtimeWords);
          // Releases need TLS, or loopback; and doctor says of each organization what it found.
          // The check of `version` gives up after some seconds, which a large answer may need on a busy machine.
          const isLate = command === "version" && said.includes("does not answer in time");
          if (!/doctor/.test(command) && !isLate) expect(said).toMatch(reason);
        }
      });
    }
  }

  for (const name of ["refused", "TLS to a port with plain HTTP", "reset", "not HTTP"]) {
    test(`register --ca-fingerprint: ${name}`, async () => {
      const url = kindOf(name).url.replace("http:", "https:");
      const words = [
        "register",
        "--api-base",
        url,
        "--org-slug",
        "other",
        "--registration-token",
        "t".repeat(43),
      ];
      const { status, stderr } = await world.agent([
        ...words,
        "--ca-fingerprint",
        `sha256:${"0".repeat(64)}`,
      ]);
      expect(status).toBe(6);
      expect(stderr).toMatch(/^agent: Cannot reach the control plane at https:\/\/127\.0\.0\.1:\d+: \S+/);
      expect(stderr).not.toMatch(runtimeWords);
    });
  }

  test("version: a server that does not answer in time", async () => {
    const port = await listen(() => {});
    const { stderr, status } = await world.agent([
      "version",
      "--release-url",
      `http://127.0.0.1:${port}`,
      ...stateDb(),
    ]);
    expect([status, stderr]).toEqual([0, expect.stringContaining("the server does not answer in time")]);
    expect(stderr).not.toMatch(runtimeWords);
  });
});

describe("daemon", () => {
  for (const name of [
    "refused",
    "unknown authority",
    "plain HTTP to a TLS port",
    "reset",
    "broken compression",
  ]) {
    test(
      name,
      async () => {
        const own = await registered();
        const { url, reason } = kindOf(name);
        lead(url, own);
        const log = join(own.root, "../log");
        const where = ["--state-db-path", join(own.root, "../state.db"), "--log-file", log];
        const running = own.agent(["--ipc-mode", "socket", "--verbose", ...where]);
        const path = join(own.root, "../cmd.sock");
        while (!existsSync(path)) await Bun.sleep(20);
        const daemon = await connectDaemon({ kind: "socket", path }, realSystem(), { patient: true });
        const sync = await daemon.request({ action: "sync", team: "acme" }).catch(String);
        const list = await daemon.request({ action: "list" });
        await daemon.request({ action: "shutdown" });
        daemon.close();
        const { stderr } = await running;
        const said = `${readFileSync(log, "utf8")}${stderr}${JSON.stringify([sync, list])}`;
        expect(said).toMatch(reason);
        expect(said).not.toMatch(runtimeWords);
      },
      120_000,
    );
  }
});
