import { expect, test } from "bun:test";
import { stateAfter } from "../../../../src/node/edge/mapping/keep-mapping.ts";

const place = { gateway: "192.168.1.1", client: "192.168.1.20", port: 4242, boot: "b" };
const held = { by: "PCP", port: 4242, external: 4242, nonce: new Uint8Array(12) } as const;
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
