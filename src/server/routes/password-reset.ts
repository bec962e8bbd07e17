// Routes for a new password by e-mail.

import * as v from "valibot";
import { noContent } from "../http/reply.ts";
import { body, nothing, route, type Route } from "../http/route.ts";
import { requestReset, resetPassword } from "../users/sign-in/password-reset.ts";
import { NewPassword } from "../users/users.ts";
import { Email } from "../../api/values.ts";
import type { Services } from "../services.ts";
import { shellPage } from "../console/routes.ts";
import { foreignText } from "../../base/text.ts";

const ResetRequest = v.strictObject({ email: Email });
const NewOne = v.strictObject({ secret: foreignText(64), password: NewPassword });

export function resetRoutes(services: Services): Route[] {
  const path = "/api/password_reset/";
  return [
    route({
      method: "POST",
      path,
      access: "public",
      name: "password_reset_create",
      fresh: false,
      summary: "Send a link for a new password by e-mail, if there is a user of this address",
      takes: body(ResetRequest),
      answers: { 204: { description: "Sent, if there is such a user" } },
      errors: ["conflict", "throttled"],
      handle(call, { email }) {
        requestReset(services, email, call.address);
        return noContent;
      },
    }),
    route({
      method: "POST",
      path: `${path}confirm/`,
      access: "public",
      name: "password_reset_confirm_create",
      fresh: false,
      summary: "Set the new password, with the secret of the link. All sessions end; second factors stay",
      takes: body(NewOne),
      answers: { 204: { description: "Set" } },
      errors: ["not_found", "invalid_credentials", "throttled"],
      async handle(call, input) {
        await resetPassword(services, input, call.address);
        return noContent;
      },
    }),
    route({
      method: "GET",
      path: "/reset/",
      access: "public",
      name: "reset_retrieve",
      summary: "The page that the link for a new password opens",
      takes: nothing,
      answers: { 200: { description: "A page", type: "text/html" } },
      handle: shellPage,
    }),
  ];
}
