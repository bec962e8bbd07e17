// Proves to a control plane that a session of `agent login` is on this machine, by the tokens of the machine's nodes: when
// one of them is revoked there, the session ends. A session works without proofs as well.

import { join } from "node:path";
import * as v from "valibot";
import { request } from "../../../api/request.ts";
import { maxProvenNodes, ownSessionsApi, type ProvenNodes } from "../../../api/sessions.ts";
import { AppError } from "../../../base/errors.ts";
import { sessionProof } from "../../../pki/session-proof.ts";
import { listOrganizations } from "../../files/list-organizations.ts";
import { readCredentials } from "../../files/organizations.ts";
import type { Client } from "./client.ts";

export type NodeProof = ProvenNodes["nodes"][number];

/** Proofs of the nodes at this control plane whose token this process may read. `session`: the id that `sessionIn` reads. */
export function proofsOf(configRoot: string, controlPlane: string, session: string): NodeProof[] {
  return listOrganizations(configRoot)
    .flatMap((slug) => {
      try {
        const { api_base, org_slug, node_id, api_token } = readCredentials(join(configRoot, slug));
        if (new URL(api_base).origin !== new URL(controlPlane).origin) return [];
        return [{ organization: org_slug, node_id, proof: sessionProof(api_token, session) }];
      } catch (error) {
        // Damaged, or another user's: nothing is proven for it.
        if (error instanceof AppError || error instanceof TypeError) return [];
        throw error;
      }
    })
    .slice(0, maxProvenNodes);
}

/**
 * The id of a session: all its tokens have the same `family`. Not verified, which the server does. Undefined: an older server
 * made the token.
 */
export function sessionIn(access: string): string | undefined {
  try {
    const claims: unknown = JSON.parse(Buffer.from(access.split(".")[1] ?? "", "base64url").toString());
    return v.parse(v.object({ family: v.pipe(v.string(), v.minLength(1), v.maxLength(128)) }), claims).family;
  } catch {
    return undefined;
  }
}

export async function sendProofs(
  client: Pick<Client, "request">,
  nodes: readonly NodeProof[],
): Promise<void> {
  await client.request(request(ownSessionsApi.proveNodes, {}, { nodes: [...nodes] }));
}
