// `serve --tls auto`: a certificate of our own CA, which machines pin by its fingerprint. The CA lies sealed in the
// database, so that replicas share it and a restored backup is still trusted; the certificate lives in memory.

import { networkInterfaces } from "node:os";
import { messageOf } from "../../errors.ts";
import type { Log } from "../../log.ts";
import type { X509Authority } from "../../pki/x509.ts";
import { openSecret, sealSecret, type SecretKeys } from "../../pki/secrets.ts";
import type { System } from "../../system.ts";
import { parseAddress } from "../../ip.ts";
import type { TlsPair, TlsSource } from "./listeners.ts";
import { textOf, type Database, type Reader } from "../store/database.ts";

type Deps = { db: Database; system: Pick<System, "now" | "random">; secretKey: SecretKeys; log: Log };

export type OwnTls = {
  source: TlsSource;
  /** `sha256:HEX` of the CA's DER, as `register --ca-fingerprint` takes it. */
  caFingerprint: string;
};

const keyName = "tls_ca";
const day = 86_400_000;
const backdatedMs = 5 * 60_000;
const caLifetimeMs = 3650 * day;
const lifetimeMs = 90 * day;
const renewBeforeMs = 30 * day;

/** `names`: host names and addresses that clients use. */
export async function openOwnTls(deps: Deps, names: readonly string[]): Promise<OwnTls> {
  const { system, log } = deps;
  const { issueServerX509, openIssuer, x509Fingerprint } = await import("../../pki/x509.ts");
  const authority = await readAuthority(deps);
  const issuer = await openIssuer(authority);
  const issue = async (): Promise<{ pair: TlsPair; renewAt: number }> => {
    const now = system.now();
    const pair = await issueServerX509(
      {
        names: names.filter((each) => parseAddress(each) === undefined),
        addresses: names.filter((each) => parseAddress(each) !== undefined),
        notBefore: now - backdatedMs,
        notAfter: now + lifetimeMs,
        serial: system.random(16),
      },
      issuer,
    );
    return { pair, renewAt: now + lifetimeMs - renewBeforeMs };
  };
  let current = await issue();
  let renewing: Promise<void> | undefined;
  const renew = async () => {
    try {
      current = await issue();
    } catch (error) {
      log.error("the server's own TLS certificate cannot be renewed", { reason: messageOf(error) });
    } finally {
      renewing = undefined;
    }
  };
  return {
    caFingerprint: `sha256:${x509Fingerprint(authority.certificatePem)}`,
    source: {
      read: () => current.pair,
      stamp() {
        if (system.now() >= current.renewAt) renewing ??= renew();
        return String(current.renewAt);
      },
    },
  };
}

/** By what a client may call this machine. */
export function ownNames(known: readonly string[]): string[] {
  const addresses = Object.values(networkInterfaces()).flatMap((each) =>
    (each ?? []).map(({ address }) => address),
  );
  const names = [...known, "localhost", "127.0.0.1", "::1", ...addresses];
  return [...new Set(names.filter((each) => each !== "0.0.0.0" && each !== "::" && !each.includes("%")))];
}

/** Made by whichever replica comes first. Throws bad_configuration where the secret key is another. */
async function readAuthority({ db, system, secretKey }: Deps): Promise<X509Authority> {
  const find = async (reader: Pick<Reader, "get">): Promise<X509Authority | undefined> => {
    const row = await reader.get("SELECT value FROM meta WHERE key = $1", [keyName]);
    return row === undefined ? undefined : split(openSecret(secretKey, textOf(row, "value"), keyName));
  };
  const known = await find(db);
  if (known !== undefined) return known;
  const { makeX509Ca } = await import("../../pki/x509.ts");
  const notBefore = system.now() - backdatedMs;
  const made = await makeX509Ca({
    organization: "control plane",
    notBefore,
    notAfter: notBefore + caLifetimeMs,
    serial: system.random(16),
  });
  return db.write(async (tx) => {
    const sealed = sealSecret(secretKey, made.certificatePem + made.privateKeyPem, keyName);
    await tx.run("INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING", [
      keyName,
      sealed,
    ]);
    return (await find(tx)) ?? made;
  });
}

/** Certificate and key, one PEM after the other. */
function split(pem: string): X509Authority {
  const at = pem.indexOf("-----BEGIN PRIVATE KEY");
  return { certificatePem: pem.slice(0, at), privateKeyPem: pem.slice(at) };
}
