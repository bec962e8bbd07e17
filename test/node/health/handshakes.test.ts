import { expect, test } from "bun:test";
import { failedHandshakes, lastHandshake } from "../../../src/node/health/handshakes.ts";

const now = Date.parse("2026-11-22T12:00:30Z");
const line = (msg: string, more: string, at = "2026-11-22T12:00:00Z") =>
  `{"level":"info","msg":"${msg}",${more},"time":"${at}"}`;
const made = '"handshake":{"stage":2,"style":"ix_psk0"}';

test("the last handshake of a peer is read from the lines of engines up to 1.9 and later", () => {
  const timedOut = line("Handshake timed out", '"vpnIp":"10.77.0.1"');
  const received = line("Handshake message received", `${made},"vpnAddrs":["10.77.0.1"]`);
  expect(lastHandshake([received, timedOut], "10.77.0.1", now)).toBe("failed");
  expect(lastHandshake([timedOut, received], "10.77.0.1", now)).toBe("made");
  expect(lastHandshake([timedOut], "10.77.0.12", now)).toBeUndefined();
  expect(lastHandshake([], "10.77.0.1", now)).toBeUndefined();
});

test("lines in the format text are read too", () => {
  const text =
    'time="2026-11-22T12:00:00Z" level=info msg="Handshake timed out" udpAddrs="[192.0.2.1:4242]" vpnIp=10.77.0.1';
  expect(lastHandshake([text], "10.77.0.1", now)).toBe("failed");
});

test("a handshake that timed out long ago says nothing about now, nor does our own first message", () => {
  const old = line("Handshake timed out", '"vpnIp":"10.77.0.1"', "2026-11-22T11:00:00Z");
  const first = line("Handshake message sent", '"handshake":{"stage":1},"vpnIp":"10.77.0.1"');
  expect(lastHandshake([old, first], "10.77.0.1", now)).toBeUndefined();
});

test("peers whose last handshake timed out are found once each", () => {
  const failed = (vpn: string) => line("Handshake timed out", vpn);
  const lines = [
    failed('"vpnIp":"10.77.0.1"'),
    failed('"vpnAddrs":["10.77.0.2"]'),
    failed('"vpnAddrs":["10.77.0.2"]'),
    failed('"vpnAddrs":["10.77.0.3","fd00::3"]'),
    line("Handshake message received", `${made},"vpnIp":"10.77.0.1"`),
  ];
  expect(failedHandshakes(lines, now)).toEqual(["10.77.0.2", "10.77.0.3", "fd00::3"]);
  expect(failedHandshakes(lines, now + 120_000)).toEqual([]);
});
