// Handlers of src/api/names.ts.

import type { namesApi } from "../../api/names.ts";
import { actorOf } from "../audit/record.ts";
import type { Handlers } from "../http/attach.ts";
import type { Services } from "../services.ts";
import { listRows } from "../store/list-rows.ts";
import { aliasList, createAlias, deleteAlias } from "./aliases.ts";

/** `$2`: the pattern of the query's `search`. */
const listed = { ...aliasList, where: "AND (name LIKE $2 ESCAPE '!' OR node_name LIKE $2 ESCAPE '!')" };

export const nameHandlers = (services: Services): Handlers<typeof namesApi> => ({
  list: (call, input) => listRows(services, call, listed, input),
  create: async (call, input) => ({
    body: await createAlias(services, call.org, input, actorOf(call)),
  }),
  async delete(call) {
    await deleteAlias(services, call.org, call.id(), actorOf(call));
  },
});
