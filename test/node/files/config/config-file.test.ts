// Limits for a configuration that a control plane sends.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { finishConfig, hostNames } from "../../../../src/node/files/config/config-file.ts";
import { listenPort, rememberSilence } from "../../../../src/node/files/config/read-config.ts";
import { keysNeedingRestart } from "../../../../src/node/files/config/needs-restart.ts";
import { readYaml } from "../../../../src/node/files/config/read-yaml.ts";
import { readSent } from "../../../../src/node/files/config/sent-config.ts";
import { temporaryDirectory } from "../../../support/temporary.ts";
import { machineAt } from "../../../support/machine.ts";

let directory: ReturnType<typeof temporaryDirectory>;
beforeEach(() => {
  directory = temporaryDirectory();
});
afterEach(() => directory[Symbol.dispose]());

const finish = (text: string) => {
  const { config } = readSent(text, {
    directory: directory.path,
    slug: "acme",
    hostCrt: "",
    seal: undefined,
    machine: machineAt(directory.path),
  });
  return readYaml(
    finishConfig(config, directory.path, { names: undefined, localApi: false, dataPlane: undefined }),
    "config.yml",
  );
};
const sshd = "sshd:\n  enabled: true\n  listen: 127.0.0.1:2222\n";

test("only this machine's overrides.yml can enable the engine's shell", () => {
  const sent = `pki: {}\n${sshd}`;
  expect(finish(sent)["sshd"]).toEqual({ enabled: false });
  writeFileSync(join(directory.path, "overrides.yml"), sshd);
  expect(finish(sent)["sshd"]).toEqual({ enabled: true, listen: "127.0.0.1:2222" });
  expect(finish("pki: {}\n")["sshd"]).toEqual({ enabled: true, listen: "127.0.0.1:2222" });
});

test.each([
  ["0.0.0.0/0", "0.0.0.0/1 and 128.0.0.0/1"],
  ["::/0", "::/1 and 8000::/1"],
])("overrides.yml does not replace the machine's default route: %s", (route, halves) => {
  const write = (network: string, more = "") =>
    writeFileSync(
      join(directory.path, "overrides.yml"),
      `tun:\n  unsafe_routes:\n    - route: ${network}\n      via: 10.77.0.2\n${more}`,
    );
  write(route);
  expect(() => finish("pki: {}\n")).toThrow(
    expect.objectContaining({
      code: "bad_configuration",
      message: expect.stringContaining(`tun.unsafe_routes ${route}, which would replace`),
      details: expect.objectContaining({ hint: expect.stringMatching(/agent exit use NODE/) }),
    }),
  );
  expect(() => finish("pki: {}\n")).toThrow(
    expect.objectContaining({ details: expect.objectContaining({ hint: expect.stringContaining(halves) }) }),
  );
  // The kernel's routes stay as they are.
  write(route, "      install: false\n");
  expect(finish("pki: {}\n")["tun"]).toMatchObject({ unsafe_routes: [{ route }] });
  write(route.replace("/0", "/1"));
  expect(finish("pki: {}\n")["tun"]).toMatchObject({ unsafe_routes: [{ via: "10.77.0.2" }] });
});

test.each([
  ["listen: {port: abc}", 'listen.port to "abc". Allowed is a whole number from 0 to 65535'],
  ["listen: {port: 99999}", "listen.port to 99999. Allowed is a whole number from 0 to 65535"],
  ["listen: {port: -1}", "listen.port to -1."],
  ["listen: {port: }", "listen.port to null."],
  ["listen: 4300", "listen to 4300. Allowed is a map of settings"],
  ["tun: {mtu: 100}", "tun.mtu to 100. Allowed is a whole number from 576 to 9000"],
  ["tun: {mtu: 99999}", "tun.mtu to 99999."],
  ["tun: {disabled: true}", "tun.disabled to true. Allowed is false"],
  ["tun: {disabled: yes}", 'tun.disabled to "yes". Allowed is false'],
  ["tun: {unsafe_routes: 10.0.0.0/8}", 'tun.unsafe_routes to "10.0.0.0/8". Allowed is a list'],
  ["punchy: {punch: maybe}", 'punchy.punch to "maybe". Allowed is true or false'],
  ["punchy: {delay: 5}", "punchy.delay to 5. Allowed is a duration"],
  ["punchy: {delay: soon}", 'punchy.delay to "soon". Allowed is a duration'],
  ["routines: many", 'routines to "many". Allowed is a whole number from 1 to 64'],
])("overrides.yml with %s is refused with its key and what is allowed", (text, message) => {
  const path = join(directory.path, "overrides.yml");
  writeFileSync(path, `${text}\n`);
  expect(() => finish("pki: {}\n")).toThrow(
    expect.objectContaining({
      code: "bad_configuration",
      message: expect.stringContaining(`${path} sets ${message}`),
      details: expect.objectContaining({ hint: expect.stringContaining("agent sync-config") }),
    }),
  );
});

test("overrides.yml may write values as the engine reads them, and set what this program does not know", () => {
  const text =
    "listen: {port: '4300'}\ntun: {mtu: 1200, disabled: no, routes: , of_later: [1]}\npunchy: {punch: yes, delay: 1m30s, respond_delay: 0}\nlogging:\n";
  writeFileSync(join(directory.path, "overrides.yml"), text);
  expect(finish("pki: {}\nlogging: {level: info}\n")).toMatchObject({
    listen: { port: 4300 },
    tun: { mtu: 1200, disabled: false, routes: null, of_later: [1] },
    punchy: { punch: true, delay: "1m30s", respond_delay: "0" },
    logging: { level: "info" },
  });
});

/** Each level contains the level below several times. */
function bomb(levels: number, width: number): string {
  const lines = [`a0: &a0 [${Array(width).fill("x").join(", ")}]`];
  for (let at = 1; at <= levels; at++) {
    lines.push(
      `a${at}: &a${at} [${Array(width)
        .fill(`*a${at - 1}`)
        .join(", ")}]`,
    );
  }
  return `${lines.join("\n")}\n`;
}

test("aliases that expand to a large tree are refused before they are expanded", () => {
  const long = `a: &a "${"x".repeat(10_000)}"\nb: [${Array(1000).fill("*a").join(", ")}]\n`;
  for (const text of [bomb(6, 10), bomb(18, 2), long, "pki: &a\n  b: *a\n"]) {
    const start = performance.now();
    expect(() => readYaml(text, "What was sent")).toThrow("What was sent uses too many aliases");
    expect(performance.now() - start).toBeLessThan(10_000);
  }
});

test("too deep nesting is refused", () => {
  for (const depth of [32, 5000, 100_000]) {
    const text = `a: ${"[".repeat(depth)}${"]".repeat(depth)}\n`;
    expect(() => readYaml(text, "It")).toThrow(/It has more than 32 levels|It is not valid YAML/);
  }
  readYaml(`a: ${"[".repeat(31)}${"]".repeat(31)}\n`, "It");
});

test("a configuration has at most 8 MiB and 200,000 nodes", () => {
  const large = `a: "${"é".repeat(4 * 1024 * 1024)}"\n`;
  expect(() => readYaml(large, "What was sent")).toThrow("What was sent has more than 8 MiB");
  readYaml(large.replace("é".repeat(10), ""), "It");
  // Nodes: the map, the list, and its items.
  const items = (count: number) => `a:\n${"- x\n".repeat(count)}`;
  readYaml(items(199_998), "It");
  const nodes: string[] = [
    items(199_999),
    items(1_000_000),
    `a: [${"x,".repeat(500_000)}x]\n`,
    `a: {${Array.from({ length: 300_000 }, (_, i) => `k${i}: 1`).join(", ")}}\n`,
    `a:\r${"- x\r".repeat(500_000)}`,
  ];
  for (const text of nodes) expect(() => readYaml(text, "It")).toThrow("It has more than 200000 nodes");
});

test("maps that are merged into many others are refused before the merge", () => {
  const keys = Array.from({ length: 50_000 }, (_, i) => `k${i}: 1`).join(", ");
  const wide = `a: &a {${keys}}\n${Array.from({ length: 30_000 }, (_, i) => `b${i}: {<<: *a}`).join("\n")}\n`;
  const chain = Array.from(
    { length: 30_000 },
    (_, i) => `a${i}: &a${i} {${i === 0 ? "" : `"\\u003c<":*a${i - 1}, `}y${i}: 1}`,
  ).join("\n");
  for (const text of [wide, chain]) expect(() => readYaml(text, "It")).toThrow("uses too many aliases");
  expect(readYaml("a: &a {x: 1}\nb: {<<: *a, y: 2}\n", "It")["b"]).toEqual({ x: 1, y: 2 });
});

test("the key __proto__ is left out, and a number that is not an integer is refused", () => {
  const tree = readYaml("__proto__: {x: 1}\na: {__proto__: {y: 1}, b: 2}\n", "It");
  expect(Object.entries(tree)).toEqual([["a", { b: 2 }]]);
  expect(() => readYaml("a: 1.5\n", "It")).toThrow("values that the engine does not accept");
});

test("a configuration in force of any size stays readable, so that a smaller one can replace it", () => {
  const large = `listen:\n  port: 4242\na:\n${"- x\n".repeat(250_000)}`;
  expect(() => readYaml(large, "It")).toThrow("has more than 200000 nodes");
  writeFileSync(join(directory.path, "config.yml"), large);
  expect(listenPort(directory.path)).toBe(4242);
  const after = "listen:\n  port: 4243\n";
  expect(keysNeedingRestart(large, after, "1.11.0").now).toEqual(["listen.port"]);
});

test("names that are too long for DNS are not resolved", () => {
  const map = (name: string) => `static_host_map:\n  "10.0.0.1": ["${name}:4242"]\n`;
  expect(hostNames(readYaml(map("a".repeat(253)), "It"))).toEqual(["a".repeat(253)]);
  expect(hostNames(readYaml(map("a".repeat(254)), "It"))).toEqual([]);
});

test("a dense text without aliases is accepted, and one with a few aliases too", () => {
  const dense = [
    "",
    "a:\n",
    "a: {b: {c: {}}}\n",
    `a: [${"1,".repeat(5000)}1]\n`,
    '"": ""\n',
    "a:\n- - - - x\n",
  ];
  for (const text of [...dense, "a: &a {port: 1, proto: tcp}\nb: [*a, *a]\n"]) readYaml(text, "It");
});

test("an engine is silent if the level before or after a change is; a damaged configuration is not", () => {
  let text = "logging: {level: error}";
  const fromError = rememberSilence(() => text);
  text = "logging: {level: info}";
  const fromInfo = rememberSilence(() => text);
  expect([fromError(), fromInfo()]).toEqual([true, false]);
  text = "logging: {level: WARN}";
  expect(fromInfo()).toBe(true);
  text = "logging: [";
  expect([rememberSilence(() => text)(), fromError()]).toEqual([false, true]);
});

test("a restart is needed for what the engine's version cannot reload, and for nothing else", () => {
  const needs = (before: string, after: string, engine: string | undefined) =>
    keysNeedingRestart(before, after, engine).now;
  const routes = (route: string) => `tun:\n  unsafe_routes:\n    - {route: ${route}, via: 10.0.0.1}\n`;
  for (const [engine, expected] of [
    ["1.6.1", ["tun.unsafe_routes"]],
    [undefined, ["tun.unsafe_routes"]],
    ["1.9.0", []],
  ] as const)
    expect(needs(routes("10.1.0.0/24"), routes("10.2.0.0/24"), engine)).toEqual([...expected]);
  const relay = (yes: boolean) => `relay: {am_relay: ${yes}, use_relays: true, relays: []}\n`;
  expect(needs(relay(false), relay(true), "1.6.1")).toEqual([]);
  expect(needs(relay(true), relay(false), "1.10.3")).toEqual(["relay.am_relay"]);
  expect(needs(relay(true), relay(false), "1.11.0")).toEqual([]);
  const rules = "firewall: {inbound: []}\npki: {blocklist: [a]}\nlogging: {level: debug}\n";
  expect(needs("firewall: {inbound: [{port: any}]}\n", rules, "1.6.1")).toEqual([]);
  expect(keysNeedingRestart("", "timers: {connection_alive_interval: 2}\n", "1.12.0")).toEqual({
    now: [],
    later: ["timers.connection_alive_interval"],
  });
});
