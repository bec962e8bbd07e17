// Connects a registered organization to its control plane, with URL and token from its directory. A token in the keyring
// has precedence.

import { given } from "../../../base/given.ts";
import { AppError, hasCode, messageOf } from "../../../base/errors.ts";
import type { Log } from "../../../base/log.ts";
import type { System } from "../../../base/system.ts";
import { makeClient, type Client } from "./client.ts";
import { keyringToken, storeInKeyring } from "../../files/keyring.ts";
import { readApiCa, readCredentials, type Organization } from "../../files/organizations.ts";

export type ConnectionSystem = Pick<System, "fetch" | "sleep" | "run" | "env" | "platform" | "executable">;

/** Runs `work` with a client of the organization's control plane. */
export type WithClient = <T>(work: (client: Client) => Promise<T>) => Promise<T>;

/** A client for the organization's control plane, with this bearer token or none. */
export function clientOf(
  directory: string,
  token: string | undefined,
  system: ConnectionSystem,
  log: Log,
): Client {
  // `moved`: the trust in the control plane's own CA has ended. A public CA has signed its certificate.
  const { api_base: base, moved } = readCredentials(directory);
  const ca = moved === undefined ? readApiCa(directory) : undefined;
  // An http:// URL in the file was accepted by --allow-plain-http at registration.
  return makeClient({
    base,
    allowPlainHttp: true,
    log,
    system,
    ...given({ token, ca }),
  });
}

/**
 * Uses the token of the keyring, else of the file. If the control plane refuses the keyring's token with 401, the file's is
 * tried once. If that works, it replaces the one in the keyring.
 */
export function connectOrganization(
  organization: Organization,
  system: ConnectionSystem,
  log: Log,
): WithClient {
  const { directory } = organization;
  let tokenInUse: Promise<string> | undefined;
  const callWith: WithClient = async (work) => {
    const token = await (tokenInUse ??= readToken(organization, system));
    try {
      return await work(clientOf(directory, token, system, log));
    } catch (error) {
      if (!isRefused(error)) throw error;
      // Read the file again: a registration may have replaced the token.
      const { api_token: fileToken } = readCredentials(directory);
      if (fileToken === token) throw error;
      const result = await work(clientOf(directory, fileToken, system, log));
      tokenInUse = Promise.resolve(fileToken);
      log.info("The token in the keyring was out of date and has been replaced", { team: organization.slug });
      await storeInKeyring(accountOf(organization.slug, organization.config.node_id), fileToken, system);
      return result;
    }
  };
  return (work) =>
    callWith(work).catch(async (error: unknown) => {
      throw await provenRefusal(error, organization);
    });
}

/**
 * The error that a refusal counts as. "node_revoked" counts only with a valid signed order to revoke this node, or from a control
 * plane that never sent an order key; else it becomes untrusted_answer.
 */
async function provenRefusal(error: unknown, organization: Organization): Promise<unknown> {
  if (!hasCode(error, "node_revoked")) return error;
  const { examineOrder, orderKeysOf } = await import("../../files/orders.ts");
  if (orderKeysOf(organization).length === 0) return error;
  const { order = "" } = error.details;
  // Undefined: the order is valid.
  const fault = await examineOrder(order, organization).then(
    ({ action }) => (action === "revoke" ? undefined : error),
    (reason: unknown) => reason,
  );
  if (fault === undefined) return error;
  const why = order === "" ? "" : `: ${messageOf(fault)}`;
  return new AppError(
    "untrusted_answer",
    `The control plane says that this node is revoked, but sent no valid order${why}`,
    { cause: fault },
  );
}

/** Whether the control plane does not accept the token. */
function isRefused(error: unknown): boolean {
  return hasCode(error, "token_not_valid", "not_authenticated");
}

async function readToken(
  { slug, directory, config }: Organization,
  system: ConnectionSystem,
): Promise<string> {
  const { api_token: fileToken } = readCredentials(directory);
  return (await keyringToken(accountOf(slug, config.node_id), system)) ?? fileToken;
}

/** The name of the keyring entry. */
export function accountOf(slug: string, nodeId: number): string {
  return `${slug}:${nodeId}`;
}
