// The operator's certificate and key, from files. Replacing them needs no restart.

import { createPrivateKey, X509Certificate } from "node:crypto";
import { statSync } from "node:fs";
import { AppError, fromSystemError } from "../../base/errors.ts";
import { readText } from "../../base/open-file.ts";
import type { TlsSource } from "./listeners.ts";

/** `read` throws bad_configuration for files that cannot be read or do not fit together. */
export function tlsFromFiles(files: { certFile: string; keyFile: string }): TlsSource {
  return {
    read() {
      let [cert, key] = ["", ""];
      try {
        cert = readText(files.certFile);
        key = readText(files.keyFile);
      } catch (error) {
        throw fromSystemError(`read the TLS files ${files.certFile} and ${files.keyFile}`, error);
      }
      refuseUnfit(cert, key, files);
      return { cert, key };
    },
    stamp: () =>
      [files.certFile, files.keyFile]
        .map((path) => String(statSync(path, { throwIfNoEntry: false })?.mtimeMs))
        .join(" "),
    // The certificate is the operator's, so a browser's trust in it is the operator's concern: insisting on TLS is safe.
    isStrict: true,
  };
}

/** Throws bad_configuration with the file: the TLS library's own error names none. */
function refuseUnfit(
  cert: string,
  key: string,
  { certFile, keyFile }: { certFile: string; keyFile: string },
): void {
  const parsePart = <T>(file: string, what: string, parse: () => T): T => {
    try {
      return parse();
    } catch (error) {
      throw new AppError("bad_configuration", `The TLS file ${file} holds no ${what} in PEM`, {
        cause: error,
      });
    }
  };
  const certificate = parsePart(certFile, "certificate", () => new X509Certificate(cert));
  const privateKey = parsePart(keyFile, "unencrypted private key", () => createPrivateKey(key));
  if (certificate.checkPrivateKey(privateKey)) return;
  throw new AppError(
    "bad_configuration",
    `The TLS key ${keyFile} is not that of the certificate ${certFile}`,
  );
}
