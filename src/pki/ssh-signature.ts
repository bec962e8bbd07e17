// Signatures by OpenSSH keys (`ssh-keygen -Y sign`): Ed25519, also on a security key (PROTOCOL.sshsig, PROTOCOL.u2f of
// OpenSSH). Verifies only.

import { createHash } from "node:crypto";
import { AppError } from "../base/errors.ts";
import { verifyBytes } from "./signature.ts";

/** The types of keys: plain, and on a security key. */
const plainType = "ssh-ed25519";
const hardwareType = "sk-ssh-ed25519@openssh.com";

export type SshKey = {
  /** Public key in OpenSSH's binary form: two keys are the same if these bytes are. */
  blob: Buffer;
  /** The 32 bytes of the Ed25519 key. */
  raw: Buffer;
  /** What a security key signs for, usually `ssh:`. */
  application: Buffer | undefined;
};

/** Maximum characters; a signature by a security key needs less. */
const maxSignature = 4096;
/** Maximum characters of a line with a key. */
export const maxSshKey = 1024;

/** A line of a `.pub` file; a comment is ignored. Throws bad_request for any other kind of key. */
export function parseSshKey(line: string): SshKey {
  const [type = "", base64 = "", ...comment] = line.trim().split(" ");
  const blob = line.length > maxSshKey ? undefined : decodeBase64(base64);
  const isOneLine = !/[\r\n]/.test(line.trim()) && comment.length <= 64;
  const key = blob === undefined || !isOneLine ? undefined : readKey(blob);
  if (key !== undefined && (key.application === undefined ? plainType : hardwareType) === type) return key;
  throw new AppError("bad_request", "It is not the public half of an Ed25519 key of OpenSSH", {
    hint: "Make one with `ssh-keygen -t ed25519`, or on a security key with `ssh-keygen -t ed25519-sk`. Enter its .pub file.",
  });
}

/** The fingerprint as `ssh-keygen -l` shows it. */
export function sshFingerprint({ blob }: Pick<SshKey, "blob">): string {
  return `SHA256:${createHash("sha256").update(blob).digest("base64").replaceAll("=", "")}`;
}

/**
 * Returns which of these keys made the signature. Throws untrusted_answer if none did, or if it is for another message or
 * namespace. A security key must say that its owner touched it.
 */
export function verifySshSignature<K extends SshKey>(
  armored: string,
  message: Uint8Array,
  namespace: string,
  keys: readonly K[],
): K {
  const parsed = parseSignature(armored);
  if (parsed === undefined) throw refused("it is no signature of ssh-keygen");
  if (parsed.namespace !== namespace) throw refused(`it is for another purpose than ${namespace}`);
  const key = keys.find(({ blob }) => blob.equals(parsed.publicKey));
  if (key === undefined) throw refused("it is by a key that is not a signer");
  const digest = createHash(parsed.hash).update(message).digest();
  const reserved = Buffer.alloc(0);
  const signed = Buffer.concat([
    Buffer.from(magic),
    ...[Buffer.from(namespace), reserved, Buffer.from(parsed.hash), digest].map(asString),
  ]);
  if (isSignedBy(key, signed, parsed.signature)) return key;
  throw refused("it does not match");
}

/** Whether the key made the signature. A security key signs hashes, with flags and a counter of its own. */
function isSignedBy({ raw, application }: SshKey, signed: Buffer, signature: Buffer): boolean {
  const parts = new Parts(signature);
  const type = parts.text();
  const bytes = parts.string();
  if (type === undefined || bytes === undefined) return false;
  if (application === undefined)
    return type === plainType && parts.isAtEnd && verifyBytes("25519", raw, signed, bytes);
  const flags = parts.bytes(1);
  const counter = parts.bytes(4);
  if (type !== hardwareType || flags === undefined || counter === undefined || !parts.isAtEnd) return false;
  const wasTouched = ((flags[0] ?? 0) & 1) === 1;
  const digest = (of: Buffer) => createHash("sha256").update(of).digest();
  const signedByDevice = Buffer.concat([digest(application), flags, counter, digest(signed)]);
  return wasTouched && verifyBytes("25519", raw, signedByDevice, bytes);
}

const magic = "SSHSIG";
const version = 1;
const begin = "-----BEGIN SSH SIGNATURE-----";
const end = "-----END SSH SIGNATURE-----";

type Signature = { publicKey: Buffer; namespace: string; hash: "sha256" | "sha512"; signature: Buffer };

function parseSignature(armored: string): Signature | undefined {
  const lines = armored.length > maxSignature ? [] : armored.trim().split(/\r?\n/);
  if (lines[0] !== begin || lines.at(-1) !== end) return undefined;
  const bytes = decodeBase64(lines.slice(1, -1).join(""));
  if (bytes === undefined) return undefined;
  const parts = new Parts(bytes);
  // The fields in their order in the file.
  const isKnown =
    parts.bytes(magic.length)?.toString() === magic && parts.bytes(4)?.readUInt32BE() === version;
  const publicKey = parts.string();
  const namespace = parts.text();
  const reserved = parts.string();
  const hash = parts.text();
  const signature = parts.string();
  if (!isKnown || publicKey === undefined || namespace === undefined || signature === undefined)
    return undefined;
  if (reserved?.length !== 0 || (hash !== "sha256" && hash !== "sha512") || !parts.isAtEnd) return undefined;
  return { publicKey, namespace, hash, signature };
}

function readKey(blob: Buffer): SshKey | undefined {
  const parts = new Parts(blob);
  const type = parts.text();
  const raw = parts.string();
  if (raw?.length !== 32) return undefined;
  if (type === plainType && parts.isAtEnd) return { blob, raw, application: undefined };
  const application = parts.string();
  if (type !== hardwareType || application === undefined || !parts.isAtEnd) return undefined;
  return { blob, raw, application };
}

/** Undefined unless it is the one text for its bytes. */
function decodeBase64(text: string): Buffer | undefined {
  const bytes = Buffer.from(text, "base64");
  return bytes.length > 0 && bytes.toString("base64") === text ? bytes : undefined;
}

/** Bytes as OpenSSH's "string": after their length. */
function asString(bytes: Buffer): Buffer {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(bytes.length);
  return Buffer.concat([length, bytes]);
}

/** Reads the fields of OpenSSH's binary form; undefined where the bytes end too early. */
class Parts {
  #rest: Buffer;
  constructor(bytes: Buffer) {
    this.#rest = bytes;
  }

  get isAtEnd(): boolean {
    return this.#rest.length === 0;
  }

  bytes(length: number): Buffer | undefined {
    if (this.#rest.length < length) return undefined;
    const taken = this.#rest.subarray(0, length);
    this.#rest = this.#rest.subarray(length);
    return taken;
  }

  string(): Buffer | undefined {
    const length = this.bytes(4)?.readUInt32BE();
    return length === undefined ? undefined : this.bytes(length);
  }

  text(): string | undefined {
    return this.string()?.toString("latin1");
  }
}

function refused(reason: string): AppError {
  return new AppError("untrusted_answer", `The signature is refused: ${reason}`);
}
