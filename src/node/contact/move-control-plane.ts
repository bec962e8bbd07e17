// Moves this node from the control plane's own CA, which it pinned, to a public certificate: only by a document that the
// order key signed, and only if the new address answers this node.

import { existsSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { boundedText } from "../../base/text.ts";
import { buildInfo } from "../../build-info.ts";
import { AppError, messageOf } from "../../base/errors.ts";
import { removeTree } from "../../base/files.ts";
import type { Log } from "../../base/log.ts";
import type { System } from "../../base/system.ts";
import { withLock } from "../files/lock.ts";
import { readCredentials, writeCredentials, type Organization } from "../files/organizations.ts";
import { makeClient } from "./requests/client.ts";

const Jws = boundedText(4096);

/** `command`: names the lock's holder in messages of other runs. */
type Deps = { system: Pick<System, "fetch" | "sleep">; log: Log; command: string };

/**
 * `jws`: the signed document. If it is refused, nothing changes: the former address still works, and the next check-in brings the
 * document again.
 */
export async function obeyMove(jws: unknown, organization: Organization, deps: Deps): Promise<void> {
  try {
    await takeMove(jws, organization, deps);
  } catch (error) {
    const reason = messageOf(error);
    deps.log.warn("The control plane's new address is not used yet", { team: organization.slug, reason });
  }
}

/** Throws untrusted_answer for a document that is not valid, and the client's errors if the address does not work. */
async function takeMove(
  jws: unknown,
  { slug, directory, config, damage }: Organization,
  { system, log, command }: Deps,
): Promise<void> {
  const pin = join(directory, "api-ca.crt");
  const credentials = readCredentials(directory);
  // With `damage`, the configuration is a copy that is good for revocations alone. A node moves once (`moved`). Without a pin it
  // trusts public authorities already, and no document changes its address.
  if (damage !== undefined || credentials.moved !== undefined || !existsSync(pin)) return;
  const { order_key: key } = config;
  const parsed = v.safeParse(Jws, jws);
  if (key === undefined || !parsed.success)
    throw new AppError(
      "untrusted_answer",
      "The control plane sent a new address without a signature to verify",
    );
  const { verifyMove } = await import("../../pki/signed-messages.ts");
  const move = await verifyMove(parsed.output, key);
  if (move.org !== slug)
    throw new AppError("untrusted_answer", "The new address is for another organization");
  const client = makeClient({ base: move.api_base, system, log, token: credentials.api_token });
  // Succeeds only if the certificate and its name are good, and if it is the same control plane, which knows this node.
  await client.checkin(slug, config.node_id, { version: buildInfo.version, uptime: 0 });
  const moved = await withLock(directory, command, system, async () => {
    // The node was registered again meanwhile: that token and address are newer.
    if (!Bun.deepEquals(readCredentials(directory), credentials)) return false;
    // This one write moves the node: with `moved`, the pinned CA is no longer used (requests/connection.ts).
    writeCredentials(directory, { ...credentials, api_base: client.base, moved: move.seq });
    removeTree(pin);
    return true;
  });
  if (!moved) return;
  log.info("The control plane has a public certificate now: this node uses it", {
    team: slug,
    former: credentials.api_base,
    present: client.base,
  });
}
