// Whether the process answers, and whether it can do its work.

import * as v from "valibot";
import { nothing, route, type Route } from "../http/route.ts";
import type { Services } from "../services.ts";

const Health = v.object({ status: v.literal("ok") });

/** Anybody may ask, and each real look is a write to the disk: one is made for all who ask within this. */
const lookEveryMs = 1000;

export function healthRoutes({ db, system }: Services): Route[] {
  let lookedAt = Number.NEGATIVE_INFINITY;
  let look: Promise<unknown> = Promise.resolve();
  const writable = () => {
    const now = performance.now();
    if (now - lookedAt >= lookEveryMs) {
      lookedAt = now;
      // A transaction that changes nothing would not meet a full disk.
      const sql = `INSERT INTO meta (key, value) VALUES ('ready', $1) ON CONFLICT (key) DO UPDATE SET value = excluded.value`;
      look = db.write((tx) => tx.run(sql, [`${system.now()} ${now}`]));
    }
    return look;
  };
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
        await writable();
        return { body: { status: "ok" } };
      },
    }),
  ];
}
