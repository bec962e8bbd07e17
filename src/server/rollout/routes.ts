// Handlers of src/api/authorities.ts.

import type { authoritiesApi } from "../../api/authorities.ts";
import { actorOf } from "../audit/record.ts";
import type { Handlers } from "../http/attach.ts";
import type { Services } from "../services.ts";
import { showAuthorities, steerRotation } from "./rotation-commands.ts";

export const authorityHandlers = (services: Services): Handlers<typeof authoritiesApi> => ({
  retrieve: async ({ org }) => ({ body: await showAuthorities(services.db, org, services.system.now()) }),
  rotate: async (call, input) => ({ body: await steerRotation(services, call.org, input, actorOf(call)) }),
});
