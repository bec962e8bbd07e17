// Verifies a download before its use: the certificates are for our keys, name and address, are signed by a CA of the
// bundle, and are valid now. The engine's `-test` does not verify the chain.

import { AppError, hasCode, messageOf } from "../../base/errors.ts";
import { decodeBundle } from "../../pki/bundle.ts";
import { decodeCaBundle, verifyCertificate } from "../../pki/nebula.ts";
import { publicOfHostKey } from "../../pki/keys.ts";
import type { DownloadAnswer } from "../../protocol/download.ts";
import { NodeConfig } from "../../protocol/organization-files.ts";
import * as v from "valibot";
import { jsonText } from "../../base/text.ts";

/** What this machine knows itself, to compare a download with. */
export type Expected = {
  hostKeyPem: string;
  nodeKeyPem: string;
  slug: string;
  /** Unset before the registration. */
  nodeId?: number;
  /** ms since 1970. */
  now: number;
};

/** Returns the parsed node-config.json of the download. Throws untrusted_answer with the reason. */
export async function checkAnswer(answer: DownloadAnswer, expected: Expected): Promise<NodeConfig> {
  const config = readNodeConfig(answer);
  if (config.org_slug !== expected.slug) throw refuse(`it is for the organization "${config.org_slug}"`);
  if (expected.nodeId !== undefined && config.node_id !== expected.nodeId)
    throw refuse("it is for another node");
  checkHost(answer, config, expected);
  const nodeCrt = answer.files["node.crt"];
  if (nodeCrt !== undefined) {
    const { verifyNodeX509 } = await import("../../pki/verify-x509.ts");
    const { name, org_slug: organization, ip_address: address } = config;
    verifyNodeX509({
      pem: nodeCrt,
      privateKeyPem: expected.nodeKeyPem,
      name,
      organization,
      address,
      now: expected.now,
    });
  }
  return config;
}

function readNodeConfig(answer: DownloadAnswer): NodeConfig {
  const parsed = v.safeParse(jsonText(NodeConfig), answer.files["node-config.json"]);
  if (parsed.success) return parsed.output;
  throw refuse("its node-config.json is not valid");
}

function checkHost({ files }: DownloadAnswer, config: NodeConfig, expected: Expected): void {
  const key = publicOfHostKey(expected.hostKeyPem);
  try {
    const cas = decodeCaBundle(files["ca.crt"]);
    const certificates = decodeBundle(files["host.crt"]);
    for (const certificate of certificates) {
      if (!Buffer.from(certificate.publicKey).equals(key)) throw refuse("its host.crt is for another key");
      if (certificate.name !== config.name) throw refuse(`its host.crt is for "${certificate.name}"`);
      if (!certificate.networks.some((network) => network.split("/")[0] === config.ip_address)) {
        throw refuse("its host.crt is for another address");
      }
      verifyCertificate(certificate, cas, Math.floor(expected.now / 1000));
    }
  } catch (error) {
    if (hasCode(error, "untrusted_answer")) throw error;
    throw refuse(messageOf(error), error);
  }
}

function refuse(reason: string, cause?: unknown): AppError {
  return new AppError("untrusted_answer", `The files that the control plane sent are refused: ${reason}`, {
    cause,
    hint: "If the certificate is not valid yet or expired, check this machine's clock.",
  });
}
