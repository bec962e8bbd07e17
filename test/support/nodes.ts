// Nodes from the control plane's view: keys and requests like those of an agent, answers parsed by schema.

import * as v from "valibot";
import { makeHostKey, makeNodeKey } from "../../src/pki/keys.ts";
import { decodeBundle } from "../../src/pki/bundle.ts";
import { decodeCaBundle, verifyCertificate, type NebulaCertificate } from "../../src/pki/nebula.ts";
import { makeCsr } from "../../src/pki/x509.ts";
import { CheckinAnswer } from "../../src/protocol/checkin.ts";
import { DownloadAnswer } from "../../src/protocol/download.ts";
import { ErrorBody } from "../../src/protocol/error-body.ts";
import { Node } from "../../src/protocol/node.ts";
import { RegisterAnswer } from "../../src/protocol/registration.ts";
import { operator } from "../../src/server/audit/record.ts";
import type { Organization } from "../../src/api/organizations.ts";
import { createRegistrationToken } from "../../src/server/nodes/joining/registration-tokens.ts";
import { RegistrationTokenRequest } from "../../src/api/tokens/registration-tokens.ts";
import type { Answer, TestServer } from "./server.ts";

export type Keys = { host_public_key: string; node_csr: string };

export async function makeKeys(name = "node"): Promise<Keys> {
  const { privatePem } = makeNodeKey();
  return {
    host_public_key: makeHostKey().publicPem,
    node_csr: await makeCsr({ privateKeyPem: privatePem, name }),
  };
}

export async function registrationToken(
  server: TestServer,
  org: Pick<Organization, "id" | "slug">,
  fields: Record<string, unknown> = {},
): Promise<string> {
  const request = v.parse(RegistrationTokenRequest, { uses: 1000, ...fields });
  const made = await createRegistrationToken(server.app.services, org, request, {
    userId: null,
    actor: operator,
  });
  return made.token;
}

export function sendRegistration(
  server: TestServer,
  slug: string,
  body: Record<string, unknown>,
  options: { token?: string; address?: string } = {},
): Promise<Answer> {
  return server.send("POST", `/api/org/${slug}/nodes/register/`, { ...options, body });
}

export type RegisteredNode = {
  id: number;
  name: string;
  ip: string;
  token: string;
  keys: Keys;
  answer: RegisterAnswer;
  checkin(fields?: Record<string, unknown>, options?: { wait?: number; address?: string }): Promise<Answer>;
  download(etag?: string): Promise<Answer>;
};

/** Registers with a reusable token, unless `fields` has another. */
export async function registerNode(
  server: TestServer,
  org: Organization,
  name: string,
  fields: Record<string, unknown> = {},
): Promise<RegisteredNode> {
  const keys = await makeKeys(name);
  const registration_token =
    fields["registration_token"] ?? (await registrationToken(server, org, { is_lighthouse: true }));
  const answer = await sendRegistration(server, org.slug, { name, ...keys, ...fields, registration_token });
  if (answer.status !== 201) throw new Error(`registration of ${name}: ${answer.status} ${answer.text}`);
  return nodeOf(server, org, keys, v.parse(RegisterAnswer, answer.json));
}

export function nodeOf(
  server: TestServer,
  org: Organization,
  keys: Keys,
  answer: RegisterAnswer,
): RegisteredNode {
  const { node, api_token: token } = answer;
  const path = `/api/org/${org.slug}/nodes/${node.id}`;
  return {
    id: node.id,
    name: node.name,
    ip: node.ip_address,
    token,
    keys,
    answer,
    checkin: (fields = {}, { wait, address } = {}) =>
      server.send("POST", `${path}/checkin/`, {
        token,
        body: { version: "1.0.0", uptime: 7, ...fields },
        ...(wait === undefined ? {} : { headers: { Prefer: `wait=${wait}` } }),
        ...(address === undefined ? {} : { address }),
      }),
    download: (etag) =>
      server.send("GET", `${path}/download_config/`, {
        token,
        ...(etag === undefined ? {} : { headers: { "If-None-Match": etag } }),
      }),
  };
}

export const checkinOf = (answer: Answer) => v.parse(CheckinAnswer, answer.json);
export const downloadOf = (answer: Answer) => v.parse(DownloadAnswer, answer.json);
export const nodeFrom = (answer: Answer) => v.parse(Node, answer.json);
/** Status and code of a refusal. */
export const codeOf = (answer: Answer) => [answer.status, v.parse(ErrorBody, answer.json).code];

/** The column n of a query about an organization. */
export const countOf = async (server: TestServer, sql: string, orgId: number) =>
  Number((await server.db.get(sql, [orgId]))?.["n"]);
export const countNodes = (server: TestServer, orgId: number) =>
  countOf(server, "SELECT count(*) AS n FROM nodes WHERE org_id = $1", orgId);

/** The node confirms its present configuration. */
export async function confirm(node: RegisteredNode): Promise<number> {
  const { config_version } = checkinOf(await node.checkin());
  await node.checkin({ config_version, confirmed_config_version: config_version });
  return config_version;
}

/** The node's overlay certificate, verified with the CA bundle that the node got. */
export function certificateOf({ files }: DownloadAnswer, nowMs: number): NebulaCertificate {
  const [certificate] = decodeBundle(files["host.crt"]);
  if (certificate === undefined) throw new Error("host.crt holds no certificate");
  verifyCertificate(certificate, decodeCaBundle(files["ca.crt"]), Math.floor(nowMs / 1000));
  return certificate;
}

const Blocklist = v.object({ pki: v.object({ blocklist: v.array(v.string()) }) });

export function blocklistOf({ files }: DownloadAnswer): string[] {
  return v.parse(Blocklist, Bun.YAML.parse(files["config.yml"])).pki.blocklist;
}
