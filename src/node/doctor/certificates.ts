// Examines the certificates of one organization, and whether its keys belong to them.

import { join } from "node:path";
import { brand } from "../../brand.ts";
import { readTextIfThere } from "../../base/files.ts";
import { readText } from "../../base/open-file.ts";
import { formatTime } from "../../base/quantities.ts";
import { decodeBundle } from "../../pki/bundle.ts";
import { publicOfHostKey } from "../../pki/keys.ts";
import { decodeCaBundle, verifyCertificate } from "../../pki/nebula.ts";
import type { Organization } from "../files/organizations.ts";
import { setClock } from "../health/findings.ts";
import { fail, ok, skipped, warn, type Finding } from "./check.ts";
import { howToRegisterAgain } from "./register-again.ts";

const sync = `${brand.executable} sync-config`;
const dayS = 86_400;
/** Certificates are renewed long before: fewer days left mean that renewals fail. Those of ephemeral nodes are short. */
const warnDays = 14;

export function examineKeys(organization: Organization): Finding {
  const { directory } = organization;
  const pem = text(directory, "host.key");
  if (pem.trim() === "") return fail("host.key is empty", howToRegisterAgain(organization));
  const key = publicOfHostKey(pem);
  const matches = decodeBundle(text(directory, "host.crt")).every(({ publicKey }) =>
    Buffer.from(publicKey).equals(key),
  );
  return matches
    ? ok("host.key belongs to host.crt")
    : fail("host.key does not belong to host.crt", howToRegisterAgain(organization));
}

/** Whether a certificate is not valid yet: the control plane signs only certificates that are, so the clock must be wrong. */
function isClockBehind(directory: string, nowMs: number): boolean {
  const certificates = [
    ...decodeCaBundle(text(directory, "ca.crt")),
    ...decodeBundle(text(directory, "host.crt")),
  ];
  return certificates.some(({ notBefore }) => notBefore > nowMs / 1000);
}

export function examineCertificate({ directory, config }: Organization, nowMs: number): Finding {
  const cas = decodeCaBundle(text(directory, "ca.crt"));
  const hosts = decodeBundle(text(directory, "host.crt"));
  if (isClockBehind(directory, nowMs))
    return fail(
      `not valid yet, as this machine's clock says ${formatTime(nowMs)}: the clock is wrong`,
      setClock,
    );
  for (const host of hosts) verifyCertificate(host, cas, Math.floor(nowMs / 1000));
  const end = Math.min(...hosts.map(({ notAfter }) => notAfter));
  const days = Math.floor((end - nowMs / 1000) / dayS);
  const evidence = `valid until ${formatTime(end * 1000)}, ${days} days left`;
  return days >= warnDays || (config.ephemeral === true && days >= 0) ? ok(evidence) : warn(evidence, sync);
}

export async function examineNodeCertificate(
  { directory, config, slug }: Organization,
  nowMs: number,
): Promise<Finding> {
  const pem = readTextIfThere(join(directory, "node.crt"));
  if (pem === undefined) return skipped("there is no node.crt");
  if (isClockBehind(directory, nowMs)) return skipped("not examined: the clock of this machine is wrong");
  const { verifyNodeX509 } = await import("../../pki/verify-x509.ts");
  const privateKeyPem = readText(join(directory, "node.key"));
  const { name, ip_address: address } = config;
  verifyNodeX509({ pem, privateKeyPem, name, organization: slug, address, now: nowMs });
  return ok("node.crt belongs to node.key and is valid");
}

function text(directory: string, name: string): string {
  return readText(join(directory, name));
}
