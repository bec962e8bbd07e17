// Health checks: whether the process answers, and whether it can use its database.

import * as v from "valibot";
import { nothing, route, type Route } from "../http/route.ts";
import type { Services } from "../services.ts";
import { AppError } from "../../errors.ts";
import { findWarnings, Warning } from "../metrics/warnings.ts";
import { setMeta } from "../store/meta.ts";

const Health = v.object({ status: v.literal("ok") });
/** It can answer, and should go on to: a revocation must reach the nodes. `warnings`: see `GET /api/servers/`. */
const Readiness = v.object({ ...Health.entries, warnings: v.array(Warning.entries.code) });

/** Each check writes to the disk and the route is public: all requests within this time share one check. */
const checkEveryMs = 1000;

export function healthRoutes(services: Services): Route[] {
  const { db, system } = services;
  let checkedAt = Number.NEGATIVE_INFINITY;
  let check: Promise<unknown> = Promise.resolve();
  const writable = () => {
    const now = performance.now();
    if (now - checkedAt >= checkEveryMs) {
      checkedAt = now;
      // A transaction that changes nothing would not detect a full disk.
      check = db.writeFor("rows", (tx) => setMeta(tx, "ready", `${system.now()} ${now}`));
    }
    return check;
  };
  return [
    route({
      method: "GET",
      path: "/healthz",
      access: "public",
      name: "healthz",
      summary: "Whether the process answers",
      takes: nothing,
      answers: { 200: { description: "The process answers", schema: Health } },
      handle: () => ({ body: { status: "ok" } }),
    }),
    route({
      method: "GET",
      path: "/readyz",
      access: "public",
      name: "readyz",
      summary:
        "Whether the database can be read and written, and what an administrator should look at: clock_doubted, clock_doubted_by_nodes, disk_filling, disk_full, database_damaged. SQLite's: refused on a full disk, and once a damage of the database was met",
      takes: nothing,
      answers: { 200: { description: "The database works", schema: Readiness } },
      errors: ["storage_unavailable"],
      async handle() {
        await writable();
        const warnings = findWarnings(services);
        const broken = warnings.find(({ code }) => code === "database_damaged" || code === "disk_full");
        // A small change may still find room in the file. PostgreSQL is elsewhere, and the same for all servers: a proxy
        // would send its requests to none of them.
        if (broken !== undefined && db.dialect === "sqlite")
          throw new AppError("storage_unavailable", broken.text, { retryAfter: 5, hint: broken.hint });
        return { body: { status: "ok", warnings: warnings.map(({ code }) => code) } };
      },
    }),
  ];
}
