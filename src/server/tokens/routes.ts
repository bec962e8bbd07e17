// Handlers of src/api/tokens/.

import type { registrationTokensApi } from "../../api/tokens/registration-tokens.ts";
import type { serviceTokensApi } from "../../api/tokens/service-tokens.ts";
import type { TokenDeletion } from "../../api/left-access.ts";
import type { ListQuery } from "../../api/values.ts";
import { AppError } from "../../base/errors.ts";
import { actorOf } from "../audit/record.ts";
import type { Handlers } from "../http/attach.ts";
import { noContent } from "../http/reply.ts";
import type { OrganizationCall } from "../http/route.ts";
import {
  createRegistrationToken,
  registrationTokenColumns,
  registrationTokenOf,
} from "../nodes/joining/registration-tokens.ts";
import { requireFreshClaim } from "../nodes/joining/claims.ts";
import { reportOf, revokeToken } from "../offboarding/end-access.ts";
import type { TokenKind } from "../users/revoke-token.ts";
import { createServiceToken, serviceTokenColumns, serviceTokenOf } from "../users/service-tokens.ts";
import { listRows, type Listed } from "../store/list-rows.ts";
import type { Services } from "../services.ts";

const creatorOf = (call: OrganizationCall) => ({
  userId: call.caller.kind === "person" ? call.caller.userId : null,
  actor: actorOf(call),
});

export const registrationTokenHandlers = (services: Services): Handlers<typeof registrationTokensApi> => {
  const listed: Listed<ReturnType<typeof registrationTokenOf>> = {
    table: "registration_tokens",
    columns: registrationTokenColumns,
    where: "AND revoked_at IS NULL AND lower(coalesce(name, '')) LIKE $2 ESCAPE '!'",
    // A token may have many groups: the size of a page of the list follows from them.
    bytes: "octet_length(groups)",
    toItem: registrationTokenOf,
  };
  return {
    ...handlersOf(services, "registration_token", listed),
    async create(call, input) {
      if (input.node_name !== undefined) await requireFreshClaim(services.db, call, input.node_name);
      return {
        status: 201,
        body: await createRegistrationToken(services, call.org, input, creatorOf(call)),
      };
    },
  };
};

export const serviceTokenHandlers = (services: Services): Handlers<typeof serviceTokensApi> => {
  const listed: Listed<ReturnType<typeof serviceTokenOf>> = {
    table: "service_tokens",
    columns: serviceTokenColumns,
    where: "AND revoked_at IS NULL AND lower(name) LIKE $2 ESCAPE '!'",
    toItem: serviceTokenOf,
  };
  return {
    ...handlersOf(services, "service_token", listed),
    create: async (call, input) => ({
      status: 201,
      body: await createServiceToken(services, call.org, input, creatorOf(call)),
    }),
  };
};

/** Fields of both kinds. */
function handlersOf<Item>(services: Services, kind: TokenKind, listed: Listed<Item>) {
  return {
    list: (call: OrganizationCall, input: ListQuery) => listRows(services, call, listed, input),
    async retrieve(call: OrganizationCall) {
      const row = await services.db.get(
        `SELECT ${listed.columns} FROM ${listed.table} WHERE id = $1 AND org_id = $2 AND revoked_at IS NULL`,
        [call.id(), call.org.id],
      );
      if (row === undefined) throw new AppError("not_found", "There is no such token.");
      return { body: listed.toItem(row) };
    },
    async revoke(call: OrganizationCall, { revoke_nodes, revoke_webhooks, report }: TokenDeletion) {
      // Texts, because the input of a DELETE is its query.
      const ends = { revokeNodes: revoke_nodes === "true", revokeWebhooks: revoke_webhooks === "true" };
      const access = await revokeToken(services, call.org, kind, call.id(), actorOf(call), ends);
      return report === "true" ? { body: reportOf(access) } : noContent;
    },
  };
}
