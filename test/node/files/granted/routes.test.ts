// Routes that a control plane may send: networks behind its nodes, but not most of the internet or local networks.

import { describe, expect, test } from "bun:test";
import * as fc from "fast-check";
import { checkRoutes, refusedNetworks, type RouteRules } from "../../../../src/node/files/granted/routes.ts";
import { takesInternet } from "../../../../src/node/files/granted/internet-share.ts";

const none: RouteRules = {
  slug: "acme",
  ownOverlay: ["10.77.0.0/16"],
  otherOverlays: [{ slug: "other", network: "10.88.0.0/16" }],
  attached: [],
  machineRoutes: [],
  otherRoutes: [],
  inForce: [],
  needed: [],
  allowed: [],
  formerlyRouted: [],
};
const check = (routes: string[], rules: Partial<RouteRules> = {}) =>
  checkRoutes(routes, { ...none, ...rules });
const kept = (routes: string[], rules: Partial<RouteRules> = {}) => {
  const { refused, here } = check(routes, rules);
  return routes.filter((each) => !refused.has(each) && !here.has(each));
};
const split = (prefix: number, from = 0, to = 2 ** prefix) =>
  Array.from({ length: to - from }, (_, at) => `${((from + at) * 2 ** (8 - prefix)) % 256}.0.0.0/${prefix}`);

/** Routes of the internet that a former version had accepted. */
const keptFromBefore = (routes: string[], rules: Partial<RouteRules> = {}) =>
  kept(routes, { formerlyRouted: routes, ...rules });

test("private networks behind nodes are accepted", () => {
  const routes = ["192.168.1.0/24", "10.128.0.0/9", "172.16.0.0/12", "fd00:1::/48"];
  expect(kept(routes)).toEqual(routes);
  expect(kept(["10.192.0.0/10", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"])).toHaveLength(4);
});

test("the smallest part of the internet needs root's permission, unless it was in force before", () => {
  const routes = ["8.8.8.8/32", "203.0.113.0/24", "2001:db8::/32", "10.0.0.0/7"];
  expect(kept(routes)).toEqual([]);
  expect(check(routes).refused.get("8.8.8.8/32")).toBe(
    "it is a part of the internet, which only root of this machine may route into an overlay",
  );
  expect(kept(routes, { allowed: ["8.8.8.8/32", "203.0.0.0/8"] })).toEqual(["8.8.8.8/32", "203.0.113.0/24"]);
  expect(kept(routes, { formerlyRouted: ["8.8.8.8/32"] })).toEqual(["8.8.8.8/32"]);
  // What the machine needs stays out of it, also later.
  const needed = [{ network: "8.8.8.8/32", name: "a name server of this machine" }];
  expect(kept(routes, { formerlyRouted: routes, needed })).not.toContain("8.8.8.8/32");
});

const most: [string, string[]][] = [
  ["a default route", ["0.0.0.0/0"]],
  ["two halves", ["0.0.0.0/1", "128.0.0.0/1"]],
  ["four quarters", split(2)],
  ["nearly everything", split(4).slice(1)],
  ["one half alone", ["128.0.0.0/1"]],
  ["the default route of IPv6", ["::/0"]],
  ["the internet of IPv6", ["2000::/3"]],
  ["halves of it", ["2000::/4", "3000::/4"]],
  ["IPv4 through NAT64", ["64:ff9b::/96"]],
  ["a part of NAT64", ["64:ff9b::/97", "64:ff9b::8000:0/97"]],
  ["more than NAT64", ["64:ff9b::/64"]],
];
for (const [what, routes] of most) {
  test(`${what} is left out, and other routes stay`, () => {
    expect(keptFromBefore([...routes, "192.168.1.0/24", "fd00::/48"])).toEqual([
      "192.168.1.0/24",
      "fd00::/48",
    ]);
  });
}

test("many small routes that add up to the internet are left out too", () => {
  const all = Array.from({ length: 4096 }, (_, at) => `${at >> 4}.${(at & 15) * 16}.0.0/12`);
  const left = keptFromBefore(all).filter((each) => !/^(10|192\.168|172|100|198)\./.test(each));
  expect(left).toEqual([]);
});

test("addresses of the machine itself and of its links are never routed", () => {
  const never = [
    "127.0.0.0/8",
    "127.0.0.1/32",
    "169.254.169.254/32",
    "224.0.0.0/4",
    "::1/128",
    "fe80::/10",
    "ff02::/16",
  ];
  expect(kept(never)).toEqual([]);
});

test("the overlay's own network and another organization's are left out", () => {
  expect(
    kept(["10.77.1.0/24", "10.77.0.0/16", "10.88.0.0/16", "10.88.3.0/24", "10.88.0.0/15", "10.0.0.0/8"]),
  ).toEqual([]);
  expect(check(["10.88.3.0/24"]).refused.get("10.88.3.0/24")).toContain('"other"');
  // The administrator can allow a wider network, but nothing inside another overlay.
  expect(kept(["10.0.0.0/8", "10.88.3.0/24"], { allowed: ["10.0.0.0/8"] })).toEqual(["10.0.0.0/8"]);
});

const attached = [
  { network: "192.168.1.0/24", device: "wlan0" },
  { network: "2001:db8:1::/64", device: "wlan0" },
];
const plane = { network: "203.0.113.9/32", name: "the control plane of other" };

test("a network of this machine is not routed, allowed or not; it is no fault where the route leads here", () => {
  const inside = ["192.168.1.128/25", "192.168.1.7/32", "2001:db8:1::7/128"];
  // The network of an interface wins over a wider route.
  const others = ["192.168.0.0/16", "192.168.2.0/24", "2001:db8::/32", "2001:db8:2::/64"];
  for (const allowed of [[], ["0.0.0.0/0", "::/0"]]) {
    const sent = ["192.168.1.0/24", ...inside, ...others];
    const { refused, here } = check(sent, { attached, allowed, formerlyRouted: others });
    expect([...refused.keys()]).toEqual(inside);
    expect(here.get("192.168.1.0/24")).toBe("this machine is in it by its interface wlan0");
  }
});

test("a route that equals one of this machine is refused, allowed or not", () => {
  const machineRoutes = [{ network: "10.9.0.0/16", name: "a route of this machine through eth0" }];
  for (const allowed of [[], ["10.9.0.0/16"]]) {
    const { refused } = check(["10.9.0.0/16", "10.9.1.0/24", "10.8.0.0/14"], { machineRoutes, allowed });
    expect([...refused]).toEqual([["10.9.0.0/16", "there is a route of this machine through eth0 to it"]]);
  }
});

describe("a route of another organization", () => {
  const otherRoutes: RouteRules["otherRoutes"] = [{ slug: "other", network: "10.9.0.0/16" }];
  const refusal = (route: string, rules: Partial<RouteRules> = {}) =>
    check([route], { otherRoutes, ...rules }).refused.get(route);
  const inside = 'it lies in 10.9.0.0/16, a route of the organization "other"';
  const around = 'it contains 10.9.0.0/16, a route of the organization "other"';
  const equal = 'there is a route of the organization "other" to it';

  test("keeps its traffic: nothing inside it, around it or equal to it is new", () => {
    expect([refusal("10.9.3.0/24"), refusal("10.9.0.0/17"), refusal("10.9.255.255/32")]).toEqual([
      inside,
      inside,
      inside,
    ]);
    expect([refusal("10.8.0.0/15"), refusal("10.0.0.0/10")]).toEqual([around, around]);
    expect(refusal("10.9.0.0/16")).toBe(equal);
    expect(refusal("10.10.0.0/16")).toBeUndefined();
  });

  test("gives way only where root says so, and never to an equal one", () => {
    const allowed = ["10.0.0.0/8"];
    expect([refusal("10.9.3.0/24", { allowed }), refusal("10.8.0.0/15", { allowed })]).toEqual([
      undefined,
      undefined,
    ]);
    expect(refusal("10.9.0.0/16", { allowed })).toBe(equal);
  });

  test("ends one inside it that was in force before, and leaves one around it", () => {
    const inForce = ["10.9.3.0/24", "10.8.0.0/15"];
    expect([refusal("10.9.3.0/24", { inForce }), refusal("10.8.0.0/15", { inForce })]).toEqual([
      inside,
      undefined,
    ]);
  });

  test("that both have in force stays with the first by name", () => {
    const inForce = ["10.9.0.0/16"];
    expect(refusal("10.9.0.0/16", { inForce })).toBeUndefined();
    expect(check(["10.9.0.0/16"], { slug: "zoo", otherRoutes, inForce }).refused.size).toBe(1);
  });

  test("that three have in force stays with the first by name alone", () => {
    const [network, slugs] = ["10.9.0.0/16", ["a", "b", "c"]];
    const keeping = slugs.filter((slug) => {
      const others = slugs.filter((each) => each !== slug).map((each) => ({ slug: each, network }));
      return check([network], { slug, otherRoutes: others, inForce: [network] }).refused.size === 0;
    });
    expect(keeping).toEqual(["a"]);
  });

  test("does not count where it is as wide as a default route, which only root allows", () => {
    expect(
      refusal("10.9.3.0/24", { otherRoutes: [{ slug: "other", network: "0.0.0.0/0" }] }),
    ).toBeUndefined();
  });

  test("refuses a new overlay network inside or around it, not where root allows it", () => {
    for (const network of ["10.9.3.0/24", "10.8.0.0/15", "10.9.0.0/16"]) {
      const rules = { ...none, otherRoutes, isSpecialAllowed: false };
      expect(refusedNetworks([network], rules).get(network)).toContain('"other"');
      expect(refusedNetworks([network], { ...rules, allowed: [network] }).size).toBe(0);
    }
  });
});

test("an address that this machine needs is not routed, unless a longer route of the machine reaches it", () => {
  const server = (address: string) => ({ network: `${address}/32`, name: "a name server of this machine" });
  const needed = [plane, server("10.0.0.53"), server("192.168.1.1"), server("10.4.0.53")];
  const machineRoutes = [{ network: "10.4.0.0/24", name: "a route of this machine through eth0" }];
  const rules = { needed, attached, machineRoutes, formerlyRouted: ["203.0.113.8/32"] };
  expect(check(["203.0.113.0/24"], rules).refused.get("203.0.113.0/24")).toBe(
    "it overlaps 203.0.113.9/32, the control plane of other",
  );
  const taken = ["203.0.113.9/32", "203.0.113.0/24", "10.0.0.53/32", "10.0.0.0/16", "10.4.0.53/32"];
  const harmless = ["203.0.113.8/32", "192.168.0.0/16", "10.4.0.0/16"];
  expect(kept([...taken, ...harmless], rules)).toEqual(harmless);
  expect(kept(taken, { ...rules, allowed: ["203.0.113.9/32", "10.0.0.0/8"] })).toEqual([
    "203.0.113.9/32",
    "10.0.0.53/32",
    "10.0.0.0/16",
    "10.4.0.53/32",
  ]);
});

test("routes that the administrator has allowed are accepted", () => {
  expect(kept(["0.0.0.0/1", "128.0.0.0/1"], { allowed: ["0.0.0.0/0"] })).toHaveLength(2);
  expect(kept(["0.0.0.0/0", "::/0"], { allowed: ["0.0.0.0/0"] })).toEqual(["0.0.0.0/0"]);
});

test("the certificate's network counts as routed too", () => {
  expect(takesInternet(["0.0.0.0/0"])).toBe(true);
  expect(takesInternet(["128.0.0.0/1"])).toBe(true);
  expect(takesInternet(["10.0.0.0/8", "fd00::/8", "42.0.0.0/8"])).toBe(false);
  expect(keptFromBefore(["8.0.0.0/8"], { ownOverlay: ["48.0.0.0/5"] })).toEqual([]);
});

/** The share of IPv4 that public routes cover, by a sweep over their ends. */
function coveredShare(routes: readonly string[]): number {
  const spans = routes
    .filter(
      (each) =>
        !/^(10|192\.168|192\.0\.0|172\.(1[6-9]|2\d|3[01])|100\.(6[4-9]|[7-9]\d|1[01]\d|12[0-7])|198\.1[89])\./.test(
          each,
        ),
    )
    .map((each) => {
      const [address = "", prefix = ""] = each.split("/");
      const first = address.split(".").reduce((sum, byte) => sum * 256 + Number(byte), 0);
      return [first, first + 2 ** (32 - Number(prefix))] as const;
    })
    .sort(([a], [b]) => a - b);
  let [sum, end] = [0, 0];
  for (const [first, last] of spans) {
    sum += Math.max(0, last - Math.max(first, end));
    end = Math.max(end, last);
  }
  return sum / 2 ** 32;
}

test("public routes that stay from before cover at most 1/32 of IPv4 for any input", () => {
  const route = fc
    .tuple(
      fc.nat({ max: 2 ** 32 - 1 }),
      fc.oneof(fc.integer({ min: 0, max: 9 }), fc.integer({ min: 0, max: 32 })),
    )
    .map(([value, prefix]) => {
      const base = value - (value % 2 ** (32 - prefix));
      return `${[24, 16, 8, 0].map((shift) => Math.floor(base / 2 ** shift) % 256).join(".")}/${prefix}`;
    });
  fc.assert(
    fc.property(
      fc.array(route, { maxLength: 60 }),
      (routes) => coveredShare(keptFromBefore(routes)) <= 1 / 32,
    ),
  );
});
