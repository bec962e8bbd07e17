import { expect, test } from "bun:test";
import { summary } from "../../src/cli/server/setup-steps.ts";

const request = {
  publicUrl: "https://control.example.org",
  newcomer: undefined,
  administrator: { email: "ada@example.org", password: undefined },
  org: { slug: "acme", network: "10.77.0.0/16" },
  counted: { nodes: 3, lighthouses: 1 },
};
const made = { unit: "overlay-agent-control.service", joined: undefined, keys: ["oaj1KEY"] };

test("setup ends with the console and the line that signs in from another machine, with the CA's fingerprint", () => {
  const lines = summary(request, { ...made, caFingerprint: "sha256:00ff" }).split("\n");
  expect(lines).toContain("  agent up oaj1KEY");
  expect(lines).toContain("The console: https://control.example.org/console/");
  expect(lines).toContain(
    "To administer from another machine, type there: agent login --api-base https://control.example.org --ca-fingerprint sha256:00ff",
  );
});

test("with a public certificate there is no fingerprint to give", () => {
  expect(summary(request, { ...made, caFingerprint: undefined })).not.toContain("fingerprint");
});

test("from ten nodes on, a second lighthouse is advised with the two lines that make it", () => {
  const made = {
    unit: "overlay-agent-control.service",
    joined: undefined,
    keys: [],
    caFingerprint: undefined,
  };
  const said = (nodes: number, lighthouses: number) =>
    summary({ ...request, counted: { nodes, lighthouses } }, made);
  const text = said(10, 1);
  expect(text).toContain("10 nodes find each other by one lighthouse");
  expect(text.split("\n")).toEqual(
    expect.arrayContaining(["  agent admin token create acme --lighthouse", "  agent up KEY"]),
  );
  for (const [nodes, lighthouses] of [
    [9, 1],
    [10, 2],
    [10, 0],
  ] as const)
    expect(said(nodes, lighthouses)).not.toContain("second");
});
