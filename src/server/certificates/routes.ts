// Handlers of src/api/certificates/seals.ts.

import type { sealsApi } from "../../api/certificates/seals.ts";
import { actorOf } from "../audit/record.ts";
import type { Handlers } from "../http/attach.ts";
import type { Services } from "../services.ts";
import type { Transaction } from "../store/database.ts";
import { requireRole } from "../users/late-rights.ts";
import { addOfflineAuthority, storeOffline } from "./offline.ts";
import { countVersions, listSealable } from "./waiting.ts";

export const sealHandlers = (services: Services): Handlers<typeof sealsApi> => ({
  sealable: async ({ org }, { groups }) => ({
    body: {
      nodes: await listSealable(services.db, org.id, groups, services.system.now()),
      ...(await countVersions(services.db, org.id)),
    },
  }),
  addAuthority: async (call, { certificate }) => {
    const actor = actorOf(call);
    const requireOwner = (tx: Transaction) => requireRole(tx, call.org.id, actor, "owner");
    return {
      status: 201,
      body: await addOfflineAuthority(services, call.org, certificate, actor, requireOwner),
    };
  },
  addCertificates: async (call, { certificates }) => ({
    status: 201,
    body: await storeOffline(services, call.org, certificates, actorOf(call)),
  }),
});
