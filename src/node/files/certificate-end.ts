// The end of an organization's overlay certificates. Commands that only show it read it from sync.json instead:
// decoding certificates takes longer than a whole `status`.

import { formatTime } from "../../base/quantities.ts";
import { textOrEmpty } from "../../base/files.ts";
import { decodeBundle } from "../../pki/bundle.ts";

/** When the certificates of host.crt end, in RFC 3339. With two certificate versions, the earlier end. */
export function endOfCertificates(hostCrt: string): string {
  const ends = decodeBundle(hostCrt).map(({ notAfter }) => notAfter);
  return formatTime(Math.min(...ends) * 1000);
}

/** The same of an organization's directory. */
export function certificateEnd(directory: string): string {
  return endOfCertificates(textOrEmpty(directory, "host.crt"));
}
