// Handlers of src/api/certificates/seals.ts. A seal says what the nodes of an organization may be told, and is signed by its signers.

import type { sealsApi } from "../../api/certificates/seals.ts";
import { AppError } from "../../base/errors.ts";
import { actorOf } from "../audit/record.ts";
import { forgetSeals, publishSeal, sealedStateOf } from "../config/seals.ts";
import type { Handlers } from "../http/attach.ts";
import type { OrganizationCall } from "../http/route.ts";
import type { Services } from "../services.ts";
import type { Transaction } from "../store/database.ts";
import { readSeals } from "../store/tables/policies.ts";
import { requireRole } from "../require-role.ts";
import { addOfflineAuthority, storeOffline } from "./offline-ca.ts";
import { countVersions, listSealable } from "./awaiting-signers.ts";

/** An administrator who names the signers would take the organization from its owners: no owner could replace them. */
async function requireOwnerOfFirst(tx: Transaction, call: OrganizationCall): Promise<void> {
  try {
    await requireRole(tx, call.org.id, actorOf(call), "owner");
  } catch (cause) {
    if (!(cause instanceof AppError && cause.code === "permission_denied")) throw cause;
    throw new AppError("permission_denied", "Only an owner can publish the first seal of an organization.", {
      cause,
      hint: "Sign in as an owner, not with a service token. Administrators publish later seals, which its signers have signed.",
    });
  }
}

export const sealHandlers = (services: Services): Handlers<typeof sealsApi> => ({
  async list({ org }) {
    const { db, views } = services;
    const view = await views.of(db, org.id);
    const state = await sealedStateOf(db, view);
    return { body: { seals: await readSeals(db, org.id), state, authorities: view.trust.caPem } };
  },
  publish: async (call, input) => ({
    body: await publishSeal(services, call.org, input, actorOf(call), (tx) => requireOwnerOfFirst(tx, call)),
  }),
  async forget(call) {
    const actor = actorOf(call);
    await forgetSeals(services, call.org, actor, (tx) => requireRole(tx, call.org.id, actor, "owner"));
  },
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
      body: await addOfflineAuthority(services, call.org, certificate, actor, requireOwner),
    };
  },
  addCertificates: async (call, { certificates }) => ({
    body: await storeOffline(services, call.org, certificates, actorOf(call)),
  }),
});
