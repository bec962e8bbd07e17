// Routes for an organization's CAs and their rotation.

import { actorOf } from "../audit/record.ts";
import {
  Authorities,
  RotationRequest,
  showAuthorities,
  steerRotation,
} from "../rollout/rotation-commands.ts";
import { body, nothing, organizationRoute, type Route } from "../http/route.ts";
import type { Services } from "../services.ts";

export function authorityRoutes(services: Services): Route[] {
  return [
    organizationRoute({
      method: "GET",
      path: "ca/",
      access: "member",
      name: "ca_retrieve",
      summary: "The organization's CAs and the state of their rotation",
      takes: nothing,
      answers: { 200: { description: "CAs and rotation", schema: Authorities } },
      handle: async ({ org }) => ({
        body: await showAuthorities(services.db, org, services.system.now()),
      }),
    }),
    organizationRoute({
      method: "POST",
      path: "ca/rotate/",
      access: "admin",
      fresh: true,
      name: "ca_rotate",
      summary: "Replace the CAs while all tunnels stay up, or change a running rotation",
      takes: body(RotationRequest),
      answers: { 200: { description: "CAs and rotation", schema: Authorities } },
      errors: ["conflict"],
      handle: async (call, request) => ({
        body: await steerRotation(services, call.org, request, actorOf(call)),
      }),
    }),
  ];
}
