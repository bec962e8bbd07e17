// Downloads from a real server on loopback: sizes, truncation, redirects, silence.

import { afterAll, describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fetchFile, makeProgress } from "../../src/release/download.ts";
import { trustingControlPlanes } from "../../src/node/files/pinned-authorities.ts";
import { realSystem } from "../../src/base/system.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const system = trustingControlPlanes("/nonexist", realSystem());
const body = "x".repeat(100_000);

const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  development: false,
  fetch(request) {
    const { pathname } = new URL(request.url);
    switch (pathname) {
      case "/dir/file":
        return new Response(body);
      case "/dir/moved":
        return Response.redirect("/dir/file");
      case "/dir/away":
        return Response.redirect("http://example.com/file");
      case "/dir/signed":
        return Response.redirect("/dir/gone?signature=hidden");
      case "/dir/circle":
        return Response.redirect("/dir/circle");
      case "/dir/endless":
        return new Response(new ReadableStream({ pull: (stream) => stream.enqueue(new Uint8Array(50_000)) }));
      case "/dir/silent":
        return new Response(new ReadableStream({ start: (stream) => stream.enqueue(new Uint8Array(5)) }));
      case "/dir/dripping":
        return new Response(
          new ReadableStream({
            async pull(stream) {
              await Bun.sleep(20);
              stream.enqueue(new Uint8Array(1));
            },
          }),
        );
      default:
        return new Response("no", { status: 404 });
    }
  },
});
/** Announces more than it sends. */
const cutter = Bun.listen({
  hostname: "127.0.0.1",
  port: 0,
  socket: {
    data(socket) {
      socket.end("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nshort");
    },
  },
});
afterAll(async () => {
  await server.stop(true);
  cutter.stop(true);
});

const base = `http://127.0.0.1:${server.port}/dir/`;
const fetchFrom = (name: string, maxBytes = 200_000, stallMs = 5000) =>
  fetchFile(base, name, { maxBytes, stallMs }, system);

describe("download", () => {
  test("returns the file, also after a redirect, and reports progress", async () => {
    const seen: number[] = [];
    const options = { maxBytes: 200_000, onProgress: (done: number) => void seen.push(done) };
    expect(Buffer.from(await fetchFile(base.slice(0, -1), "moved", options, system)).toString()).toBe(body);
    expect(seen.at(-1)).toBe(body.length);
  });

  const refused: [string, () => Promise<unknown>, string][] = [
    ["more than the cap, announced", () => fetchFrom("file", 99_999), "larger than 99999"],
    ["more than the cap, not announced", () => fetchFrom("endless"), "larger than 200000"],
    ["a missing file", () => fetchFrom("none"), "returned status 404"],
    ["a redirect to a place without TLS", () => fetchFrom("away"), "need an https:// address"],
    ["a circle of redirects", () => fetchFrom("circle"), "too many redirects"],
    ["a server that falls silent", () => fetchFrom("silent", 100, 200), "does not answer in time"],
    ["a server that drips, without a limit for the whole", () => fetchFrom("dripping", 1000, 300), "in time"],
    [
      "a server that drips, within a time for the whole",
      () => fetchFile(base, "dripping", { maxBytes: 1000, stallMs: 5000, totalMs: 300 }, system),
      "does not answer in time",
    ],
    [
      "a file that is cut off",
      () => fetchFile(`http://127.0.0.1:${cutter.port}/`, "f", { maxBytes: 1e6 }, system),
      "Cannot download",
    ],
    ["nobody there", () => fetchFile("http://127.0.0.1:1/", "f", { maxBytes: 1 }, system), "Cannot download"],
  ];
  for (const [what, attempt, reason] of refused) {
    test(`refuses ${what}`, () => expect(attempt()).rejects.toThrow(reason));
  }

  test("nothing of a file that is announced as too large is taken", async () => {
    let isCancelled = false;
    const content = new ReadableStream({ cancel: () => void (isCancelled = true) });
    const response = new Response(content, { headers: { "Content-Length": "11" } });
    const fetching = fetchFile(base, "f", { maxBytes: 10 }, { ...system, fetch: async () => response });
    expect(await fetching.catch(String)).toContain("larger than 10");
    expect(isCancelled).toBeTrue();
  });

  test("an error shows neither the password of a mirror nor the signature of a redirect", async () => {
    const mirror = base.replace("//", "//ci:secret@");
    for (const name of ["signed", "none", "circle"]) {
      const error = await fetchFile(mirror, name, { maxBytes: 10 }, system).catch(String);
      expect(error).toContain(`Cannot download ${base}`);
      expect(error).not.toMatch(/secret|hidden/);
    }
  });

  test("accepts only TLS and loopback", async () => {
    const asked: string[] = [];
    const fake = {
      ...system,
      fetch: async (url: string) => {
        asked.push(url);
        return new Response("ok");
      },
    };
    const attempt = (base: string) =>
      fetchFile(base, "f", { maxBytes: 5 }, fake).then(
        () => "taken",
        (error: unknown) => String(error),
      );
    for (const good of [
      "https://example.com/x/",
      "http://127.0.0.1:80/",
      "http://[::1]:80/",
      "http://localhost/",
    ])
      expect(await attempt(good)).toBe("taken");
    for (const bad of [
      "http://example.com/",
      "ftp://example.com/",
      "http://127.0.0.1.example.com/",
      "file:///etc",
    ])
      expect(await attempt(bad)).toContain("https://");
    expect(asked).toHaveLength(4);
  });

  test("reads from a directory", async () => {
    using directory = temporaryDirectory();
    writeFileSync(join(directory.path, "file"), "local");
    const read = (name: string, maxBytes: number) =>
      fetchFile(directory.path, name, { maxBytes }, system).then(String, String);
    expect(await read("file", 5)).toBe(String(Buffer.from("local")));
    expect(await read("file", 4)).toContain("larger");
    expect(await read("none", 4)).toContain("Cannot read");
  });
});

describe("progress", () => {
  const run = (isTerminal: boolean, env: Record<string, string> = {}) => {
    let text = "";
    const stderr = { isTerminal, columns: 60, write: (part: string) => void (text += part) };
    const progress = makeProgress("file", { stderr, env });
    for (let done = 0; done <= 1_000_000; done += 1000) progress.update(done, 1_000_000);
    progress.end();
    return text;
  };

  test("is drawn on a terminal, at most a hundred times, and cleared", () => {
    const text = run(true);
    expect(text).toContain("1.0 MB");
    expect(text.split("\r").length).toBeLessThanOrEqual(103);
    expect(text.endsWith("\r\u001b[K")).toBe(true);
  });

  test("is silent in a pipe", () => expect(run(false)).toBe(""));

  test("is silent on a terminal without escape sequences", () =>
    expect(run(true, { TERM: "dumb" })).toBe(""));
});
