// An authenticator in software: makes passkeys and signs with them, as browsers pass it on. Its faults are for tests of
// refusals.

import { createHash, generateKeyPairSync, randomBytes, sign, type KeyObject } from "node:crypto";
import { isoCBOR } from "@simplewebauthn/server/helpers";
import * as v from "valibot";
import { password, type TestServer } from "./server.ts";

const Options = v.looseObject({
  challenge: v.string(),
  rp: v.optional(v.looseObject({ id: v.string() })),
  user: v.optional(v.looseObject({ id: v.string() })),
  rpId: v.optional(v.string()),
});

/** What differs from a well-behaved browser and device. */
export type Fault = {
  origin?: string;
  rpId?: string;
  isVerified?: boolean;
  /** The page is a frame of another site. */
  isFramed?: boolean;
  counter?: number;
  challenge?: string;
  /** Other members of its public key (COSE). */
  key?: Cose;
};

const sha256 = (data: string | Uint8Array) => createHash("sha256").update(data).digest();
const encode = (data: string | Uint8Array) => Buffer.from(data).toString("base64url");

type Cose = readonly (readonly [number, number | Uint8Array<ArrayBuffer>])[];
type Algorithm = {
  generate(): { privateKey: KeyObject; publicKey: KeyObject };
  digest: "sha256" | null;
  /** The key's members, of those of its JWK. */
  cose(member: (name: string) => Uint8Array<ArrayBuffer>): Cose;
};
/** By its number (COSE), as browsers write their keys. */
const algorithms = {
  [-7]: {
    generate: () => generateKeyPairSync("ec", { namedCurve: "P-256" }),
    digest: "sha256",
    cose: (member) => [
      [1, 2],
      [-1, 1],
      [-2, member("x")],
      [-3, member("y")],
    ],
  },
  [-8]: {
    generate: () => generateKeyPairSync("ed25519"),
    digest: null,
    cose: (member) => [
      [1, 1],
      [-1, 6],
      [-2, member("x")],
    ],
  },
  [-257]: {
    generate: () => generateKeyPairSync("rsa", { modulusLength: 2048 }),
    digest: "sha256",
    cose: (member) => [
      [1, 3],
      [-1, member("n")],
      [-2, member("e")],
    ],
  },
  [-48]: {
    generate: () => generateKeyPairSync("ml-dsa-44"),
    digest: null,
    cose: (member) => [
      [1, 7],
      [-1, member("pub")],
    ],
  },
} satisfies Record<number, Algorithm>;
export type AlgorithmNumber = keyof typeof algorithms;

type DeviceOptions = { origin?: string; algorithm?: AlgorithmNumber };

export function makeAuthenticator({
  origin = "https://control.example",
  algorithm = -7,
}: DeviceOptions = {}) {
  const { generate, digest, cose }: Algorithm = algorithms[algorithm];
  const { privateKey, publicKey } = generate();
  const credentialId = randomBytes(32);
  let counter = 0;
  let userHandle: string | null = null;

  const clientData = (type: string, challenge: string, fault: Fault) =>
    Buffer.from(
      JSON.stringify({
        type,
        challenge,
        origin: fault.origin ?? origin,
        crossOrigin: fault.isFramed === true,
      }),
    );
  /** Flags: user present 1, verified 4, with a credential 64. */
  const dataOf = (rpId: string, fault: Fault, credential = Buffer.alloc(0)) => {
    const flags = 1 + (fault.isVerified === false ? 0 : 4) + (credential.length > 0 ? 64 : 0);
    const head = Buffer.alloc(5);
    head.writeUInt8(flags);
    head.writeUInt32BE(fault.counter ?? counter, 1);
    return Buffer.concat([sha256(fault.rpId ?? rpId), head, credential]);
  };

  return {
    /** From here on the device counts its signatures. */
    set counter(value: number) {
      counter = value;
    },
    create(options: unknown, fault: Fault = {}) {
      const { challenge, rp, user } = v.parse(Options, options);
      userHandle = user?.id ?? null;
      const jwk = v.parse(v.record(v.string(), v.unknown()), publicKey.export({ format: "jwk" }));
      const member = (name: string) => new Uint8Array(Buffer.from(String(jwk[name]), "base64url"));
      const key = new Map([[3, algorithm], ...cose(member), ...(fault.key ?? [])]);
      const length = Buffer.alloc(2);
      length.writeUInt16BE(credentialId.length);
      const credential = Buffer.concat([Buffer.alloc(16), length, credentialId, isoCBOR.encode(key)]);
      const authData = new Uint8Array(dataOf(rp?.id ?? "", fault, credential));
      const attestation = new Map<string, unknown>([
        ["fmt", "none"],
        ["attStmt", new Map()],
        ["authData", authData],
      ]);
      return {
        id: encode(credentialId),
        rawId: encode(credentialId),
        type: "public-key",
        authenticatorAttachment: "platform",
        clientExtensionResults: {},
        response: {
          clientDataJSON: encode(clientData("webauthn.create", fault.challenge ?? challenge, fault)),
          attestationObject: encode(isoCBOR.encode(attestation as Parameters<typeof isoCBOR.encode>[0])),
          transports: ["internal", "hybrid"],
        },
      };
    },
    get(options: unknown, fault: Fault = {}) {
      const { challenge, rpId = "" } = v.parse(Options, options);
      if (counter > 0) counter++;
      const data = clientData("webauthn.get", fault.challenge ?? challenge, fault);
      const authenticatorData = dataOf(rpId, fault);
      const signature = sign(digest, Buffer.concat([authenticatorData, sha256(data)]), privateKey);
      return {
        id: encode(credentialId),
        rawId: encode(credentialId),
        type: "public-key",
        clientExtensionResults: {},
        response: {
          clientDataJSON: encode(data),
          authenticatorData: encode(authenticatorData),
          signature: encode(signature),
          userHandle,
        },
      };
    },
  };
}
export type Authenticator = ReturnType<typeof makeAuthenticator>;

/** Adds a passkey to the user of the token. */
export async function addPasskeyTo(server: TestServer, token: string): Promise<Authenticator> {
  const device = makeAuthenticator();
  const path = "/api/user/passkeys/";
  const options = await server.send("POST", `${path}options/`, {
    token,
    body: { current_password: password },
  });
  const body = { name: "laptop", response: device.create(options.json) };
  const added = await server.send("POST", path, { token, body });
  if (added.status !== 201) throw new Error(`No passkey: ${added.status} ${added.text}`);
  return device;
}
