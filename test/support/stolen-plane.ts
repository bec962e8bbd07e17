// A control plane whose database, keys and process a thief has: a proxy between nodes and the real one, which changes the
// answers as a test wants. Its online CA is the test's own, so that the test can mint what a thief mints.

import * as v from "valibot";
import { mergeYaml, stringifyYaml, type YamlMap } from "../../src/base/yaml.ts";
import { readYaml } from "../../src/node/files/config/read-yaml.ts";
import { encodePem } from "../../src/pki/bundle.ts";
import { makeHostKey, publicOfHostKey } from "../../src/pki/keys.ts";
import {
  makeCa,
  signCertificate,
  type CertificateAuthority,
  type HostTemplate,
} from "../../src/pki/nebula.ts";
import { DownloadAnswer } from "../../src/protocol/download.ts";
import type { SignedSeal } from "../../src/protocol/seals/seal.ts";
import { NodeConfig } from "../../src/protocol/organization-files.ts";

const nowS = Math.floor(Date.now() / 1000);
const dayS = 86_400;

export const authority = (name: string, limits: { networks?: string[]; unsafeNetworks?: string[] } = {}) =>
  makeCa({ version: 1, name, notBefore: nowS - 600, notAfter: nowS + 30 * dayS, ...limits });

export const caPem = ({ certificate }: CertificateAuthority): string => encodePem(certificate);

/** Heeds no limit of the CA, as a thief with its key. */
export function mint(
  { certificate, privateKey }: CertificateAuthority,
  identity: Pick<HostTemplate, "name" | "networks"> & Partial<HostTemplate>,
): string {
  const notBefore = nowS - 300;
  const signed = signCertificate(
    {
      version: 1,
      unsafeNetworks: [],
      groups: [],
      notBefore,
      notAfter: nowS + dayS,
      publicKey: publicOfHostKey(makeHostKey().privatePem),
      ...identity,
    },
    {
      certificate: { ...certificate, networks: [], unsafeNetworks: [], notBefore: 0, notAfter: 1e10 },
      privateKey,
    },
  );
  return encodePem(signed);
}

/** `name`: of the node that asks. */
export type Alter = (answer: DownloadAnswer, name: string) => DownloadAnswer;

export const withFiles = (
  answer: DownloadAnswer,
  files: Partial<DownloadAnswer["files"]>,
): DownloadAnswer => ({
  ...answer,
  files: { ...answer.files, ...files },
});

export const withConfig = (answer: DownloadAnswer, change: YamlMap): DownloadAnswer =>
  withFiles(answer, {
    "config.yml": stringifyYaml(mergeYaml(readYaml(answer.files["config.yml"], "test"), change)),
  });

export function withNode(answer: DownloadAnswer, change: Partial<NodeConfig>): DownloadAnswer {
  const present = v.parse(NodeConfig, JSON.parse(answer.files["node-config.json"]));
  return withFiles(answer, { "node-config.json": JSON.stringify({ ...present, ...change }) });
}

export function withSeals(answer: DownloadAnswer, seals: readonly SignedSeal[] | undefined): DownloadAnswer {
  const { seals: _, ...rest } = answer;
  return seals === undefined ? rest : { ...rest, seals };
}

/** A proxy of the control plane at `target`. `alter`: of each download, from now on. */
export function startStolenPlane(target: string): { url: string; alter: Alter } & Disposable {
  let downloads = 0;
  const stolen = { alter: ((answer) => answer) as Alter };
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    idleTimeout: 0,
    async fetch(request) {
      const { pathname, search } = new URL(request.url);
      const isDownload = pathname.includes("download_config");
      const headers = new Headers(request.headers);
      for (const name of ["host", "accept-encoding", ...(isDownload ? ["if-none-match"] : [])])
        headers.delete(name);
      const { method } = request;
      const body = method === "GET" ? undefined : await request.text();
      const answer = await fetch(target + pathname + search, {
        method,
        headers,
        signal: request.signal,
        ...(body === undefined ? {} : { body }),
      });
      const passed = new Headers(answer.headers);
      for (const name of ["content-encoding", "content-length", "transfer-encoding"]) passed.delete(name);
      const text = await answer.text();
      const head = { status: answer.status, headers: passed };
      if (!isDownload || !answer.ok) return new Response(text === "" ? null : text, head);
      const parsed = v.parse(DownloadAnswer, JSON.parse(text));
      passed.set("etag", `"stolen-${++downloads}"`);
      return new Response(JSON.stringify(stolen.alter(parsed, parsed.node.name)), head);
    },
  });
  return Object.assign(stolen, {
    url: `http://127.0.0.1:${server.port}`,
    [Symbol.dispose]: () => void server.stop(true),
  });
}
