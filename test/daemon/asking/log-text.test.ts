import { expect, test } from "bun:test";
import { readableLine } from "../../../src/daemon/asking/log-text.ts";

test("a line of the engine becomes time, level, message and fields, without the ends of fingerprints", () => {
  const line = JSON.stringify({
    certName: "b",
    fingerprint: "ab".repeat(32),
    handshake: { stage: 2, style: "ix_psk0" },
    level: "INFO",
    msg: "Handshake message received",
    time: "2026-11-22T12:00:00.123Z",
    vpnAddrs: ["10.77.0.1"],
    error: "no such host",
    none: [],
    nothing: null,
    empty: "",
  });
  expect(readableLine(line)).toBe(
    '2026-11-22 12:00:00 info  Handshake message received  certName=b  fingerprint=abababababab…  handshake.stage=2  handshake.style=ix_psk0  vpnAddrs=10.77.0.1  error="no such host"',
  );
});

test("other lines stay as they are", () => {
  for (const line of ["", "panic: out of memory", "{", '{"a":1}', "[1]", 'time=x level=info msg="text"'])
    expect(readableLine(line)).toBe(line);
});
