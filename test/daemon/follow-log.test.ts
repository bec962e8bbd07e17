// The new lines of a log, sent to a client that follows it.

import { expect, test } from "bun:test";
import { followLog } from "../../src/daemon/follow-log.ts";
import type { Client } from "../../src/daemon/ipc/answer-line.ts";

test("a log that cannot be read for a moment is followed on, with one warning", async () => {
  const gone = new AbortController();
  const lines: unknown[] = [];
  const warnings: string[] = [];
  const readings: (() => string[])[] = [
    () => ["one"],
    () => {
      throw new Error("EIO");
    },
    () => {
      throw new Error("EIO");
    },
    () => ["two"],
  ];
  const client = {
    gone: gone.signal,
    stay: () => {},
    unread: () => 0,
    notify: (event: { line: unknown }) => lines.push(event.line),
  } as unknown as Client;
  const ended = Promise.withResolvers<void>();
  followLog(
    client,
    "acme",
    {
      read() {
        const next = readings.shift();
        if (next !== undefined) return next();
        gone.abort();
        ended.resolve();
        return [];
      },
    },
    {
      system: { sleep: async () => {} },
      log: { warn: (text: string) => warnings.push(text) } as unknown as Parameters<
        typeof followLog
      >[3]["log"],
    },
  );
  await ended.promise;
  expect([lines, warnings.length]).toEqual([["one", "two"], 1]);
});
