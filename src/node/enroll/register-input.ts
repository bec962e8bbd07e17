// Validates the arguments of `agent register`, and downloads the control plane's TLS CA, which a fingerprint must match.

import { X509Certificate } from "node:crypto";
import { isIP } from "node:net";
import { connect, type DetailedPeerCertificate } from "node:tls";
import * as v from "valibot";
import { AppError, messageOf } from "../../base/errors.ts";
import { NodeName } from "../../protocol/values.ts";
import { unreachable } from "../contact/requests/send-request.ts";
import { sha256Hex } from "../../base/sha256.ts";

/** Throws usage. */
export function parseNodeName(text: string): string {
  const parsed = v.safeParse(NodeName, text);
  if (parsed.success) return parsed.output;
  throw new AppError("usage", `--node-name "${text}": ${parsed.issues[0].message}`);
}

const timeoutMs = 10_000;

/**
 * The PEM of the certificate in the server's chain whose DER has this SHA-256 (`sha256:HEX`). Sends nothing over the
 * connection. Throws untrusted_answer if no certificate matches.
 */
export async function readApiCaByFingerprint(apiBase: string, fingerprint: string): Promise<string> {
  const wanted = /^sha256:([0-9a-fA-F]{64})$/.exec(fingerprint)?.[1]?.toLowerCase();
  if (wanted === undefined)
    throw new AppError(
      "usage",
      `--ca-fingerprint takes sha256: and 64 hexadecimal digits, not "${fingerprint}"`,
    );
  if (!URL.canParse(apiBase) || new URL(apiBase).protocol !== "https:") {
    throw new AppError("usage", "--ca-fingerprint needs an --api-base that begins with https://");
  }
  const chain = await fetchChain(apiBase);
  const found = chain.find((der) => sha256Hex(der) === wanted);
  if (found !== undefined) return new X509Certificate(found).toString();
  throw new AppError(
    "untrusted_answer",
    `The server at ${apiBase} has no certificate with the fingerprint ${fingerprint}`,
    {
      hint: "Compare it with the one that `agent setup`, or `agent serve` at its start, printed on the control plane's machine. If they are equal, the connection is intercepted.",
    },
  );
}

function fetchChain(apiBase: string): Promise<Buffer[]> {
  const { hostname, port } = new URL(apiBase);
  const host = hostname.replace(/^\[|\]$/g, "");
  const { promise, resolve, reject } = Promise.withResolvers<Buffer[]>();
  // TLS does not verify the chain: the fingerprint decides, and only the chain is read.
  const socket = connect(
    {
      host,
      port: port === "" ? 443 : Number(port),
      rejectUnauthorized: false,
      timeout: timeoutMs,
      // RFC 6066 does not allow an IP address as server name.
      ...(isIP(host) === 0 ? { servername: host } : {}),
    },
    () => {
      resolve(chainOf(socket.getPeerCertificate(true)));
      socket.destroy();
    },
  );
  socket.on("timeout", () => {
    socket.destroy();
    reject(unreachable(apiBase, "no answer in time"));
  });
  socket.on("error", (error) => reject(unreachable(apiBase, messageOf(error), error)));
  return promise;
}

const longestChain = 10;

/** The certificates in DER, from the server's own up to one that is its own issuer. */
function chainOf(leaf: DetailedPeerCertificate): Buffer[] {
  const chain: Buffer[] = [];
  let certificate: DetailedPeerCertificate | undefined = leaf;
  while (certificate?.raw !== undefined && chain.length < longestChain) {
    chain.push(certificate.raw);
    const { issuerCertificate: issuer }: DetailedPeerCertificate = certificate;
    certificate = issuer === certificate ? undefined : issuer;
  }
  return chain;
}
