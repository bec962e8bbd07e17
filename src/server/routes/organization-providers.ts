// Routes for the providers of identities of an organization, for its administrators. Users of such a provider are valid in
// the organization only.

import * as v from "valibot";
import { actorOf } from "../audit/record.ts";
import { created, noContent } from "../http/reply.ts";
import { always, body, id, nothing, organizationRoute, type Route } from "../http/route.ts";
import {
  allIn,
  NewOrganizationProvider,
  OrganizationProviderPatch,
  Provider,
} from "../oidc/provider-settings.ts";
import {
  changeProvider,
  createProvider,
  deleteProvider,
  listProviders,
  showProvider,
} from "../oidc/providers.ts";
import { adds } from "../retention/budget.ts";
import type { Services } from "../services.ts";

const path = "identity_providers/";
const one = `${path}${id}/`;
/** The certificates of `trust` have their own maximum. */
const maxBody = 131_072;
/** Service tokens never reach sign-in settings. */
const forAdmins = { people: true, access: "admin" } as const;
const scopeOf = ({ org }: { org: { id: number } }) => ({ orgId: org.id });

const patchIn = (
  { org: { slug } }: { org: { slug: string } },
  { roles, node_groups, ...rest }: v.InferOutput<typeof OrganizationProviderPatch>,
) => ({
  ...rest,
  ...(roles === undefined ? {} : { roles: allIn(slug, roles) }),
  ...(node_groups === undefined ? {} : { node_groups: allIn(slug, node_groups) }),
});

export function organizationProviderRoutes(services: Services): Route[] {
  return [...reads(services), ...changes(services)];
}

function reads(services: Services): Route[] {
  return [
    organizationRoute({
      ...forAdmins,
      method: "GET",
      path,
      name: "org_identity_providers_list",
      summary: "The organization's own providers of identities (OpenID Connect)",
      takes: nothing,
      answers: { 200: { description: "Providers", schema: v.array(Provider) } },
      handle: async (call) => ({ body: await listProviders(services, scopeOf(call)) }),
    }),
    organizationRoute({
      ...forAdmins,
      method: "GET",
      path: one,
      name: "org_identity_providers_retrieve",
      summary: "One of the organization's own providers of identities",
      takes: nothing,
      answers: { 200: { description: "The provider", schema: Provider } },
      errors: ["not_found"],
      handle: async (call) => ({ body: await showProvider(services, scopeOf(call), call.id()) }),
    }),
  ];
}

function changes(services: Services): Route[] {
  return [
    organizationRoute({
      ...forAdmins,
      method: "POST",
      path,
      fresh: true,
      maxBody,
      grows: always,
      name: "org_identity_providers_create",
      summary:
        "Add a provider of identities to the organization. Its users are valid in this organization only. It is asked for its configuration first",
      takes: body(NewOrganizationProvider),
      answers: { 201: { description: "The provider; register its redirect_uri there", schema: Provider } },
      errors: ["conflict", "provider_unavailable", "untrusted_answer"],
      handle: async (call, input) => {
        const { roles, node_groups } = input;
        const { slug } = call.org;
        const settings = { ...input, roles: allIn(slug, roles), node_groups: allIn(slug, node_groups) };
        return created(await createProvider(services, scopeOf(call), settings, actorOf(call)));
      },
    }),
    organizationRoute({
      ...forAdmins,
      method: "PATCH",
      path: one,
      fresh: true,
      maxBody,
      grows: async (input, call) =>
        adds(await showProvider(services, scopeOf(call), call.id()), patchIn(call, input)),
      name: "org_identity_providers_partial_update",
      summary: "Change a provider of the organization. Its issuer stays",
      takes: body(OrganizationProviderPatch),
      answers: { 200: { description: "The provider", schema: Provider } },
      errors: ["not_found", "conflict"],
      async handle(call, input) {
        const settings = patchIn(call, input);
        return { body: await changeProvider(services, scopeOf(call), call.id(), settings, actorOf(call)) };
      },
    }),
    organizationRoute({
      ...forAdmins,
      method: "DELETE",
      path: one,
      fresh: true,
      name: "org_identity_providers_destroy",
      summary:
        "Delete a provider of the organization. Its users cannot sign in any more, and their sessions end",
      takes: nothing,
      answers: { 204: { description: "Deleted" } },
      errors: ["not_found"],
      async handle(call) {
        await deleteProvider(services, scopeOf(call), call.id(), actorOf(call));
        return noContent;
      },
    }),
  ];
}
