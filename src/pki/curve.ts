// The curves of overlay certificates.

export type Curve = "25519" | "P256";

/** In bytes. */
export const publicKeyLength = { "25519": 32, P256: 65 } as const satisfies Record<Curve, number>;
