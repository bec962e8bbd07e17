// After a sign-in, and when its tokens were renewed: tells the control plane on which machine the session is.

import { messageOf } from "../base/errors.ts";
import type { NodeProof } from "../node/contact/requests/session-nodes.ts";
import type { Profile } from "../node/files/profiles.ts";
import type { Context } from "./command.ts";

/** Never fails the command: a machine without nodes, and an older control plane, are usual. */
export async function proveSession(context: Context, profile: Profile, access: string): Promise<void> {
  const { system, log } = context;
  const { sendProofs, sessionIn } = await import("../node/contact/requests/session-nodes.ts");
  const session = sessionIn(access);
  if (session === undefined) return;
  try {
    const proofs = await findProofs(context, profile, session);
    if (proofs.length === 0) return;
    const { clientOf } = await import("../node/contact/requests/session.ts");
    await sendProofs(clientOf(profile, system, access), proofs);
  } catch (error) {
    log.debug("The control plane does not know on which machine this session is", {
      reason: messageOf(error),
    });
  }
}

/** Whether proveSession would send something. The proofs that this makes are of no session, and are not sent. */
export const canProve = (context: Context, profile: Profile): Promise<boolean> =>
  findProofs(context, profile, "").then(
    ({ length }) => length > 0,
    () => false,
  );

/** The tokens of nodes belong to root: for other users, the daemon makes the proofs. Throws without a daemon. */
async function findProofs(
  context: Context,
  profile: Profile,
  session: string,
): Promise<readonly NodeProof[]> {
  const { proofsOf } = await import("../node/contact/requests/session-nodes.ts");
  const own = proofsOf(context.settings.configRoot, profile.api_base, session);
  return own.length > 0 ? own : proofsOfDaemon(context, profile.api_base, session);
}

async function proofsOfDaemon(
  { settings, system }: Context,
  controlPlane: string,
  session: string,
): Promise<readonly NodeProof[]> {
  const { askDaemon } = await import("../daemon/ipc/client.ts");
  const { daemonAddress } = await import("./node/daemon-address.ts");
  const request = { action: "prove", session, control_plane: controlPlane };
  return (await askDaemon(daemonAddress(settings), system, request, { patient: false })).proofs ?? [];
}
