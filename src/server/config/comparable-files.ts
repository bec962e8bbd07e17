// The comparable form of a node's files: config.yml without its list of blocked certificates, which may have 100,000
// lines, and a summary of the other files. An outline never holds a secret, as the files themselves do not.

import { formatTime } from "../../base/quantities.ts";
import type { CertificateRow } from "../store/tables/certificates.ts";
import { sha256Hex } from "../../base/sha256.ts";
import type { ConfigView } from "./config-view.ts";

/** config.yml with the number of blocked certificates in place of the list. */
export function withoutBlocklist(
  text: string,
  view: Pick<ConfigView, "blocklist" | "blocklistYaml" | "blocklistDigest">,
): string {
  const { blocklist, blocklistYaml, blocklistDigest } = view;
  const line = `  # blocklist: ${blocklist.length} certificates, SHA-256 ${blocklistDigest.slice(0, 16)}\n`;
  return text.replace(blocklistYaml, () => line);
}

type Others = {
  caPem: string;
  x509Cas: readonly { pem: string }[];
  /** The node's certificates. */
  rows: readonly Pick<CertificateRow, "kind" | "version" | "fingerprint" | "notAfter">[];
  /** node-config.json without its version. */
  stable: Readonly<Record<string, unknown>>;
};

/** ca.crt, host.crt, node.crt and node-config.json, a line for each certificate and each value. */
export function outlineOthers({ caPem, x509Cas, rows, stable }: Others): string {
  const cas = caPem.match(/-----BEGIN[^]*?-----END[^\n]*\n/g) ?? [];
  const certificates = rows.map(({ kind, version, fingerprint, notAfter }) => {
    const name = kind === "overlay" ? `host.crt: version ${version},` : "node.crt:";
    return `${name} fingerprint ${fingerprint}, valid until ${formatTime(notAfter)}`;
  });
  const settings = Object.entries(stable).map(([key, value]) => `${key}: ${JSON.stringify(value)}`);
  return [
    ...cas.map((pem) => `ca.crt: ${sha256Hex(pem)}`),
    ...x509Cas.map(({ pem }) => `node.crt, CA: ${sha256Hex(pem)}`),
    ...certificates,
    ...settings.map((line) => `node-config.json: ${line}`),
    "",
  ].join("\n");
}
