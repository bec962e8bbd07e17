// When an organization's overlay certificate ends. What only shows it reads it from the state beside the configuration
// instead: to decode certificates costs more than a whole `status`.

import { join } from "node:path";
import { formatTime } from "../../duration.ts";
import { readTextIfThere } from "../../files.ts";
import { decodeBundle } from "../../pki/nebula.ts";

/** RFC 3339; of the one that ends first where there are two versions. */
export function endOfCertificates(hostCrt: string): string {
  const ends = decodeBundle(hostCrt).map(({ notAfter }) => notAfter);
  return formatTime(Math.min(...ends) * 1000);
}

export function certificateEnd(directory: string): string {
  return endOfCertificates(readTextIfThere(join(directory, "host.crt")) ?? "");
}
