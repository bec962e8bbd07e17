import { expect, test } from "bun:test";
import { stateAfter } from "../../../../src/node/edge/port-mapping/keep-mapping.ts";

const place = { gateway: "192.168.1.1", client: "192.168.1.20", port: 4242, boot: "b" };
const held = { by: "UPnP", port: 4242, external: 4242, nonce: new Uint8Array(12) } as const;
const systemAt = (ms: number) => ({ now: () => 0, bootTime: () => ({ id: "b", ms, isShared: false }) });
const hourMs = 3_600_000;

// The router may be replaced by one at the same address that knows no protocol.
test.each([0, 600, 2 ** 32 - 1])(
  "a router that granted %d seconds and fell silent is believed for an hour at most",
  (lifetimeS) => {
    const granted = { ...held, at: "198.51.100.7:4242", lifetimeS };
    const first = stateAfter(undefined, place, granted, systemAt(0));
    expect(first.mapped?.at).toBe(granted.at);
    expect(first.nextAt).toBeLessThanOrEqual(hourMs / 2);
    const silent = stateAfter(first, place, undefined, systemAt(first.nextAt));
    expect(silent.mapped?.at).toBe(granted.at);
    expect(stateAfter(silent, place, undefined, systemAt(hourMs + 1)).mapped).toBeUndefined();
  },
);

test("a failed renewal leaves a mapping for its lifetime, and a refusal ends it", () => {
  const granted = { ...held, at: "198.51.100.7:4242", lifetimeS: 1200 };
  const first = stateAfter(undefined, place, granted, systemAt(0));
  const failed = { refused: "UPnP error 501", isUncertain: true } as const;
  const after = (answer: Parameters<typeof stateAfter>[2], ms: number) =>
    stateAfter(first, place, answer, systemAt(ms));
  expect(after(failed, 600_000).mapped).toEqual(first.mapped);
  expect(after(failed, 600_000).nextAt).toBe(630_000);
  expect(after(failed, 1_200_001)).toMatchObject({ refused: "UPnP error 501" });
  expect(after(failed, 1_200_001).mapped).toBeUndefined();
  expect(after({ refused: "it does not allow port mappings" }, 600_000).mapped).toBeUndefined();
});
