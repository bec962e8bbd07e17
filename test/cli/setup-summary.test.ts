import { expect, test } from "bun:test";
import { summary } from "../../src/cli/setup-steps.ts";

const request = {
  publicUrl: "https://control.example.org",
  newcomer: undefined,
  administrator: { email: "ada@example.org", password: undefined },
  org: { slug: "acme", network: "10.77.0.0/16" },
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
