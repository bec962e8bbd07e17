import { describe, expect, test } from "bun:test";
import { makeLog, oneLine, printable, redact, writeOnceATurn } from "../src/log.ts";

describe("makeLog()", () => {
  const lines = (verbose: boolean, stamped: boolean) => {
    const written: string[] = [];
    const log = makeLog({
      verbose,
      stamped,
      write: (text) => void written.push(text),
      now: () => Date.UTC(2026, 10, 21),
    });
    log.debug("detail");
    log.info("started", { team: "acme", path: "/a b" });
    log.warn("careful");
    return written;
  };

  test("writes bare sentences for the command line", () => {
    expect(lines(false, false)).toEqual(['started team=acme path="/a b"\n', "warning: careful\n"]);
  });

  test("writes time and level where lines are kept, and debug lines when asked", () => {
    expect(lines(true, true)[0]).toBe("2026-11-21T00:00:00.000Z debug detail\n");
    expect(lines(true, true)[1]).toStartWith("2026-11-21T00:00:00.000Z info started");
  });
});

test("redact() takes out tokens and private keys and leaves fingerprints", () => {
  const token = "A".repeat(42) + "_";
  const jwt = "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl";
  const key = "-----BEGIN NEBULA X25519 PRIVATE KEY-----\nc2VjcmV0\n-----END NEBULA X25519 PRIVATE KEY-----";
  const text = redact(`a ${token} b ${jwt} c ${key} d Bearer xyz.abc e`);
  expect(text).toBe("a [token] b [token] c [private key] d Bearer [token] e");
  const fingerprint = "ab".repeat(32);
  expect(redact(fingerprint)).toBe(fingerprint);
});

test("oneLine() leaves no foreign line break or escape sequence", () => {
  expect(oneLine("a\r\nb\u001b[31mc\u2028d")).toBe("a b [31mc d");
});

test("printable() keeps lines and columns, and nothing that steers a terminal", () => {
  expect(printable("a\tb\u001b]0;c\u0007\n\u009b2Jd\r\n")).toBe("a\tb ]0;c \n 2Jd \n");
});

test("a server's lines of one turn are written together, in order, and none is lost at the end", async () => {
  const written: string[] = [];
  const write = writeOnceATurn((text) => void written.push(text));
  write("a\n");
  write("b\n");
  expect(written).toEqual([]);
  await new Promise(setImmediate);
  write("c\n");
  await new Promise(setImmediate);
  expect(written).toEqual(["a\nb\n", "c\n"]);
});
