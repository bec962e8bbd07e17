// Serves a published release to networks without internet access: the files of one directory, unchanged. The publisher
// signs each file, so agents need not trust this server.

import { join } from "node:path";
import { AppError } from "../../errors.ts";
import { nothing, route, type Route } from "../http/route.ts";
import type { Services } from "../services.ts";

export function releaseRoutes({ releasesDirectory }: Services): Route[] {
  if (releasesDirectory === undefined) return [];
  return [
    route({
      method: "GET",
      // One name without a leading dot cannot leave the directory.
      path: "/releases/:name{[A-Za-z0-9][A-Za-z0-9._-]*}",
      access: "public",
      name: "releases_retrieve",
      summary: "A file of the mirrored release",
      takes: nothing,
      answers: { 200: { description: "The file", type: "application/octet-stream" } },
      async handle(call) {
        const file = Bun.file(join(releasesDirectory, call.param("name")));
        const found = await file.stat().catch(() => undefined);
        if (found?.isFile() !== true) throw new AppError("not_found", "There is no such file.");
        return {
          raw: file,
          headers: { "Content-Type": "application/octet-stream", "Cache-Control": "no-cache" },
        };
      },
    }),
  ];
}
