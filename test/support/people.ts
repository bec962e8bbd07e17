// Users who sign in with a password, and an organization with its owner.

import type { Reader } from "../../src/server/store/database.ts";
import { memberships } from "../../src/server/store/tables/organizations.ts";
import * as v from "valibot";
import { TokenPair } from "../../src/protocol/sign-in.ts";
import type { Organization } from "../../src/api/organizations.ts";
import { password, type Answer, type TestServer } from "./server.ts";

/** `owner`: an access token of the first user, owner@example.org. */
export async function makeAcme(server: TestServer): Promise<{ acme: Organization; owner: string }> {
  const acme = await server.organization("acme");
  const owner = await server.person("owner@example.org");
  await server.join(acme, "owner@example.org", "owner");
  return { acme, owner };
}

export const numberedEmail = (number: number) => `admin-${number}@example.org`;

/**
 * Creates another organization, `org-1` and so on, with its admin, admin-1@example.org; returns the admin's access
 * token.
 */
export async function makeNumbered(
  server: TestServer,
  number: number,
): Promise<{ org: Organization; admin: string }> {
  const org = await server.organization(`org-${number}`);
  const email = numberedEmail(number);
  const admin = await server.person(email);
  await server.join(org, email, "admin");
  return { org, admin };
}

export function signInTo(
  server: TestServer,
  email: string,
  secret = password,
  address = "192.0.2.1",
): Promise<Answer> {
  return server.send("POST", "/api/token/", { body: { email, password: secret }, address });
}

export const pair = (answer: Answer) => v.parse(TokenPair, answer.json);

/** The number of a membership. */
export async function membershipOf(db: Reader, org: { id: number }, email: string): Promise<number> {
  const membership = await memberships.find(db, { orgId: org.id, email });
  if (membership === undefined) throw new Error(`${email} is no member`);
  return membership.id;
}
