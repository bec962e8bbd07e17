import { expect, test } from "bun:test";
import { renderPeers } from "../../../src/daemon/asking/peers-text.ts";
import type { PeerReport } from "../../../src/node/health/shown-peer.ts";
import { daysLeft, textTable } from "../../../src/daemon/asking/text-table.ts";

test.each([
  [90 * 1440, "90 days left"],
  [1440, "1 day left"],
  [1439, "23 hours left"],
  [60, "1 hour left"],
  [59.5, "59 minutes left"],
  [0, "0 minutes left"],
  [-0.01, "expired"],
])("a certificate that ends in %p minutes: %s", (minutes, text) => {
  const now = Date.parse("2026-11-22T12:00:00Z");
  expect(daysLeft(new Date(now + minutes * 60_000).toISOString(), now)).toBe(text);
});

test("only an engine that cannot report its tunnels is to be updated", () => {
  const text = (engine_version: string) =>
    renderPeers("acme", { peers: [], reports_tunnels: false, engine_version }, 0);
  expect(text("1.11.2")).toContain("engine 1.11.2 does not report its tunnels; `agent overlay update`");
  expect(text("1.12.0")).toContain("the engine has not reported its tunnels yet");
  expect(text("1.12.0")).not.toContain("overlay update");
});

test("each peer counts once: a broken one is neither direct nor relayed", () => {
  const peer = (path: PeerReport["path"], probe: PeerReport["probe"]): PeerReport => ({
    name: path,
    address: "10.77.0.3",
    path,
    probe,
  });
  const peers = [peer("direct", "broken"), peer("none", "broken"), peer("relayed", "answers")];
  expect(renderPeers("acme", { peers, reports_tunnels: true }, 0)).toStartWith(
    "acme: 3 peers, 0 direct, 1 relayed, 2 broken\n",
  );
});

test("a table fits the terminal, and is whole in a pipe", () => {
  const rows = [
    ["NAME", "PATH", "LOSS"],
    ["a".repeat(40), "direct 203.0.113.7:4242", "0 %"],
  ];
  for (const line of textTable(rows, 40)) expect(line.length).toBeLessThanOrEqual(40);
  expect(textTable(rows, 40)[1]).toMatch(/^a+… +direct .*… +0 %$/);
  expect(textTable(rows)[1]).toBe(`${"a".repeat(40)}  direct 203.0.113.7:4242  0 %`);
});
