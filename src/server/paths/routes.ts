// Handlers of src/api/paths/: paths, relays and attention.

import { maxFirst, type attentionApi } from "../../api/paths/attention.ts";
import type { pathsApi } from "../../api/paths/paths.ts";
import type { relaysApi } from "../../api/paths/relays.ts";
import { actorOf } from "../audit/record.ts";
import type { Handlers } from "../http/attach.ts";
import { listReply } from "../http/lists.ts";
import type { OrganizationCall } from "../http/route.ts";
import { firstSealIn } from "../config/seals.ts";
import { nodeTrouble } from "../nodes/attention.ts";
import { failingTests } from "../policy-files/policy-upkeep.ts";
import { onlineMs } from "../../api/values.ts";
import type { Services } from "../services.ts";
import { findNode, isOnline, type NodeRecord } from "../store/nodes.ts";
import { brokenByNode, countPathsByNode, listPaths } from "./list-paths.ts";
import { limitRelay } from "./relayed.ts";
import { listRelays } from "./relay-list.ts";

type Access = Pick<OrganizationCall, "caller" | "org">;

/** What the caller may see. `onto` adds a report that is not written yet; `changes` knows the open polls of this server. */
const pathsShownTo = ({ system, changes, reports }: Services, call: Access) => ({
  ownerId: ownerOf(call),
  isOnline: (node: NodeRecord) => isOnline(reports.onto(node), system.now(), changes),
});

export const pathHandlers = (services: Services): Handlers<typeof pathsApi> => {
  const { db, publicUrl, groupPaths } = services;
  const shownTo = (call: Access) => pathsShownTo(services, call);
  return {
    list: async (call, input) =>
      listReply(call, publicUrl, await listPaths(db, call.org.id, input, shownTo(call))),
    async counts(call, input) {
      // The endpoint has no search, but the query of a page needs the field.
      const asked = { ...input, search: "" };
      return listReply(call, publicUrl, await countPathsByNode(db, call.org.id, asked, shownTo(call)));
    },
    groups: async (call) => ({ body: (await groupPaths.of(call.org.id, ownerOf(call))).answer }),
    async between(call, { from = null, to = null }) {
      return { body: (await groupPaths.of(call.org.id, ownerOf(call))).between(from, to) };
    },
    async ofNode(call, input) {
      const { id: nodeId } = await findNode(db, call.org.id, call.id());
      return listReply(
        call,
        publicUrl,
        await listPaths(db, call.org.id, input, { ...shownTo(call), nodeId }),
      );
    },
  };
};

export const relayHandlers = ({ db, system }: Services): Handlers<typeof relaysApi> => ({
  list: async ({ org }) => ({ body: await listRelays(db, org.id, system.now()) }),
  limit: async (call, { limit_bytes: limit }) => ({
    body: await limitRelay({ db, system }, call.org.id, call.id(), limit, actorOf(call)),
  }),
});

export const attentionHandlers = (services: Services): Handlers<typeof attentionApi> => ({
  async retrieve(call) {
    const [trouble, broken_paths, failing_tests, view] = await Promise.all([
      nodeTrouble(services, call.org.id),
      brokenByNode(services.db, call.org.id, {
        ...pathsShownTo(services, call),
        seenAfter: services.system.now() - onlineMs,
        limit: maxFirst,
      }),
      failingTests(services.db, call.org.id),
      services.views.of(services.db, call.org.id),
    ]);
    const first_seal = call.org.role === "member" ? null : firstSealIn(view);
    return { body: { ...trouble, broken_paths, failing_tests, first_seal } };
  },
});

/**
 * The user whose nodes a caller with the role member is limited to; 0, which owns no node, for service tokens and visiting staff.
 * Undefined for administrators, who see all.
 */
export function ownerOf({ caller, org }: Access): number | undefined {
  if (org.role !== "member") return undefined;
  return caller.kind === "person" && !org.visiting ? caller.userId : 0;
}
