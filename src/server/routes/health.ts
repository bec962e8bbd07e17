// Whether the process answers, and whether it can do its work.

import * as v from "valibot";
import { nothing, route, type Route } from "../route.ts";
import type { Services } from "../services.ts";

const Health = v.object({ status: v.literal("ok") });

export function healthRoutes({ db }: Services): Route[] {
  return [
    route({
      method: "GET",
      path: "/healthz",
      access: "public",
      name: "healthz",
      summary: "Whether the process answers",
      takes: nothing,
      answers: { 200: { description: "It does", schema: Health } },
      handle: () => ({ body: { status: "ok" } }),
    }),
    route({
      method: "GET",
      path: "/readyz",
      access: "public",
      name: "readyz",
      summary: "Whether the database can be read and written",
      takes: nothing,
      answers: { 200: { description: "It can", schema: Health } },
      errors: ["storage_unavailable"],
      async handle() {
        await db.write((tx) => tx.get("SELECT version FROM migrations LIMIT 1"));
        return { body: { status: "ok" } };
      },
    }),
  ];
}
