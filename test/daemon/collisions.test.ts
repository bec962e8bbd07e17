// Which organizations can run side by side on one machine.

import { describe, expect, test } from "bun:test";
import { readClaim, refuseCollision, type Claim } from "../../src/daemon/collisions.ts";
import { AppError } from "../../src/base/errors.ts";

const claim = (change: Partial<Claim> = {}): Claim => ({
  slug: "acme",
  device: "overlay1",
  listen: { host: "0.0.0.0", port: 4242 },
  networks: ["10.77.0.0/16"],
  silent: false,
  ...change,
});

describe("readClaim()", () => {
  test("reads device, port and networks", () => {
    const text = '"tun":\n  "dev": "overlay-network-01"\n"listen":\n  "host": "::"\n  "port": 4243\n';
    expect(readClaim("acme", text, ["10.77.0.0/16"])).toEqual({
      slug: "acme",
      // Truncated as the kernel does.
      device: "overlay-network",
      listen: { host: "::", port: 4243 },
      networks: ["10.77.0.0/16"],
      silent: false,
    });
  });

  test("claims nothing that the system chooses or the configuration disables", () => {
    const free = readClaim("acme", "listen: {port: 0}\ntun: {dev: ''}\nlogging: {level: warning}\n", []);
    expect(free).toMatchObject({ device: undefined, listen: undefined, silent: true });
    const off = readClaim("acme", "tun: {disabled: true, dev: x}\n", ["10.0.0.0/8"]);
    expect(off).toMatchObject({ device: undefined, networks: [] });
  });

  test("refuses an invalid configuration", () => {
    for (const text of ["tun: 7\n", "tun: {dev: [}\n", ""]) {
      expect(() => readClaim("acme", text, [])).toThrow(AppError);
    }
  });
});

describe("refuseCollision()", () => {
  const other = claim({
    slug: "beta",
    device: "overlay2",
    listen: { host: "0.0.0.0", port: 4243 },
    networks: ["10.78.0.0/16"],
  });

  test("accepts organizations that share nothing, and an organization beside itself", () => {
    refuseCollision(claim(), [other, claim()]);
    refuseCollision(claim({ listen: { host: "192.0.2.1", port: 4243 } }), [
      { ...other, listen: { host: "192.0.2.2", port: 4243 } },
    ]);
    refuseCollision(claim({ networks: ["fd77::/64"] }), [
      { ...other, networks: ["fd78::/64", "10.77.0.0/16"] },
    ]);
  });

  const cases: [string, Partial<Claim>, string][] = [
    ["the same interface", { device: "overlay2" }, "the interface overlay2"],
    ["the same port", { listen: { host: "0.0.0.0", port: 4243 } }, "the UDP port 4243"],
    [
      "the same port, one on every address",
      { listen: { host: "192.0.2.1", port: 4243 } },
      "the UDP port 4243",
    ],
    [
      "the same port, on every address of both families",
      { listen: { host: "[::]", port: 4243 } },
      "the UDP port 4243",
    ],
    ["the same network", { networks: ["10.78.0.0/16"] }, "overlap"],
    ["a network inside the other", { networks: ["10.78.4.0/24"] }, "overlap"],
    ["a network around the other", { networks: ["10.76.0.0/14"] }, "overlap"],
  ];
  for (const [what, change, reason] of cases) {
    test(`refuses ${what} with the reason`, () => {
      expect(() => refuseCollision(claim(change), [other])).toThrow(`acme cannot run beside beta: `);
      expect(() => refuseCollision(claim(change), [other])).toThrow(reason);
    });
  }
});
