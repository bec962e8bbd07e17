// Routes for registration tokens (for machines) and service tokens (for programs).

import * as v from "valibot";
import { AppError } from "../../errors.ts";
import { actorOf } from "../audit/record.ts";
import { ListQuery } from "../http/lists.ts";
import {
  createRegistrationToken,
  NewRegistrationToken,
  RegistrationToken,
  registrationTokenColumns,
  registrationTokenOf,
  RegistrationTokenRequest,
} from "../nodes/registration-tokens.ts";
import { created, noContent } from "../http/reply.ts";
import {
  always,
  body,
  hasSome,
  id,
  isOn,
  nothing,
  organizationRoute,
  query,
  type OrganizationCall,
  type Route,
  type Schema,
} from "../http/route.ts";
import {
  createServiceToken,
  NewServiceToken,
  ServiceToken,
  serviceTokenColumns,
  serviceTokenOf,
  ServiceTokenRequest,
} from "../people/service-tokens.ts";
import type { TokenKind } from "../people/issued-tokens.ts";
import { AccessReport, reportOf, revokeToken } from "../offboarding/left-access.ts";
import type { Services } from "../services.ts";
import { listRows, TokenDeletion, type Listed } from "./rows.ts";

export function allTokenRoutes(services: Services): Route[] {
  return [...registrationTokenRoutes(services), ...serviceTokenRoutes(services)];
}

const creatorOf = (call: OrganizationCall) => ({
  userId: call.caller.kind === "person" ? call.caller.userId : null,
  actor: actorOf(call),
});

function registrationTokenRoutes(services: Services): Route[] {
  const listed: Listed = {
    table: "registration_tokens",
    columns: registrationTokenColumns,
    where: "AND revoked_at IS NULL AND lower(coalesce(name, '')) LIKE $2 ESCAPE '!'",
    bytes: "octet_length(groups)",
    toItem: registrationTokenOf,
  };
  return tokenRoutes({
    services,
    listed,
    path: "registration_tokens/",
    kind: "registration_token",
    item: RegistrationToken,
    creation: organizationRoute({
      people: true,
      method: "POST",
      path: "registration_tokens/",
      access: "admin",
      name: "registration_tokens_create",
      summary: "Create a token for registering machines. It is shown once, with the command line to paste",
      grows: always,
      takes: body(RegistrationTokenRequest),
      answers: { 201: { description: "The token", schema: NewRegistrationToken } },
      errors: ["network_full"],
      // Its machines get what it carries, at once: so it takes what an approval, or a change of a node's groups, takes.
      fresh: {
        groups: hasSome,
        is_lighthouse: isOn,
        node_id: true,
        approved: isOn,
        name: false,
        node_name: false,
        uses: false,
        expires_in: false,
        ephemeral: false,
        silence: false,
        names: false,
      },
      handle: async (call, input) =>
        created(await createRegistrationToken(services, call.org, input, creatorOf(call))),
    }),
  });
}

function serviceTokenRoutes(services: Services): Route[] {
  const listed: Listed = {
    table: "service_tokens",
    columns: serviceTokenColumns,
    where: "AND revoked_at IS NULL AND lower(name) LIKE $2 ESCAPE '!'",
    toItem: serviceTokenOf,
  };
  return tokenRoutes({
    services,
    listed,
    path: "service_tokens/",
    kind: "service_token",
    item: ServiceToken,
    creation: organizationRoute({
      people: true,
      method: "POST",
      path: "service_tokens/",
      access: "admin",
      fresh: true,
      name: "service_tokens_create",
      summary: "Create a token for a program. It is shown once",
      grows: always,
      takes: body(ServiceTokenRequest),
      answers: { 201: { description: "The token", schema: NewServiceToken } },
      handle: async (call, input) =>
        created(await createServiceToken(services, call.org, input, creatorOf(call))),
    }),
  });
}

type Tokens = {
  services: Services;
  listed: Listed;
  path: string;
  kind: TokenKind;
  item: Schema;
  creation: Route;
};

/** The routes of both kinds of tokens: list, read, revoke. */
function tokenRoutes({ services, listed, path, kind, item, creation }: Tokens): Route[] {
  const what = kind.replace("_", " ");
  const name = path.replace("/", "");
  return [
    organizationRoute({
      people: true,
      method: "GET",
      path,
      access: "admin",
      name: `${name}_list`,
      summary: `The organization's ${what}s, without the secrets`,
      takes: query(ListQuery),
      answers: { 200: { description: `${what}s`, schema: v.array(item) } },
      handle: (call, input) => listRows(services, call, listed, input),
    }),
    creation,
    organizationRoute({
      people: true,
      method: "GET",
      path: `${path}${id}/`,
      access: "admin",
      name: `${name}_retrieve`,
      summary: `One ${what}, without the secret`,
      takes: nothing,
      answers: { 200: { description: `The ${what}`, schema: item } },
      async handle(call) {
        const row = await services.db.get(
          `SELECT ${listed.columns} FROM ${listed.table} WHERE id = $1 AND org_id = $2 AND revoked_at IS NULL`,
          [call.id(), call.org.id],
        );
        if (row === undefined) throw new AppError("not_found", "There is no such token.");
        return { body: listed.toItem(row) };
      },
    }),
    organizationRoute({
      people: true,
      method: "DELETE",
      path: `${path}${id}/`,
      access: "admin",
      fresh: kind === "service_token" ? true : { revoke_nodes: isOn, revoke_webhooks: isOn, report: false },
      name: `${name}_destroy`,
      summary: `Revoke a ${what}. Its nodes and webhooks stay, unless ?revoke_nodes=true and ?revoke_webhooks=true`,
      takes: query(TokenDeletion),
      answers: {
        200: {
          description:
            "Revoked, with ?report=true: what was created with the token, and which of it was revoked",
          schema: AccessReport,
        },
        204: { description: "Revoked" },
      },
      async handle(call, { revoke_nodes, revoke_webhooks, report }) {
        const ends = { revokeNodes: revoke_nodes === "true", revokeWebhooks: revoke_webhooks === "true" };
        const access = await revokeToken(services, call.org, kind, call.id(), actorOf(call), ends);
        if (report === "true") return { body: reportOf(access) };
        return noContent;
      },
    }),
  ];
}
