// `--tls-ca`: the CA of a company, which machines do not know, signed the server's certificate. The server sends it with the
// chain, and machines pin it by its fingerprint as they pin the own CA of `--tls auto`.

import { X509Certificate } from "node:crypto";
import { AppError } from "../../base/errors.ts";
import type { TlsSource } from "./listeners.ts";

export type ForeignCa = { pem: string; fingerprint: string };

/** Throws usage unless the text is one root certificate: machines verify the chain up to it. */
export function readForeignCa(text: string | undefined, file: string): ForeignCa {
  const blocks = text?.match(/-----BEGIN CERTIFICATE-----[^]*?-----END CERTIFICATE-----/g) ?? [];
  const [pem] = blocks;
  if (pem === undefined || blocks.length > 1) throw refused(file, `it holds ${blocks.length} certificates`);
  const root = parse(pem, file);
  if (!root.ca || !root.checkIssued(root)) throw refused(file, "its certificate is not that of a root CA");
  return { pem: `${pem}\n`, fingerprint: `sha256:${root.fingerprint256.replaceAll(":", "").toLowerCase()}` };
}

function parse(pem: string, file: string): X509Certificate {
  try {
    return new X509Certificate(pem);
  } catch (error) {
    throw refused(file, "its certificate cannot be read", error);
  }
}

function refused(file: string, why: string, cause?: unknown): AppError {
  return new AppError("usage", `--tls-ca ${file}: ${why}`, {
    cause,
    hint: "Give a file with one PEM certificate: the root that signed the server's certificate, or signed its issuer.",
  });
}

/** The chain with the CA at its end. A chain that has it already stays as it is. */
export function withForeignCa(source: TlsSource, { pem }: ForeignCa): TlsSource {
  return {
    read() {
      const { cert, key } = source.read();
      return { cert: cert.includes(pem.trim()) ? cert : `${cert.trimEnd()}\n${pem}`, key };
    },
    stamp: source.stamp,
    get isStrict() {
      return source.isStrict;
    },
  };
}
