// The sentence of `status` about the end of a certificate.

import { expect, test } from "bun:test";
import { certificateWarning } from "../../../src/node/files/organization-facts.ts";

test("the end of a certificate is told in whole days, and less than one as such", () => {
  const now = Date.UTC(2026, 10, 21);
  const told = (days: number) =>
    certificateWarning({ certificate_not_after: new Date(now + days * 86_400_000).toISOString() }, now);
  expect([14, 13.5, 1.5, 0.5, -0.5].map(told)).toEqual([
    undefined,
    "The certificate ends in 13 days",
    "The certificate ends in 1 day",
    "The certificate ends within a day",
    "The certificate has expired",
  ]);
});
