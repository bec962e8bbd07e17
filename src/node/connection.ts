// A registered organization's connection to its control plane: address and token from its directory, the token from
// the keyring first. Remembers nothing between runs.

import { join } from "node:path";
import { AppError } from "../errors.ts";
import type { Log } from "../log.ts";
import type { System } from "../system.ts";
import { makeClient, type Client } from "./client.ts";
import { keyringToken, storeInKeyring } from "./keyring.ts";
import { readApiCa, readCredentials, type Organization } from "./organizations.ts";

export type ConnectionEdge = Pick<System, "fetch" | "sleep" | "run" | "env" | "platform" | "executable">;

/** Runs `work` with a client of the organization's control plane. */
export type WithClient = <T>(work: (client: Client) => Promise<T>) => Promise<T>;

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
  let tokens: Promise<{ first: string; file: string }> | undefined;
  const makeWith = (token: string) => {
    const { api_base: base } = readCredentials(directory);
    const ca = readApiCa(directory);
    // Plain HTTP was accepted by name at registration, or the address would not stand in the file.
    return makeClient({
      base,
      token,
      allowPlainHttp: true,
      log,
      system,
      ...(ca === undefined ? {} : { ca }),
    });
  };
  return async (work) => {
    const { first, file } = await (tokens ??= readTokens(organization, system));
    try {
      return await work(makeWith(first));
    } catch (error) {
      const refused =
        error instanceof AppError && (error.code === "token_not_valid" || error.code === "not_authenticated");
      if (!refused || first === file) throw error;
      const result = await work(makeWith(file));
      log.info("The keyring held an older token; it is replaced", {
        path: join(directory, "credentials.json"),
      });
      tokens = Promise.resolve({ first: file, file });
      await storeInKeyring(accountOf(organization), file, system);
      return result;
    }
  };
}

async function readTokens(
  organization: Organization,
  system: ConnectionEdge,
): Promise<{ first: string; file: string }> {
  const { api_token: file } = readCredentials(organization.directory);
  return { first: (await keyringToken(accountOf(organization), system)) ?? file, file };
}

/** {org-slug}:{node-id}, as the specification names it. */
export function accountOf({ slug, config }: Organization): string {
  return `${slug}:${config.node_id}`;
}
