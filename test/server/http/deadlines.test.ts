// Bodies that are sent too slowly, over a real connection.

import { connect } from "node:net";
import { expect, test } from "bun:test";
import { AppError } from "../../../src/base/errors.ts";
import { maxBodyBytes, readText } from "../../../src/server/http/body.ts";
import { makeDeadlines } from "../../../src/server/http/deadlines.ts";
import { makeListeners } from "../../../src/server/tls/listeners.ts";
import { errorReply, toResponse } from "../../../src/server/http/reply.ts";

const ways = ["Content-Length: 60000", "Transfer-Encoding: chunked"];

test.each(ways)("a body with %s that drips gets 408, and its connection is closed", async (length) => {
  let passedMs = 0;
  const late = () => new AppError("request_timeout", "The body was not complete.");
  const deadlines = makeDeadlines(30_000, () => passedMs, late);
  using server = Bun.serve({
    port: 0,
    fetch: (request) =>
      readText(request, maxBodyBytes, deadlines).then(
        (text) => new Response(text),
        (error: unknown) => (error instanceof AppError ? toResponse(errorReply(error)) : Response.error()),
      ),
  });
  const dripping = connect(server.port ?? 0, "127.0.0.1");
  const closed = Promise.withResolvers<string>();
  let answer = "";
  dripping.on("data", (part) => (answer += part.toString()));
  dripping.on("error", () => undefined);
  dripping.on("close", () => closed.resolve(answer));
  dripping.write(`POST / HTTP/1.1\r\nHost: control\r\n${length}\r\n\r\n`);
  const drip = setInterval(() => {
    passedMs += 1000;
    dripping.write(length.endsWith("chunked") ? "1\r\na\r\n" : "a");
  }, 20);
  try {
    expect(await closed.promise).toMatch(/^HTTP\/1\.1 408 [^]*"code":"request_timeout"/);
  } finally {
    clearInterval(drip);
    dripping.destroy();
  }
  const whole = await fetch(server.url, { method: "POST", body: "x".repeat(50_000) });
  expect((await whole.text()).length).toBe(50_000);
});

// The limit is Bun's own: 12 s, and 75 s for later requests of a connection.
test("headers that drip hold no connection", async () => {
  const log = { debug() {}, info() {}, warn() {}, error() {} };
  const listen = { hostname: "127.0.0.1", port: 0 };
  const listeners = makeListeners({ listen, tls: undefined, trustedProxies: [] }, log);
  const dripping = connect(listeners.bind(), "127.0.0.1");
  const closed = Promise.withResolvers<void>();
  dripping.on("error", () => undefined);
  dripping.on("close", () => closed.resolve());
  dripping.write("GET / HTTP/1.1\r\nHost: control\r\nX-Long: ");
  const drip = setInterval(() => dripping.write("a"), 1000);
  try {
    await closed.promise;
  } finally {
    clearInterval(drip);
    dripping.destroy();
    await listeners.stop();
  }
}, 60_000);

test("what is done in time keeps its result, or its error", async () => {
  const deadlines = makeDeadlines(
    1000,
    () => 0,
    () => new Error("late"),
  );
  expect(await deadlines.within(Promise.resolve(7))).toBe(7);
  expect(deadlines.within(Promise.reject(new Error("own")))).rejects.toThrow("own");
});
