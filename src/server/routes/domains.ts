// Routes for the domains of an organization: in them, the addresses that its providers name count.

import * as v from "valibot";
import { actorOf } from "../audit/record.ts";
import { created, noContent } from "../http/reply.ts";
import { always, body, id, nothing, organizationRoute, route, type Route } from "../http/route.ts";
import {
  addDomain,
  checkDomain,
  ClaimedDomain,
  listDomains,
  NewDomain,
  removeDomain,
  VouchedDomain,
  vouchForDomain,
} from "../oidc/domains.ts";
import type { Services } from "../services.ts";

const path = "domains/";
const one = `${path}${id}/`;
const forAdmins = { people: true, access: "admin" } as const;

export function domainRoutes(services: Services): Route[] {
  return [...ownRoutes(services), ...proofRoutes(services)];
}

function ownRoutes(services: Services): Route[] {
  return [
    organizationRoute({
      ...forAdmins,
      method: "GET",
      path,
      name: "domains_list",
      summary: "The domains of e-mail addresses that the organization has claimed",
      takes: nothing,
      answers: { 200: { description: "Domains", schema: v.array(ClaimedDomain) } },
      handle: async (call) => ({ body: await listDomains(services.db, call.org) }),
    }),
    organizationRoute({
      ...forAdmins,
      method: "POST",
      path,
      fresh: true,
      grows: always,
      name: "domains_create",
      summary: "Claim a domain. The answer names the TXT record that proves it",
      takes: body(NewDomain),
      answers: { 201: { description: "The domain, which does not count yet", schema: ClaimedDomain } },
      errors: ["conflict"],
      handle: async (call, { domain }) => created(await addDomain(services, call.org, domain, actorOf(call))),
    }),
    organizationRoute({
      ...forAdmins,
      method: "DELETE",
      path: one,
      fresh: true,
      name: "domains_destroy",
      summary: "Give a domain up: its addresses no longer count from the next sign-in on",
      takes: nothing,
      answers: { 204: { description: "Given up" } },
      errors: ["not_found"],
      async handle(call) {
        await removeDomain(services, call.org, call.id(), actorOf(call));
        return noContent;
      },
    }),
  ];
}

function proofRoutes(services: Services): Route[] {
  const answers = { 200: { description: "The domain, which counts now", schema: ClaimedDomain } };
  return [
    organizationRoute({
      ...forAdmins,
      method: "POST",
      path: `${one}check/`,
      fresh: true,
      name: "domains_check_create",
      summary: "Look for the TXT record that proves a domain",
      takes: nothing,
      answers,
      errors: ["not_found", "domain_unverified"],
      handle: async (call) => ({
        body: await checkDomain(services, call.org, call.id(), actorOf(call)),
      }),
    }),
    route({
      access: "staff",
      method: "POST",
      path: "/api/domains/",
      fresh: true,
      name: "domains_vouch_create",
      summary: "Verify a domain of an organization by the word of staff, without a record",
      takes: body(VouchedDomain),
      answers,
      errors: ["not_found", "conflict"],
      handle: async (call, input) => ({ body: await vouchForDomain(services, input, actorOf(call)) }),
    }),
  ];
}
