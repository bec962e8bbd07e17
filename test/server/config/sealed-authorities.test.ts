// What a signer is shown of the CAs of the control plane, with real certificates of CAs.

import { expect, test } from "bun:test";
import { encodePem } from "../../../src/pki/bundle.ts";
import { decodeCaBundle, fingerprint, makeCa } from "../../../src/pki/nebula.ts";
import { caLifetimeS, noNetworks } from "../../../src/server/certificates/ca-limits.ts";
import { makeAuthorities } from "../../../src/server/certificates/make-authorities.ts";
import { authorityWords } from "../../../src/server/config/sealed-authorities.ts";
import { realSystem } from "../../../src/base/system.ts";
import { sealOf } from "../../support/seals.ts";

const nowMs = Date.UTC(2026, 10, 28);
const notBefore = nowMs / 1000;
const limits = {
  version: 1 as const,
  name: "acme overlay CA",
  notBefore,
  notAfter: notBefore + caLifetimeS,
  networks: ["10.77.0.0/16"],
  unsafeNetworks: [...noNetworks],
};
const offline = "f".repeat(64);
const content = (mode: "observe" | "enforce", authorities: readonly string[]) => ({
  mode,
  state: {
    ...sealOf({ signers: [] }).state,
    authorities: [offline, ...authorities],
    sealing: { offline: [offline], privileged: [], revoked: [] },
  },
});
const made = (change: Partial<Parameters<typeof makeCa>[0]> = {}) => {
  const { certificate } = makeCa({ ...limits, ...change });
  return { print: fingerprint(certificate), pem: encodePem(certificate) };
};
const codeOf = (act: () => unknown) => {
  try {
    act();
    return "nothing";
  } catch (error) {
    return `${(error as { code?: string }).code}: ${(error as Error).message}`;
  }
};

test("a CA that the control plane makes with limits is shown in words, and may be enforced", async () => {
  const clock = { requireBelieved: () => undefined };
  const options = { system: realSystem(), secretKey: new Uint8Array(32), clock } as unknown as Parameters<
    typeof makeAuthorities
  >[0];
  const [overlay] = await makeAuthorities(options, "acme", nowMs, "10.77.0.0/16");
  const pem = overlay?.certificate ?? "";
  const [ca] = decodeCaBundle(pem);
  const print = ca === undefined ? "" : fingerprint(ca);
  const words = authorityWords(undefined, content("enforce", [print]), pem);
  expect(words).toEqual([
    `CA ${print}: "acme overlay CA"; version 1; networks: 10.77.0.0/16; networks behind nodes: none (0.0.0.0/32); groups: any; from 2026-11-27T23:55:00.000Z to 2028-11-26T23:55:00.000Z (730 days)`,
  ]);
  // Known: nothing to tell.
  expect(authorityWords(content("enforce", [print]), content("enforce", [print]), undefined)).toEqual([]);
});

test("a CA beyond the limits is told while nodes observe, and refused once they enforce", () => {
  const forged: [string, Parameters<typeof made>[0], string][] = [
    ["a wider network", { networks: ["10.0.0.0/8"] }, "it certifies 10.0.0.0/8, not 10.77.0.0/16 alone"],
    ["two networks", { networks: ["10.77.0.0/16", "10.78.0.0/16"] }, "10.77.0.0/16, 10.78.0.0/16, not"],
    ["any network", { networks: [] }, "it certifies any network, not"],
    ["any network behind", { unsafeNetworks: [] }, "it certifies any network behind nodes, not none"],
    ["all behind", { unsafeNetworks: ["0.0.0.0/0"] }, "it certifies 0.0.0.0/0 behind nodes, not none"],
    [
      "one more behind",
      { unsafeNetworks: ["0.0.0.0/32", "192.168.5.0/24"] },
      "0.0.0.0/32, 192.168.5.0/24 behind",
    ],
    ["a longer life", { notAfter: limits.notAfter + 86_400 }, "it lives for 731 days, not at most 730"],
    ["version 2", { version: 2, networks: ["10.77.0.0/16"] }, "it has version 2"],
  ];
  for (const [what, change, reason] of forged) {
    const { print, pem } = made(change);
    const told = authorityWords(undefined, content("observe", [print]), pem);
    expect([what, told.slice(1).join()]).toEqual([what, expect.stringContaining(reason)]);
    expect([what, codeOf(() => authorityWords(undefined, content("enforce", [print]), pem))]).toEqual([
      what,
      expect.stringMatching(/^conflict: /),
    ]);
    const before = content("enforce", [made().print]);
    expect([what, codeOf(() => authorityWords(before, content("enforce", [print]), pem))]).toEqual([
      what,
      expect.stringMatching(/^untrusted_answer: /),
    ]);
  }
});

test("a certificate that is withheld, or another one, does not stand for the CA of the seal", () => {
  const { print } = made();
  const other = made();
  for (const pem of [undefined, "", other.pem]) {
    expect(authorityWords(undefined, content("observe", [print]), pem)).toEqual([
      `CA ${print}: unknown`,
      "! Not limited, as --enforce demands: the control plane does not send its certificate",
    ]);
    expect(codeOf(() => authorityWords(undefined, content("enforce", [print]), pem))).toContain(
      "does not send",
    );
  }
});

test("a CA that was known while nodes observed is proved when they begin to enforce", () => {
  const { print, pem } = made({ unsafeNetworks: [] });
  const known = content("observe", [print]);
  expect(authorityWords(known, content("observe", [print]), pem)).toEqual([]);
  expect(codeOf(() => authorityWords(known, content("enforce", [print]), pem))).toContain("behind nodes");
  // An offline CA that is none any more must be limited, too.
  const former = content("enforce", []);
  const next = content("enforce", []);
  const state = { ...next.state, sealing: { ...next.state.sealing, offline: ["e".repeat(64)] } };
  expect(codeOf(() => authorityWords(former, { ...next, state }, undefined))).toContain("does not send");
});

test("names of a thief's CA cannot forge a line", () => {
  const { print, pem } = made({ name: 'a"\nCA of the control plane' });
  expect(authorityWords(undefined, content("observe", [print]), pem)[0]).toContain(
    '"a\\"\\nCA of the control plane"',
  );
});

test("an organization with an IPv6 network learns before it enforces that it never can, and what to do", () => {
  const { print, pem } = made();
  const withIpv6 = (mode: "observe" | "enforce") => {
    const { state } = content(mode, [print]);
    return { mode, state: { ...state, networks: [...state.networks, "fd77::/64"] } };
  };
  const [first = ""] = authorityWords(undefined, withIpv6("observe"), pem);
  expect(first).toStartWith("! acme has the IPv6 network fd77::/64, so its nodes can only observe seals.");
  expect(first).toContain("create an organization without an IPv6 network (`agent admin org create`)");
  expect(authorityWords(withIpv6("observe"), withIpv6("observe"), pem)).toEqual([first]);
  expect(codeOf(() => authorityWords(withIpv6("observe"), withIpv6("enforce"), pem))).toStartWith(
    "conflict: acme has the IPv6 network fd77::/64",
  );
});
