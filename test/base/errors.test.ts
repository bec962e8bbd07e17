// Failures in our words: the runtime's own messages advise programmers, and never reach a user.

import { afterAll, describe, expect, test } from "bun:test";
import { readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { join } from "node:path";
import { fromSystemError, messageOf } from "../../src/base/errors.ts";
import { makeClient } from "../../src/node/contact/requests/client.ts";
import { fetchFile } from "../../src/release/download.ts";
import { trustingControlPlanes } from "../../src/node/files/pinned-authorities.ts";
import { realSystem } from "../../src/base/system.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const system = { ...realSystem(), sleep: () => Promise.resolve() };
const stops: (() => unknown)[] = [];
afterAll(() => stops.forEach((stop) => void stop()));

/** A server that treats each request badly; its port. */
async function server(onData: (socket: Socket) => void): Promise<number> {
  const listener = createServer((socket) => {
    socket.on("error", () => {});
    socket.on("data", () => onData(socket));
  });
  stops.push(() => listener.close());
  await new Promise<void>((resolve) => void listener.listen(0, "127.0.0.1", resolve));
  const address = listener.address();
  return typeof address === "object" ? (address?.port ?? 0) : 0;
}

const closing = (socket: Socket) => socket.destroy();
const failures: [string, () => Promise<string>, string][] = [
  ["a refused connection", async () => "http://127.0.0.1:1/", "the connection was refused"],
  [
    "a closed connection",
    async () => `http://127.0.0.1:${await server(closing)}/`,
    "the connection was closed before the answer was complete",
  ],
  [
    "a cut answer",
    async () =>
      `http://127.0.0.1:${await server((socket) => socket.end("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nx"))}/`,
    "the connection was closed before the answer was complete",
  ],
  [
    "an answer that is not HTTP",
    async () => `http://127.0.0.1:${await server((socket) => socket.end("garbage garbage\r\n\r\n"))}/`,
    "the answer is not valid HTTP",
  ],
  [
    "a server without TLS",
    async () => `https://127.0.0.1:${await server((socket) => socket.end("garbage\r\n\r\n"))}/`,
    "the TLS handshake failed",
  ],
];

const runtimeWords = /fetch\(|typo|able to access|verbose|E[A-Z]{4,}|_HTTP_|Failed/;

/** The message of the failure. */
async function failureOf(work: Promise<unknown>): Promise<string> {
  const [result] = await Promise.allSettled([work]);
  if (result?.status !== "rejected") throw new Error("It did not fail");
  return messageOf(result.reason);
}

describe("a failed request is told in our words", () => {
  for (const [what, url, reason] of failures) {
    test(what, async () => {
      const base = await url();
      const client = makeClient({ base, system });
      const asked = await failureOf(client.token("a@company.example", "password"));
      const downloaded = await failureOf(
        fetchFile(base, "file", { maxBytes: 1000 }, trustingControlPlanes("/nonexist", realSystem())),
      );
      for (const message of [asked, downloaded]) {
        expect(message).toEndWith(`: ${reason}`);
        expect(message).not.toMatch(runtimeWords);
      }
    });
  }

  test("an unknown host name", () => {
    const error = Object.assign(new TypeError("getaddrinfo ENOTFOUND x.example"), { code: "ENOTFOUND" });
    expect(messageOf(error)).toBe("the host name was not found");
  });

  test("an unknown failure of the runtime keeps its code, but not its advice", () => {
    const advice = 'Other fetching "https://x/". For more information, pass `verbose: true` to fetch()';
    const error = Object.assign(new TypeError(advice), { code: "OtherFailure" });
    expect(messageOf(error)).toBe("the connection failed (OtherFailure)");
  });
});

test("a failed system call is told in our words, with its path once", () => {
  using directory = temporaryDirectory();
  const path = join(directory.path, "none");
  const caught = (work: () => unknown): unknown => {
    try {
      return work();
    } catch (error) {
      return error;
    }
  };
  const missing = caught(() => readFileSync(path));
  expect(messageOf(missing)).toBe(`no such file or directory (${path})`);
  expect(fromSystemError(`read ${path}`, missing).message).toBe(
    `Cannot read ${path}: no such file or directory`,
  );
  writeFileSync(path, "");
  const full = caught(() => rmdirSync(directory.path));
  expect(messageOf(full)).toBe(`the directory is not empty (${directory.path})`);
});
