// A registered organization's connection to its control plane: address and token from its directory, the token from
// the keyring first. Remembers nothing between runs.

import { AppError } from "../../errors.ts";
import type { Log } from "../../log.ts";
import type { System } from "../../system.ts";
import { makeClient, type Client } from "./client.ts";
import { keyringToken, storeInKeyring } from "../files/keyring.ts";
import { readApiCa, readCredentials, type Organization } from "../files/organizations.ts";

export type ConnectionEdge = Pick<System, "fetch" | "sleep" | "run" | "env" | "platform" | "executable">;

/** Runs `work` with a client of the organization's control plane. */
export type WithClient = <T>(work: (client: Client) => Promise<T>) => Promise<T>;

/** A client for the organization's control plane, as its directory describes it, with this bearer value or none. */
export function clientOf(
  directory: string,
  token: string | undefined,
  system: ConnectionEdge,
  log: Log,
): Client {
  const { api_base: base } = readCredentials(directory);
  const ca = readApiCa(directory);
  // Plain HTTP was accepted by name at registration, or the address would not stand in the file.
  return makeClient({
    base,
    allowPlainHttp: true,
    log,
    system,
    ...(token === undefined ? {} : { token }),
    ...(ca === undefined ? {} : { ca }),
  });
}

/**
 * The keyring's token wins over the file's. If the control plane refuses it as unknown (401), the file's is tried
 * once, and the keyring is repaired (decisions 3).
 */
export function connectOrganization(
  organization: Organization,
  system: ConnectionEdge,
  log: Log,
): WithClient {
  const { directory } = organization;
  let known: Promise<string> | undefined;
  return async (work) => {
    const token = await (known ??= readToken(organization, system));
    try {
      return await work(clientOf(directory, token, system, log));
    } catch (error) {
      if (!isRefused(error)) throw error;
      // Read anew: a registration in the meantime has replaced it.
      const { api_token: file } = readCredentials(directory);
      if (file === token) throw error;
      const result = await work(clientOf(directory, file, system, log));
      known = Promise.resolve(file);
      log.info("The keyring held an older token; it is replaced", { team: organization.slug });
      await storeInKeyring(accountOf(organization.slug, organization.config.node_id), file, system);
      return result;
    }
  };
}

function isRefused(error: unknown): boolean {
  return (
    error instanceof AppError && (error.code === "token_not_valid" || error.code === "not_authenticated")
  );
}

async function readToken({ slug, directory, config }: Organization, system: ConnectionEdge): Promise<string> {
  const { api_token: file } = readCredentials(directory);
  return (await keyringToken(accountOf(slug, config.node_id), system)) ?? file;
}

/** {org-slug}:{node-id}, as the specification names it. */
export function accountOf(slug: string, nodeId: number): string {
  return `${slug}:${nodeId}`;
}
