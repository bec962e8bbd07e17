// The control planes of the organizations of this machine.

import { join } from "node:path";
import { x509Fingerprint } from "../../../pki/verify-x509.ts";
import { listOrganizations } from "../list-organizations.ts";
import { credentialsIfOwn, readApiCa } from "../organizations.ts";

/** `caFingerprint`: of its own CA, "sha256:…"; undefined: public authorities are trusted. */
export type KnownControlPlane = { apiBase: string; caFingerprint: string | undefined };

/** Only root can read them: empty for others. A damaged organization is left out. */
export function knownControlPlanes(configRoot: string): KnownControlPlane[] {
  return listOrganizations(configRoot).flatMap((slug) => controlPlaneOf(join(configRoot, slug)) ?? []);
}

/** The control plane of one organization, from its directory. */
export function controlPlaneOf(directory: string): KnownControlPlane | undefined {
  const credentials = credentialsIfOwn(directory);
  if (credentials === undefined) return undefined;
  return { apiBase: credentials.api_base, caFingerprint: fingerprintOf(readApiCa(directory)) };
}

function fingerprintOf(pem: string | undefined): string | undefined {
  try {
    return pem === undefined ? undefined : `sha256:${x509Fingerprint(pem)}`;
  } catch {
    // A damaged file.
    return undefined;
  }
}
