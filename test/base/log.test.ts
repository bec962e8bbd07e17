import { describe, expect, test } from "bun:test";
import {
  clean,
  cleanErrors,
  cut,
  makeLog,
  maxTextLength,
  printable,
  tableLine,
  writeOnceATurn,
} from "../../src/base/log.ts";
import { redact } from "../../src/base/redact.ts";
import { oneLine } from "../../src/base/unprintable.ts";

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

  test("writes plain sentences for the command line", () => {
    expect(lines(false, false)).toEqual(['started team=acme path="/a b"\n', "warning: careful\n"]);
  });

  test("writes time and level when stamped, and debug lines when verbose", () => {
    expect(lines(true, true)[0]).toBe("2026-11-21T00:00:00.000Z debug detail\n");
    expect(lines(true, true)[1]).toStartWith("2026-11-21T00:00:00.000Z info started");
  });
});

describe("makeLog() with format json", () => {
  const linesOf = (act: (log: ReturnType<typeof makeLog>) => void) => {
    const written: string[] = [];
    const write = (text: string) => void written.push(text);
    act(makeLog({ verbose: false, stamped: true, format: "json", write, now: () => 0 }));
    return written.map((line): unknown => JSON.parse(line));
  };

  test("each line is one object with time, level, message and typed fields", () => {
    const lines = linesOf((log) => {
      log.debug("not shown");
      log.warn("slow", { ms: 12, held: true, from: null, gone: undefined, path: "/a b" });
    });
    const time = "1970-01-01T00:00:00.000Z";
    expect(lines).toEqual([
      { time, level: "warn", message: "slow", ms: 12, held: true, from: null, path: "/a b" },
    ]);
  });

  test("a field cannot replace time, level or message", () => {
    expect(linesOf((log) => log.info("real", { message: "forged", level: "error", time: "never" }))).toEqual([
      { time: "1970-01-01T00:00:00.000Z", level: "info", message: "real" },
    ]);
  });

  test("secrets are redacted, and a line over the maximum stays a whole object without fields", () => {
    const fields = Object.fromEntries(["a", "b", "c", "d", "e"].map((key) => [key, "word ".repeat(10_000)]));
    const lines = linesOf((log) => {
      log.error(`token ${opaque}`, { header: `Bearer ${jwt}` });
      log.error("long", fields);
    });
    expect(lines).toMatchObject([
      { message: "token [token]", header: "Bearer [token]" },
      { message: "long", truncated: true },
    ]);
    expect(lines[1]).not.toHaveProperty("a");
  });
});

test("repeated log lines are all written, at once", () => {
  const written: string[] = [];
  const log = makeLog({
    verbose: false,
    stamped: false,
    write: (text) => void written.push(text),
    now: () => 0,
  });
  for (let count = 0; count < 20; count++) log.warn("again");
  expect(written).toEqual(Array(20).fill("warning: again\n"));
});

test("redact() replaces tokens and private keys and keeps fingerprints", () => {
  const token = "A".repeat(42) + "_";
  const jwt = "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl";
  const key = "-----BEGIN NEBULA X25519 PRIVATE KEY-----\nc2VjcmV0\n-----END NEBULA X25519 PRIVATE KEY-----";
  const text = redact(`a ${token} b ${jwt} c ${key} d Bearer xyz.abc e`);
  expect(text).toBe("a [token] b [token] c [private key] d Bearer [token] e");
  const fingerprint = "ab".repeat(32);
  expect(redact(fingerprint)).toBe(fingerprint);
});

test("redact() finds tokens next to other text, and keys without beginning or end", () => {
  const key = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo/+w==";
  const cases: [string, string][] = [
    ["/path/eyJa.eyJb.c?x", "/path/[token]?x"],
    ["-eyJa.b.c.d", "-[token]"],
    ["a.b.eyJc", "a.b.eyJc"],
    ["keyJa.b.c", "keyJa.b.c"],
    [`x.${"t".repeat(43)}.y`, "x.[token].y"],
    ["t".repeat(44), "t".repeat(44)],
    ["bearer\tabc", "bearer\t[token]"],
    [`-----BEGIN PRIVATE KEY-----\n${key}`, "[private key]"],
    [`at: ${key}\n-----END EC PRIVATE KEY----- and on`, "at:[private key] and on"],
    ["-----BEGIN CERTIFICATE-----", "-----BEGIN CERTIFICATE-----"],
  ];
  for (const [text, safe] of cases) expect(redact(text)).toBe(safe);
});

test("redact() finds what stands after an escape of JSON, of Go or of a URL, or after a hyphen", () => {
  const token = `n${"Ab1".repeat(14)}`;
  const before: [string, string][] = [
    ...["\\n", "\\t", "\\r", "\\\\n", "\\u0026", "\\x3d", "\\v"].map((each): [string, string] => [
      each,
      each,
    ]),
    ...["%23", "%20", "%2523", "%3d"].map((each): [string, string] => [`?a=${each}`, `?a=${each}`]),
    ["key-", "key-"],
    ["session_", "session_"],
    // Not an escape, but the token itself begins so.
    ["\\", "\\"],
    ["%", "%"],
  ];
  for (const [text, safe] of before) {
    expect(redact(`${text}${token} end`)).toBe(`${safe}[token] end`);
    expect(redact(`${text}${token}-a end`)).toBe(`${safe}[token]-a end`);
    if (/[\w]$/.test(text) && /^[\\?]/.test(text))
      expect(redact(`${text}${jwt} end`)).toBe(`${safe}[token] end`);
  }
  expect(redact(`%ab${"Ab1".repeat(13)}xy end`)).toBe("%[token] end");
  expect(redact(JSON.stringify(`line\nBearer x7.y8 end`))).toBe('"line\\nBearer [token] end"');
  expect(redact("Authorization=Bearer%20x7.y8 end")).toBe("Authorization=Bearer%20[token] end");
  const key = encodeURIComponent(`-----BEGIN EC PRIVATE KEY-----\n${keyBody}\n-----END EC PRIVATE KEY-----`);
  expect(redact(`?key=${key} end`)).toBe("?key=[private key] end");
  expect(redact(`?key=${key.slice(40)} end`)).toBe("?[private key] end");
  const name = "a-name-of-several-words-that-is-quite-long-as-file-names-are-now-and-then";
  expect(redact(name)).toBe(name);
});

const jwt = "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl";
const opaque = `${"Ab1".repeat(14)}_`;
const keyBody = "c2VjcmV0LXNlY3JldC1zZWNyZXQ+/w==";
const secrets = [
  `token ${jwt} end`,
  `token=${opaque} end`,
  "Authorization: Bearer x7.y8~z9+a0/b1= end",
  `-----BEGIN NEBULA X25519 PRIVATE KEY-----\n${keyBody}\n${keyBody}\n-----END NEBULA X25519 PRIVATE KEY----- end`,
  `https://control.example/join#${opaque}?x=${opaque}`,
];

test("a cut inside a secret removes all of it", () => {
  const parts = [jwt, opaque, "x7.y8~z9+a0/b1=", keyBody].flatMap((secret) =>
    // Eight characters of any secret, wherever they are in it.
    Array.from({ length: secret.length - 7 }, (_, at) => secret.slice(at, at + 8)),
  );
  for (const text of secrets) {
    for (let max = 0; max <= text.length; max++) {
      const shown = clean(text, max);
      expect(parts.filter((part) => shown.includes(part))).toEqual([]);
      expect(shown.length).toBeLessThanOrEqual(text.length + 1);
    }
  }
});

test("cut() keeps short texts, and splits neither words nor characters", () => {
  expect(cut("one two", 7)).toBe("one two");
  expect(cut("one two", 6)).toBe("one …");
  expect(cut("one two", 3)).toBe("one…");
  expect(cut("one", 2)).toBe("…");
  expect(cut(`ab ${"\u{1f600}".repeat(3)}`, 6)).toBe("ab \u{1f600}…");
  expect(cut("\u{1f600}", 1)).toBe("…");
});

test("a log line has a maximum length", () => {
  const written: string[] = [];
  const log = makeLog({
    verbose: true,
    stamped: true,
    write: (text) => void written.push(text),
    now: () => 0,
  });
  const long = "word ".repeat(200_000);
  log.error(long, { path: long, token: `${"x".repeat(maxTextLength - 20)} ${opaque}`, last: "kept" });
  log.info(
    "quoted",
    Object.fromEntries(["a", "b", "c", "d", "e", "f"].map((key) => [key, '"'.repeat(10_000)])),
  );
  const [first = "", second = ""] = written;
  expect(first.length).toBeLessThan(16_500);
  expect(first).toEndWith("last=kept\n");
  expect(first).not.toContain(opaque.slice(0, 8));
  expect(second.length).toBeLessThan(16_500);
});

test("cleanErrors() bounds fields and sentences, and redacts both", () => {
  const many = Object.fromEntries(
    Array.from({ length: 300 }, (_, i) => [`${i} ${"k ".repeat(500)}`, ["fine"]]),
  );
  const errors = cleanErrors({ ["__proto__"]: [opaque], ...many, list: Array(300).fill("x") });
  expect(Object.keys(errors).length).toBe(100);
  expect(Object.keys(errors).every((key) => key.length <= 201)).toBe(true);
  expect(cleanErrors({ list: Array(300).fill(`a ${opaque}`) })["list"]).toEqual(Array(100).fill("a [token]"));
});

test("oneLine() removes line breaks and escape sequences", () => {
  expect(oneLine("a\r\nb\u001b[31mc\u2028d")).toBe("a b [31mc d");
});

test("oneLine() and printable() remove characters that change the direction of writing", () => {
  const bidi = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069";
  for (const each of bidi) expect(oneLine(`a${each}b`)).toBe("a b");
  expect(printable(`a${bidi}b\n`)).toBe("a b\n");
});

test("tableLine() keeps foreign text in its cell", () => {
  expect(tableLine([7, "a\nb\tc\u202e", "d"])).toBe("7\ta b c \td\n");
});

test("printable() keeps lines and tabs and removes other control characters", () => {
  expect(printable("a\tb\u001b]0;c\u0007\n\u009b2Jd\r\n")).toBe("a\tb ]0;c \n 2Jd \n");
});

test("writeOnceATurn() joins the lines of one turn, in order", async () => {
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

test("a log file on a full disk ends no command: its lines go to standard error, with one warning", () => {
  let said = "";
  const write = (text: string) => void (said += text);
  const log = makeLog({ verbose: false, stamped: false, file: "/dev/full", write, now: () => 0 });
  log.info("one");
  log.info("two");
  expect(said.split("\n")).toEqual([
    "warning: Cannot write the log file /dev/full: no space left on the disk; its lines follow here",
    "1970-01-01T00:00:00.000Z info one",
    "1970-01-01T00:00:00.000Z info two",
    "",
  ]);
});
