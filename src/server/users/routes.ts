// Handlers of src/api/users.ts.

import type { joiningApi, ownUserApi, passwordResetApi, usersApi } from "../../api/users.ts";
import { buildInfo } from "../../build-info.ts";
import { actorOf } from "../audit/record.ts";
import { shellPage } from "../console/routes.ts";
import type { Handlers } from "../http/attach.ts";
import { listReply } from "../http/lists.ts";
import { accessOf, reportOf } from "../offboarding/end-access.ts";
import { setActive } from "../offboarding/user-status.ts";
import type { Services } from "../services.ts";
import { makeFirstUser } from "./first-user.ts";
import { acceptAsUser, acceptInvitation, showInvitation } from "./invitations.ts";
import { createUser, listUsers, userById } from "./users.ts";
import { setPassword } from "./sign-in/set-password.ts";
import { callingUser } from "./sessions/browser-sessions.ts";
import { requestReset, resetPassword } from "./sign-in/password-reset.ts";
import { originOf, provePassword } from "./sign-in/sign-in.ts";

export const ownUserHandlers = (services: Services): Handlers<typeof ownUserApi> => ({
  retrieve(call) {
    const { userId, email, isStaff } = callingUser(call);
    return { body: { id: userId, email, is_staff: isStaff, server_version: buildInfo.version } };
  },
  async changePassword(call, { current_password: password, new_password }) {
    const { userId, email } = callingUser(call);
    const proven = await provePassword(services, call, { email, password });
    await setPassword(services, userId, new_password, actorOf(call), proven);
  },
});

export const joiningHandlers = (services: Services): Handlers<typeof joiningApi> => ({
  accept: async (call, input) => ({ body: await acceptInvitation(services, input, originOf(call)) }),
  find: async (call, { secret }) => ({ body: await showInvitation(services, secret, call.address) }),
  acceptAsUser: async (call, { secret }) => ({
    body: await acceptAsUser(services, secret, callingUser(call), call.address),
  }),
  setup: async (call, input) => ({
    body: await makeFirstUser(services, input, call.address),
  }),
});

export const passwordResetHandlers = (services: Services): Handlers<typeof passwordResetApi> => ({
  request(call, { email }) {
    requestReset(services, email, call.address);
  },
  async confirm(call, input) {
    await resetPassword(services, input, call.address);
  },
  page: shellPage,
});

export const userHandlers = (services: Services): Handlers<typeof usersApi> => {
  const { db, publicUrl, system } = services;
  return {
    list: async (call, input) => listReply(call, publicUrl, await listUsers(db, input)),
    create: async (call, { is_staff: isStaff, ...login }) => ({
      body: await createUser(services, { ...login, isStaff }, actorOf(call)),
    }),
    async retrieve(call) {
      const user = await userById(db, call.id());
      const access = await accessOf(db, { kind: "person", id: user.id }, system.now());
      return { body: { ...user, ...reportOf(access) } };
    },
    async update(call, { is_active: isActive, revoke_tokens, revoke_nodes }) {
      const ends = { revokeTokens: revoke_tokens, revokeNodes: revoke_nodes };
      const user = await userById(db, call.id());
      const access = await setActive(services, user.email, isActive, actorOf(call), ends);
      return { body: { ...user, is_active: isActive, ...reportOf(access) } };
    },
  };
};
