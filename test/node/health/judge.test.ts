import { expect, test } from "bun:test";
import { judge, type LighthouseState, type Observation } from "../../../src/node/health/judge.ts";

const hub = (state: LighthouseState, name = "hub") => ({ name, state });
const seen = (change: Partial<Observation>): Observation => ({
  lighthouses: [hub("answers")],
  isLighthouse: false,
  probed: [],
  stuck: [],
  hasOthers: true,
  isExpired: false,
  engineVersion: "1.12.0",
  reportsTunnels: true,
  isDenied: false,
  ...change,
});
const verdict = (change: Partial<Observation>) => judge(seen(change)).verdict;

test("running: a lighthouse answers, or the engine has a tunnel to one that never answered", () => {
  expect(judge(seen({}))).toEqual({ verdict: "running" });
  expect(verdict({ lighthouses: [hub("tunnel")] })).toBe("running");
  expect(verdict({ lighthouses: [hub("lost"), hub("answers", "hub2")] })).toBe("running");
});

test("broken peers do not degrade a node whose lighthouse answers", () => {
  expect(verdict({ probed: [{ name: "b", broken: true }] })).toBe("running");
});

test("degraded, with the reason: no lighthouse, a lighthouse that is lost, an expired certificate", () => {
  expect(judge(seen({ lighthouses: [] }))).toEqual({
    verdict: "degraded",
    reason: "There is no lighthouse: this node cannot find other nodes, nor they this one",
  });
  expect(judge(seen({ lighthouses: [hub("lost")] })).reason).toBe("The lighthouse hub does not answer");
  expect(judge(seen({ lighthouses: [hub("lost"), hub("lost")] })).reason).toBe(
    "None of the 2 lighthouses answers",
  );
  expect(judge(seen({ isExpired: true })).reason).toBe("The certificate has expired");
});

test("degraded while a tunnel stays dead after all attempts to heal it, though the lighthouse answers", () => {
  expect(judge(seen({ stuck: ["web", "db"] }))).toEqual({
    verdict: "degraded",
    reason: "Tunnels stay dead after 3 attempts to heal each: web, db",
  });
});

test("without another node there is nothing that could be degraded", () => {
  expect(verdict({ lighthouses: [], hasOthers: false })).toBe("running");
});

test("a lighthouse is degraded only if every probed peer is broken", () => {
  const isLighthouse = { isLighthouse: true, lighthouses: [] };
  const peer = (broken: boolean) => ({ name: "a", broken });
  expect(verdict(isLighthouse)).toBe("running");
  expect(verdict({ ...isLighthouse, probed: [peer(true), peer(false)] })).toBe("running");
  expect(verdict({ ...isLighthouse, probed: [peer(true), peer(true)] })).toBe("degraded");
});

test("an engine that does not report its tunnels, and refused ICMP: not probed, with the remedy", () => {
  const old = { lighthouses: [hub("unknown")], reportsTunnels: false, engineVersion: "1.6.1" };
  expect(judge(seen(old))).toEqual({
    verdict: "not_probed",
    reason:
      "No lighthouse answers ICMP, and engine 1.6.1 does not report its tunnels; `agent overlay update`",
  });
  expect(judge(seen({ ...old, isDenied: true })).reason).toBe("This process may not send ICMP");
});

test("before the first probes are decided nothing is claimed", () => {
  expect(verdict({ lighthouses: [hub("early"), hub("lost")] })).toBe("not_probed");
});
