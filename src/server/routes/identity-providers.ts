// Routes for the providers of identities of this control plane, for staff.

import * as v from "valibot";
import { actorOf } from "../audit/record.ts";
import { created, noContent } from "../http/reply.ts";
import { body, id, nothing, route, type Route } from "../http/route.ts";
import {
  changeProvider,
  createProvider,
  deleteProvider,
  installation,
  listProviders,
  showProvider,
} from "../oidc/providers.ts";
import { NewProvider, Provider, ProviderPatch } from "../oidc/provider-settings.ts";
import type { Services } from "../services.ts";

const path = "/api/identity_providers/";
const one = `${path}${id}/`;
/** The certificates of `trust` have their own maximum. */
const maxBody = 131_072;

export function identityProviderRoutes(services: Services): Route[] {
  return [
    route({
      method: "GET",
      path,
      access: "staff",
      name: "identity_providers_list",
      summary: "Providers of identities (OpenID Connect)",
      takes: nothing,
      answers: { 200: { description: "Providers", schema: v.array(Provider) } },
      handle: async () => ({ body: await listProviders(services, installation) }),
    }),
    route({
      method: "POST",
      path,
      access: "staff",
      fresh: true,
      maxBody,
      name: "identity_providers_create",
      summary: "Add a provider of identities. It is asked for its configuration first",
      takes: body(NewProvider),
      answers: {
        201: { description: "The provider; register its redirect_uri there", schema: Provider },
      },
      errors: ["conflict", "provider_unavailable", "untrusted_answer"],
      handle: async (call, input) =>
        created(await createProvider(services, installation, input, actorOf(call))),
    }),
    route({
      method: "GET",
      path: one,
      access: "staff",
      name: "identity_providers_retrieve",
      summary: "One provider of identities",
      takes: nothing,
      answers: { 200: { description: "The provider", schema: Provider } },
      errors: ["not_found"],
      handle: async (call) => ({ body: await showProvider(services, installation, call.id()) }),
    }),
    route({
      method: "PATCH",
      path: one,
      access: "staff",
      fresh: true,
      maxBody,
      name: "identity_providers_partial_update",
      summary: "Change a provider of identities. Its issuer stays: identities are stored under it",
      takes: body(ProviderPatch),
      answers: { 200: { description: "The provider", schema: Provider } },
      errors: ["not_found", "conflict"],
      handle: async (call, input) => ({
        body: await changeProvider(services, installation, call.id(), input, actorOf(call)),
      }),
    }),
    route({
      method: "DELETE",
      path: one,
      access: "staff",
      fresh: true,
      name: "identity_providers_destroy",
      summary: "Delete a provider of identities, with its identities and the sessions that began there",
      takes: nothing,
      answers: { 204: { description: "Deleted" } },
      errors: ["not_found"],
      async handle(call) {
        await deleteProvider(services, installation, call.id(), actorOf(call));
        return noContent;
      },
    }),
  ];
}
