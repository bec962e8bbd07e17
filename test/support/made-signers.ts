// Signers for tests with thousands of seals: signatures as `ssh-keygen -Y sign` makes them (PROTOCOL.sshsig), without a process
// for each. That the product takes those of ssh-keygen itself is tested elsewhere.

import { createHash, generateKeyPairSync, sign } from "node:crypto";
import { canonicalJson, sealNamespace, type Seal, type SignedSeal } from "../../src/protocol/seals/seal.ts";

export type MadeSigner = { name: string; key: string; sign(text: string): string };

const string = (value: string | Uint8Array) => {
  const bytes = Buffer.from(value as Uint8Array);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(bytes.length);
  return Buffer.concat([length, bytes]);
};

export function makeSigner(name: string): MadeSigner {
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  const raw = publicKey.export({ type: "spki", format: "der" }).subarray(-32);
  const blob = Buffer.concat([string("ssh-ed25519"), string(raw)]);
  return {
    name,
    key: `ssh-ed25519 ${blob.toString("base64")}`,
    sign(text) {
      const digest = createHash("sha512").update(text).digest();
      const fields = [string(sealNamespace), string(""), string("sha512")];
      const signature = sign(
        null,
        Buffer.concat([Buffer.from("SSHSIG"), ...fields, string(digest)]),
        privateKey,
      );
      const whole = Buffer.concat([
        Buffer.from("SSHSIG\0\0\0\x01"),
        string(blob),
        ...fields,
        string(Buffer.concat([string("ssh-ed25519"), string(signature)])),
      ]);
      const lines = whole.toString("base64").replace(/.{70}/g, "$&\n").trim();
      return `-----BEGIN SSH SIGNATURE-----\n${lines}\n-----END SSH SIGNATURE-----\n`;
    },
  };
}

export function signedByMade(seal: Seal, signers: readonly MadeSigner[]): SignedSeal {
  const text = canonicalJson(seal);
  return { text, signatures: signers.map((each) => each.sign(text)) };
}
