// `serve --tls auto`: a certificate of the server's own CA, which nodes pin by its fingerprint. The CA is sealed in the
// database, so that replicas share it and nodes still trust a restored backup. The certificate is only in memory.

import { networkInterfaces } from "node:os";
import { messageOf } from "../../base/errors.ts";
import type { Log } from "../../base/log.ts";
import type { X509Authority } from "../../pki/x509.ts";
import type { SecretKeys } from "../../pki/secrets.ts";
import type { System } from "../../base/system.ts";
import { parseAddress } from "../../base/ip.ts";
import { backdatedMs } from "../certificates/ca-limits.ts";
import type { TlsPair, TlsSource } from "./listeners.ts";
import type { Database } from "../store/database.ts";
import { sharedSecret } from "../store/shared-secret.ts";

type Deps = { db: Database; system: Pick<System, "now" | "random">; secretKey: SecretKeys; log: Log };

export type OwnTls = {
  source: TlsSource;
  /** `sha256:HEX` of the CA's DER, the value of `register --ca-fingerprint`. */
  caFingerprint: string;
  caPem: string;
};

const dayMs = 86_400_000;
const caLifetimeMs = 3650 * dayMs;
const lifetimeMs = 90 * dayMs;
const renewBeforeMs = 30 * dayMs;

/** `names`: host names and addresses that clients use. */
export async function openOwnTls(deps: Deps, names: readonly string[]): Promise<OwnTls> {
  const { system, log } = deps;
  const { issueServerX509, openIssuer } = await import("../../pki/x509.ts");
  const { x509Fingerprint } = await import("../../pki/verify-x509.ts");
  const authority = await readAuthority(deps);
  const issuer = await openIssuer(authority);
  const issue = async (): Promise<{ pair: TlsPair; validFrom: number; renewAt: number }> => {
    const now = system.now();
    const pair = await issueServerX509(
      {
        names: names.filter((name) => parseAddress(name) === undefined),
        addresses: names.filter((name) => parseAddress(name) !== undefined),
        notBefore: now - backdatedMs,
        notAfter: now + lifetimeMs,
        serial: system.random(16),
      },
      issuer,
    );
    return { pair, validFrom: now - backdatedMs, renewAt: now + lifetimeMs - renewBeforeMs };
  };
  let current = await issue();
  let renewing: Promise<void> | undefined;
  const renew = async () => {
    try {
      current = await issue();
    } catch (error) {
      log.error("cannot renew the server's own TLS certificate", { reason: messageOf(error) });
    } finally {
      renewing = undefined;
    }
  };
  return {
    caFingerprint: `sha256:${x509Fingerprint(authority.certificatePem)}`,
    caPem: authority.certificatePem,
    source: {
      read: () => current.pair,
      // Browsers must not insist on HTTPS: none trusts the CA by itself, and a new data directory has another one.
      isStrict: false,
      stamp() {
        const now = system.now();
        // Not valid yet: it was issued by a clock that was ahead.
        if (now >= current.renewAt || now < current.validFrom) renewing ??= renew();
        return String(current.renewAt);
      },
    },
  };
}

/** The names and addresses under which clients may reach this server. */
export function ownNames(known: readonly string[]): string[] {
  const addresses = Object.values(networkInterfaces()).flatMap((ofInterface) =>
    (ofInterface ?? []).map(({ address }) => address),
  );
  const names = [...known, "localhost", "127.0.0.1", "::1", ...addresses];
  // Not the address that stands for all, and no link-local address with its interface.
  const isReachable = (name: string) => name !== "0.0.0.0" && name !== "::" && !name.includes("%");
  return [...new Set(names.filter(isReachable))];
}

async function readAuthority(deps: Deps): Promise<X509Authority> {
  const { system } = deps;
  const pem = await sharedSecret(deps, "tls_ca", async () => {
    const { makeX509Ca } = await import("../../pki/x509.ts");
    const notBefore = system.now() - backdatedMs;
    const created = await makeX509Ca({
      organization: "control plane",
      notBefore,
      notAfter: notBefore + caLifetimeMs,
      serial: system.random(16),
    });
    return created.certificatePem + created.privateKeyPem;
  });
  const keyFrom = pem.indexOf("-----BEGIN PRIVATE KEY");
  return { certificatePem: pem.slice(0, keyFrom), privateKeyPem: pem.slice(keyFrom) };
}
