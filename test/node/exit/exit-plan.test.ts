// The way to an exit as rules, routes and nftables, and which exit is chosen.

import { describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { internetNetworks, networksOverlap, parseNetwork, parseNetworks } from "../../../src/base/ip.ts";
import { blockFile, grantExit, staysClosed, withExit } from "../../../src/node/files/granted/exits.ts";
import { noPermissions } from "../../../src/node/files/permissions.ts";
import { localNetworks, planExit, type ExitFacts } from "../../../src/node/exit/exit-plan.ts";
import { exitBody } from "../../../src/node/exit/serve-exit.ts";
import { chooseExit } from "../../../src/node/exit/choose-exit.ts";
import { emptyMachine } from "../../support/machine.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const facts = (fields: Partial<ExitFacts> = {}): ExitFacts => ({
  device: "ov-acme",
  own: { ip: "10.77.0.5", ip6: undefined },
  exit: { ip: "10.77.0.1", ip6: undefined },
  hasDevice: true,
  strict: false,
  lan: true,
  mark: 0x6f76,
  hosts: ["192.0.2.1/32"],
  others: { networks: ["10.88.0.0/16"], devices: ["ov-other"] },
  overlay: ["10.77.0.0/16"],
  attached: ["192.168.1.20/24", "203.0.113.7/24"],
  nameServers: ["127.0.0.53", "192.168.1.1", "10.77.0.9"],
  ...fields,
});

describe("the internet", () => {
  test("holds no private and no special network, and not the overlay's", () => {
    const all = parseNetworks(internetNetworks(["203.0.113.0/24"]));
    for (const text of [
      "10.0.0.0/8",
      "192.168.0.0/16",
      "127.0.0.0/8",
      "224.0.0.0/4",
      "203.0.113.0/24",
      "fc00::/7",
    ]) {
      const closed = parseNetwork(text);
      expect([text, closed && all.find((each) => networksOverlap(each, closed))]).toEqual([text, undefined]);
    }
    for (const text of ["8.8.8.8/32", "203.0.112.255/32", "2001:db8::1/128"]) {
      const open = parseNetwork(text);
      expect(all.some((each) => open !== undefined && networksOverlap(each, open))).toBe(true);
    }
    expect(all.length).toBeLessThan(100);
  });
});

describe("the plan of an exit", () => {
  test("keeps private networks without a default route, and nothing public", () => {
    const words = planExit(facts()).rules[4].map(([, each]) => each);
    expect(words[0]).toBe("fwmark 0x6f76 lookup main");
    expect(words.at(-1)).toBe("lookup 7783");
    expect(words).toContain("to 192.168.0.0/16 lookup main suppress_prefixlength 0");
    expect(words).toContain("to 192.0.2.1 lookup main");
    expect(words).toContain("to 10.88.0.0/16 lookup main");
    expect(words.join("\n")).not.toContain("203.0.113");
  });

  test("without a local network keeps the overlays alone", () => {
    const words = planExit(facts({ lan: false })).rules[4].map(([, each]) => each);
    expect(words.join("\n")).not.toContain("192.168");
    expect(words).toContain("to 10.77.0.0/16 lookup main suppress_prefixlength 0");
  });

  test("leaves IPv6 alone without a way for it, and blocks it where it is strict", () => {
    expect(planExit(facts()).rules[6]).toEqual([]);
    const strict = planExit(facts({ strict: true }));
    expect(strict.routes[6]).toEqual(["unreachable default metric 4278198272"]);
    expect(strict.rules[6].at(-1)).toEqual([7705, "lookup 7783"]);
    const both = { own: { ip: "10.77.0.5", ip6: "fd77::5" }, exit: { ip: "10.77.0.1", ip6: "fd77::1" } };
    expect(planExit(facts(both)).routes[6]).toEqual(["default dev ov-acme"]);
  });

  test("strict keeps no default route without the interface, and lets only private attached networks out", () => {
    const { routes, nft = "" } = planExit(facts({ strict: true, hasDevice: false }));
    expect(routes[4]).toEqual(["unreachable default metric 4278198272"]);
    expect(nft).toContain("ip daddr { 192.168.1.0/24 } accept");
    expect(nft).not.toContain("203.0.113");
    expect(nft.indexOf("th dport { 53, 853 } drop")).toBeLessThan(nft.indexOf("192.168.1.0/24"));
    expect(localNetworks(["203.0.113.7/24", "fd00::5/64", "172.16.9.1/20"])).toEqual([
      "172.16.0.0/20",
      "fd00::/64",
    ]);
  });

  test("sends questions for names to the exit, but those to loopback and overlays", () => {
    const { nft = "" } = planExit(facts());
    expect(nft).toContain(
      "ip daddr { 192.168.1.1 } meta l4proto { tcp, udp } th dport 53 dnat ip to 10.77.0.1",
    );
    expect(planExit(facts({ nameServers: [] })).nft).toBeUndefined();
  });
});

describe("the table of an exit", () => {
  const tenant = (slug: string, network: string, device: string) => ({
    slug,
    networks: [network],
    addresses: [network.replace(/0\.0\/16$/, "0.1")],
    routes: [],
    inForce: { device },
  });
  const machine = {
    ...emptyMachine,
    hosts: [],
    tenants: [tenant("acme", "10.77.0.0/16", "ov-acme"), tenant("other", "44.0.0.0/16", "mesh0")],
  };
  const body = exitBody("acme", machine, { subnets: ["192.168.7.0/24"], isOpen: true }) ?? "";

  test("forwards no translation but its own, and nothing to another organization", () => {
    expect(body).not.toContain("ct status dnat accept");
    expect(body).toContain("ct status dnat ct original ip daddr 10.77.0.1 accept");
    expect(body).toContain('iifname "ov-acme" oifname "mesh0" drop');
  });

  test("forwards nothing to what answers this machine alone: by 168.63.129.16, Azure tells its machines their keys", () => {
    const drop = body.split("\n").find((line) => line.includes("168.63.129.16"));
    expect(drop).toContain('iifname "ov-acme" ip daddr {');
    expect(drop).toEndWith("drop");
  });

  test("leaves addresses as they are for networks behind it", () => {
    const at = body.indexOf("ip daddr { 192.168.7.0/24 } return");
    expect(at).toBeGreaterThan(body.indexOf("hook postrouting"));
    expect(at).toBeLessThan(body.indexOf("masquerade"));
  });
});

test("a strict exit stays closed while its permissions are damaged, until they say off", () => {
  using directory = temporaryDirectory();
  const write = (name: string, text: string) =>
    writeFileSync(join(directory.path, name), text, { mode: 0o600 });
  expect(staysClosed(directory.path)).toBe(false);
  write("permissions.json", "{");
  expect(staysClosed(directory.path)).toBe(false);
  writeFileSync(blockFile(directory.path), "");
  expect(staysClosed(directory.path)).toBe(true);
  write("permissions.json", JSON.stringify(noPermissions));
  expect(staysClosed(directory.path)).toBe(false);
  write(
    "permissions.json",
    JSON.stringify({ ...noPermissions, exit: { use: "auto", strict: true, lan: true } }),
  );
  expect(staysClosed(directory.path)).toBe(true);
});

describe("the choice of an exit", () => {
  const node = {
    exits: ["one", "two"].map((name, at) => ({ name, ip_address: `10.77.0.${at + 1}`, ip_address6: null })),
    ip_address6: null,
    network: "10.77.0.0/16",
  };
  const auto = { use: "auto", strict: false, lan: true };

  test("needs a word on this machine", () => {
    expect(grantExit({}, node, "10.77.0.1")).toBeUndefined();
    using directory = temporaryDirectory();
    const config = { tun: { unsafe_routes: [] } };
    expect(withExit(config, directory.path, "1.12.0")).toBe(config);
  });

  test("stays with a living exit, and takes the nearest other one", () => {
    const use = grantExit({ exit: auto }, node, "10.77.0.1");
    if (use === undefined) throw new Error("No use");
    const heard = (at1: number, at2: number) =>
      new Map([
        ["10.77.0.1", { at: at1, rttMs: 50 }],
        ["10.77.0.2", { at: at2, rttMs: 5 }],
      ]);
    const at = (now: number, map: ReturnType<typeof heard>, { triedAt = 0, left = -Infinity } = {}) => {
      const leftAt = new Map([["10.77.0.2", left]]);
      const { exit, isAlive, isSure } = chooseExit(use, { now, heard: map, triedAt, leftAt });
      return [exit?.name, isAlive, isSure];
    };
    expect(at(10_000, heard(9_000, 9_500))).toEqual(["one", true, true]);
    // The other one is tried, and used once it lets packets through.
    expect(at(10_000, heard(6_000, 9_500))).toEqual(["two", false, false]);
    expect(at(10_000, heard(6_000, 9_500), { triedAt: 9_000 })).toEqual(["one", false, false]);
    expect(at(10_000, heard(6_000, 9_500), { left: 0 })).toEqual(["one", false, true]);
    expect(at(40_000, heard(6_000, 39_500), { left: 0 })).toEqual(["two", false, false]);
    expect(at(20_000, heard(6_000, 9_500))).toEqual(["one", false, true]);
  });

  test("takes no address outside the overlay, and no text that would be a command", () => {
    for (const ip_address of ["8.8.8.8", "10.77.0.1; flush ruleset", "fd77::1", ""]) {
      const exits = [{ name: "one", ip_address, ip_address6: null }];
      expect(grantExit({ exit: auto }, { ...node, exits }, undefined)?.candidates).toEqual([]);
    }
  });

  test("takes only the named exit, and none that the control plane does not name", () => {
    expect(grantExit({ exit: { ...auto, use: "two" } }, node, undefined)?.exit?.ip).toBe("10.77.0.2");
    expect(grantExit({ exit: { ...auto, use: "three" } }, node, undefined)?.exit).toBeUndefined();
  });
});
