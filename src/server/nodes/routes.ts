// Handlers of src/api/nodes.ts, phones.ts and enrollments.ts, and of registrations.

import type { enrollmentsApi, reauthenticationsApi } from "../../api/enrollments.ts";
import { beginEnrollment, confirmEnrollment, findEnrollment, pollEnrollment } from "./joining/enrollments.ts";
import { listDue, proveOwner } from "./lifecycle/reauthentication.ts";
import type { registrationsApi } from "../../api/registrations.ts";
import { listRows } from "../store/list-rows.ts";
import { registrationRequests } from "../store/tables/joining.ts";
import { register } from "./joining/register.ts";
import { answerable, answerRequest, registrationItemOf } from "./joining/registration-requests.ts";
import type { phonesApi } from "../../api/phones.ts";
import type { OrganizationCall } from "../http/route.ts";
import { browserOf } from "../users/sessions/browser-sessions.ts";
import { makePhone, type PhoneWish } from "./phones.ts";
import type { nodesApi } from "../../api/nodes.ts";
import type { routesApi } from "../../api/paths/routes.ts";
import { AppError } from "../../base/errors.ts";
import { sessionsEndedHeader } from "../../protocol/sign-in.ts";
import { actorOf } from "../audit/record.ts";
import type { Handlers } from "../http/attach.ts";
import { listReply } from "../http/lists.ts";
import { onlineHistory } from "../metrics/online-history.ts";
import { namesNewGroup } from "../policy/groups.ts";
import { adds } from "../retention/budget.ts";
import { inTurnOf, testingOf } from "../pipeline.ts";
import { currentFiles, hasAlready, headersOf, jsonReply } from "./download-routes.ts";
import type { Services } from "../services.ts";
import { findNode, isOnline, type NodeRecord } from "../store/nodes.ts";
import { nextChanges } from "./contact/next-changes.ts";
import { ownerRequiredOf, requireMe } from "./node-owner.ts";
import { createRoute, deleteRoute, listRoutes, updateRoute } from "./networks-behind.ts";
import { listNodes } from "./list-nodes.ts";
import { createNode, groupsIn, patchNode, renewNode } from "./nodes.ts";
import { revokeNode } from "./lifecycle/revoke.ts";
import { listRevocations } from "./lifecycle/revocations.ts";
import { restoreNode } from "./lifecycle/restore.ts";
import { showOne } from "./show-nodes.ts";
import { transferNode } from "./lifecycle/transfer-node.ts";

export const nodeHandlers = (services: Services): Handlers<typeof nodesApi> => ({
  async list(call, { revoked, owner, exits, ids, ...input }) {
    const ownerId = owner === undefined ? undefined : requireMe(call);
    const listed = { revoked: revoked === "true", ownerId, isExit: exits === "true", ids };
    return listReply(call, services.publicUrl, await listNodes(services, call.org, input, listed));
  },
  create: async (call, input) => ({
    body: await createNode(services, call.org, input, actorOf(call)),
  }),
  online: async ({ org }, { days }) => ({
    body: await onlineHistory(services.db, org.id, {
      days,
      now: services.system.now(),
      isMember: org.role === "member",
    }),
  }),
  revocations: async (call, input) =>
    listReply(call, services.publicUrl, await listRevocations(services, call.org.id, input)),
  retrieve: async (call) => ({
    body: await showOne(services, call.org, await findNode(services.db, call.org.id, call.id())),
  }),
  update: {
    // Asked only of an organization that is full: what adds nothing is still permitted (http/attach.ts).
    grows: async (input, call) => {
      const { name, config_overrides: configOverrides, subnets } = input;
      const stored = await findNode(services.db, call.org.id, call.id());
      return (
        adds(stored, { name, configOverrides, subnets }) ||
        (await namesNewGroup(services.db, call.org.id, groupsIn(input)))
      );
    },
    handle: async (call, input) => ({
      body: await patchNode(
        { ...services, testing: testingOf(services, call) },
        call.org,
        call.id(),
        input,
        actorOf(call),
      ),
    }),
  },
  async revoke(call, { reason }) {
    const ownerId = ownerRequiredOf(call);
    const why = reason ?? (ownerId === undefined ? undefined : "removed by its owner");
    const { sessionsEnded } = await revokeNode(services, call.org, call.id(), actorOf(call), why, ownerId);
    return { status: 204, headers: { [sessionsEndedHeader]: String(sessionsEnded) } };
  },
  transfer: async (call, input) => ({
    body: await transferNode(services, call.org, call.id(), input, actorOf(call)),
  }),
  async config(call) {
    const { files } = await currentFiles(services, call);
    const headers = headersOf(files);
    if (hasAlready(call, files)) return { status: 304, headers };
    return inTurnOf(services, call, async () => {
      const { config_version, etag, files: texts } = await files.answer();
      const config_yml = texts["config.yml"];
      return jsonReply({ config_version, etag: etag ?? files.etag, config_yml }, headers);
    });
  },
  diff: async (call) => ({
    body: await nextChanges(services, call.org, call.id(), (work) => inTurnOf(services, call, work)),
  }),
  restore: async (call) => ({
    body: await showOne(services, call.org, await restoreNode(services, call.org, call.id(), actorOf(call))),
  }),
  async renewCertificate(call) {
    const renewed = await renewNode(services, call.org, call.id(), actorOf(call));
    const { certificate, config_version } = await showOne(services, call.org, renewed);
    if (certificate === null)
      throw new AppError("internal", `${renewed.name} was renewed without a certificate`);
    return { body: { certificate, config_version } };
  },
});

export const phoneHandlers = (services: Services): Handlers<typeof phonesApi> => {
  const make = async (call: OrganizationCall, wish: PhoneWish) => {
    const user = browserOf(call, "Only a signed-in browser makes site files for phones.");
    const body = await makePhone(services, call, user, wish, actorOf(call));
    // With `state`, it waits for approval.
    return "state" in body ? ({ status: 202, body } as const) : ({ status: 201, body } as const);
  };
  return {
    create: (call, input) => make(call, { kind: "new", ...input }),
    import: (call, input) => make(call, { kind: "import", id: call.id(), ...input }),
  };
};

export const registrationHandlers = (services: Services): Handlers<typeof registrationsApi> => ({
  async register(call, input) {
    const answer = await register(services, call, input);
    // With `state`, it waits for approval.
    return "state" in answer ? { status: 202, body: answer } : { status: 201, body: answer };
  },
  list: (call, input) =>
    listRows(
      services,
      call,
      {
        table: "registration_requests",
        columns: registrationRequests.select(),
        where: `${answerable(services.system.now(), input.state)} AND name LIKE $2 ESCAPE '!'`,
        bytes: "octet_length(groups)",
        toItem: registrationItemOf,
      },
      input,
    ),
  async approve(call) {
    await answerRequest(services, call.org, call.id(), { state: "approved" }, actorOf(call));
  },
  // `was`: the state that the caller saw. It differs if another administrator was faster: then the refusal is a conflict.
  async refuse(call, { state: was }) {
    await answerRequest(services, call.org, call.id(), { state: "refused", was }, actorOf(call));
  },
});

export const routeHandlers = (services: Services): Handlers<typeof routesApi> => {
  const { db, publicUrl, reports, system, changes } = services;
  // By the last check-in, also one that is not written yet (contact/reports.ts).
  const presence = { isOnline: (node: NodeRecord) => isOnline(reports.onto(node), system.now(), changes) };
  return {
    list: async (call, input) => listReply(call, publicUrl, await listRoutes(db, call.org, input, presence)),
    create: async (call, input) => ({
      body: await createRoute(services, call.org, input, actorOf(call), presence),
    }),
    update: async (call, input) => ({
      body: await updateRoute(services, call.org, input, actorOf(call), presence),
    }),
    async delete(call, input) {
      await deleteRoute(services, call.org, input, actorOf(call));
    },
  };
};

const mustSignIn = "Only a signed-in browser confirms machines.";

export const enrollmentHandlers = (services: Services): Handlers<typeof enrollmentsApi> => ({
  create: async (call, input) => ({
    body: await beginEnrollment(services, input, call.address),
  }),
  poll: async (_call, { enrollment_token }) => ({ body: await pollEnrollment(services, enrollment_token) }),
  find: async (call, { request }) => ({
    body: await findEnrollment(services, browserOf(call, mustSignIn), request),
  }),
  async confirm(call, { request: code, words }) {
    const user = browserOf(call, mustSignIn);
    await confirmEnrollment(services, call.org, user, { code, words }, actorOf(call));
  },
});

export const reauthenticationHandlers = (services: Services): Handlers<typeof reauthenticationsApi> => ({
  list: async (call) => ({ body: await listDue(services, call.org, ownerRequiredOf(call)) }),
  async confirm(call) {
    await proveOwner(services, call.org, call.id(), browserOf(call, mustSignIn).userId, actorOf(call));
  },
});
